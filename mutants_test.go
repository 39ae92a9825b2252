package sojourn_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mutant is one mistake of .ci/mutants, where the form is described.
type mutant struct {
	name, file, pkg, test string
	was, is               []string
}

func mutants(t *testing.T) (list []mutant) {
	t.Helper()
	raw, err := os.ReadFile(".ci/mutants")
	if err != nil {
		t.Fatal(err)
	}
	for n, line := range strings.Split(string(raw), "\n") {
		mark, rest, _ := strings.Cut(line, " ")
		if mark == "" || mark == "#" {
			continue
		}
		if mark == "=" {
			list = append(list, mutant{name: strings.Fields(rest)[0]})
			continue
		}
		if len(list) == 0 {
			t.Fatalf(".ci/mutants:%d: before the first name", n+1)
		}
		m := &list[len(list)-1]
		switch mark {
		case "@":
			m.file = rest
		case "?":
			m.pkg, m.test, _ = strings.Cut(rest, " ")
		case "-":
			m.was = append(m.was, rest)
		case "+":
			m.is = append(m.is, rest)
		default:
			t.Fatalf(".ci/mutants:%d: %q", n+1, line)
		}
	}
	return list
}

// made is the file with the mistake in it.
func (m mutant) made(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatalf("%s: %v", m.name, err)
	}
	was := strings.Join(m.was, "\n") + "\n"
	if n := strings.Count("\n"+string(raw), "\n"+was); n != 1 || len(m.was) == 0 {
		t.Fatalf("%s: its lines stand %d times in %s, want once", m.name, n, m.file)
	}
	is := ""
	if len(m.is) > 0 {
		is = strings.Join(m.is, "\n") + "\n"
	}
	return strings.Replace(string(raw), was, is, 1)
}

var (
	declared   = regexp.MustCompile(`(?m)^func (\w+)\(`)
	declaredIn = map[string]map[string]bool{} // the functions in the test files of a directory, by name
)

// testIn reports whether a package has a test of that name; pkg is a directory of this module.
func testIn(t *testing.T, pkg, name string) bool {
	t.Helper()
	pkg = filepath.Clean(pkg)
	if declaredIn[pkg] == nil {
		files, err := filepath.Glob(filepath.Join(pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, f := range files {
			raw, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range declared.FindAllSubmatch(raw, -1) {
				names[string(m[1])] = true
			}
		}
		declaredIn[pkg] = names
	}
	return declaredIn[pkg][name]
}

// Every mistake of the list can be made still, and the test that must notice it is there.
func TestTheListOfMutantsFitsTheTree(t *testing.T) {
	list, names := mutants(t), map[string]bool{}
	for _, m := range list {
		if names[m.name] {
			t.Errorf("%s stands there twice", m.name)
		}
		names[m.name] = true
		m.made(t)
		if !testIn(t, m.pkg, m.test) {
			t.Errorf("%s: there is no %s in %s", m.name, m.test, m.pkg)
		}
	}
	if len(list) == 0 {
		t.Error("no mutants")
	}
}

// Each mistake of the list, made in a copy of the tree, is noticed by its test. SOJOURN_TEST_MUTANTS is "all", or parts
// of the names of some with commas between; "make mutants" sets it, since the tree is built anew for each.
func TestMutantsDie(t *testing.T) {
	filter := os.Getenv("SOJOURN_TEST_MUTANTS")
	if filter == "" {
		t.Skip("make mutants runs it")
	}
	tree := t.TempDir()
	copyTree(t, tree)
	for _, m := range mutants(t) {
		if filter != "all" && !slices.ContainsFunc(strings.Split(filter, ","), func(part string) bool {
			return strings.Contains(m.name, part)
		}) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			path := filepath.Join(tree, m.file)
			sound, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(m.made(t)), 0o600); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := os.WriteFile(path, sound, 0o600); err != nil {
					t.Fatal(err)
				}
			}()
			cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-run", "^"+m.test+"$", m.pkg)
			cmd.Dir = tree
			out, err := cmd.CombinedOutput()
			switch {
			case err == nil:
				t.Errorf("%s lets it live", m.test)
			// It does not build, say: that proves nothing. A panic of a goroutine that is not the test's ends all.
			case !strings.Contains(string(out), "--- FAIL: "+m.test) && !strings.Contains(string(out), "[running]:"):
				t.Errorf("%s did not fail: %v\n%.3000s", m.test, err, out)
			}
		})
	}
}

// copyTree copies the files that the tests of this module need.
func copyTree(t *testing.T, to string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules" || d.Name() == "bin" || d.Name() == ".sojourn"):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, path), 0o700)
		case !d.Type().IsRegular() || d.Name() == ".git": // a worktree has a file that names its repository
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, path), raw, info.Mode().Perm()|0o200)
	})
	if err != nil {
		t.Fatal(fmt.Errorf("copy the tree: %w", err))
	}
	// The copy gets its own index, which tracked reads.
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = to
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args[0], err, out)
		}
	}
}
