package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// denial explains a failure by an access that the executor's rules refuse; empty when it is not one. The path comes
// from the executor. The first failure of an executor tells all the rules, later ones what to do about it.
func (ex *executor) denial(path string) string {
	if path == "" || ex.rules == nil {
		return ""
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(ex.scratch, path)
	}
	if ex.rules.Covers(path, true) {
		return "" // it is the file's own rights that refuse it
	}
	may := "is not among what confined code may open"
	if ex.rules.Covers(path, false) {
		may = "may be read by confined code, not changed"
	}
	text := fmt.Sprintf(" (isolation: %q %s; the settings executor-read and executor-write add to that", path, may)
	if ex.refused.CompareAndSwap(false, true) {
		text += fmt.Sprintf(". It may read %s; it may change %s", there(ex.rules.Read), there(ex.rules.Write))
	}
	return text + ")"
}

// there lists those of some paths where something is.
func there(paths []string) string {
	var all []string
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			all = append(all, path)
		}
	}
	return strings.Join(all, ", ")
}
