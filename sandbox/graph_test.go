package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A call checks the modification times of folders instead of searching the handler's folder for each import. Imports of
// standard modules would otherwise cost a stat at each call.
func TestCallChecksFoldersAndNotEachImport(t *testing.T) {
	for _, imports := range []int{3, 60} {
		t.Run(fmt.Sprint(imports), func(t *testing.T) {
			dir := t.TempDir()
			var code strings.Builder
			for i := range imports {
				fmt.Fprintf(&code, "import module%d\nfrom package%d.inner import name\n", i, i)
			}
			path := filepath.Join(dir, "main.py")
			if err := os.WriteFile(path, []byte(code.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			// no folder was changed so recently that another change may be undetected
			quiet := time.Now().Add(-time.Hour)
			if err := os.Chtimes(dir, quiet, quiet); err != nil {
				t.Fatal(err)
			}
			g, err := traceImports(dir, path, RuntimePython)
			if err != nil {
				t.Fatal(err)
			}
			first, second := g.fresh(), g.fresh()
			if !first || !second || len(g.absent) < 4*imports || len(g.folders) != 1 {
				t.Errorf("%d folders stand for %d imports that are not there", len(g.folders), len(g.absent))
			}
			if err := os.MkdirAll(filepath.Join(dir, "package1"), 0o700); err != nil {
				t.Fatal(err)
			}
			if !g.fresh() {
				t.Error("an empty folder counts as an import")
			}
			if err := os.WriteFile(filepath.Join(dir, "package1", "inner.py"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if g.fresh() {
				t.Error("a file that is imported now is not noticed")
			}
		})
	}
}
