package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sojourn-run/sojourn/sandbox/internal/lockdown"
)

// denial explains a failure that an access denied by the executor's rules caused; empty for other failures. The
// executor reports the path. The first such failure of an executor lists all rules; later ones only state the remedy.
func (ex *executor) denial(path string) string {
	if path == "" || ex.rules == nil {
		return ""
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(ex.scratch, path)
	}
	if ex.rules.Covers(path, true) {
		return "" // the permissions of the file deny the access
	}
	may := "is not among what confined code may open"
	if ex.rules.Covers(path, false) {
		may = "may be read by confined code, not changed"
	}
	text := fmt.Sprintf(" (isolation: %q %s; the settings executor-read and executor-write add to that", path, may)
	if ex.lang.unreachable != nil {
		text += ex.lang.unreachable(path)
	}
	if ex.refused.CompareAndSwap(false, true) {
		text += fmt.Sprintf(". It may read %s; it may change %s", existingPaths(ex.rules.Read), existingPaths(ex.rules.Write))
	}
	return text + ")"
}

// existingPaths returns the paths that exist.
func existingPaths(paths []string) string {
	var all []string
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			all = append(all, path)
		}
	}
	return strings.Join(all, ", ")
}

// unreachable returns a function that explains a denied path that operators may expect to be allowed: the path is in a
// setting but also in the private data directory, or a node_modules folder is a link to it.
func (o Options) unreachable() func(path string) string {
	var links [][2]string
	for dir, err := filepath.Abs(o.Handlers); err == nil && o.Handlers != ""; dir = filepath.Dir(dir) {
		link := filepath.Join(dir, "node_modules")
		if info, err := os.Lstat(link); err == nil && info.Mode()&os.ModeSymlink != 0 {
			links = append(links, [2]string{link, followed(link)})
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return func(path string) string {
		for _, s := range []struct {
			setting string
			paths   []string
		}{{"executor-read", o.Read}, {"executor-write", o.Write}} {
			for _, named := range s.paths {
				if lockdown.Below(path, followed(named)) && len(pathsAround(named, o.Private)) == 0 {
					return fmt.Sprintf("; %s names %q, which cannot be allowed: it is in the data directory %q", s.setting, named, o.Private)
				}
			}
		}
		for _, l := range links {
			if lockdown.Below(path, l[1]) {
				return fmt.Sprintf("; %q is a link to %q: add that folder to executor-read", l[0], l[1])
			}
		}
		return ""
	}
}
