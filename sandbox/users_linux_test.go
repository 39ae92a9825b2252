package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sojourn-run/sojourn/sandbox"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// range of user IDs for executors in tests
const testUsers = "59100-59131"

// rooted skips a test unless it runs as root.
func rooted(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root starts processes of other users")
	}
}

// open returns options for pools whose executors run as separate users. The first interpreter in PATH may be unreadable
// for them, so open uses the interpreter of the system.
func open(t *testing.T, o sandbox.Options) sandbox.Options {
	t.Helper()
	rooted(t)
	o.Users, o.Handlers = testUsers, HandlersDir(t)
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		o.Python = "/usr/bin/python3"
	}
	return o
}

func owner(t *testing.T, path string) (int, os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid), info.Mode().Perm()
}

// If the worker is root, each executor runs as a separate user, which owns the executor's folder and is in no group of
// the worker.
func TestEveryExecutorIsAUser(t *testing.T) {
	for _, target := range Targets {
		t.Run(target.Runtime, func(t *testing.T) {
			b := Open(t, target, open(t, sandbox.Options{}))
			if r := b.Report(); !r.UIDPerSession || slices.ContainsFunc(r.Missing, func(m string) bool {
				return strings.Contains(m, "as root") || strings.Contains(m, "modes and times")
			}) {
				t.Errorf("report %+v", r)
			}
			seen := map[int]bool{}
			for _, session := range []string{"a", "b", "c"} {
				pid := Got[int](t, b.Run(In(session, 1, b.Call("pid"))))
				uid, _ := owner(t, fmt.Sprintf("/proc/%d", pid))
				status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
				if err != nil {
					t.Fatal(err)
				}
				for _, line := range []string{"Uid:\t", "Gid:\t"} {
					want := strings.TrimSuffix(line+strings.Repeat(fmt.Sprint(uid)+"\t", 4), "\t") + "\n"
					if !strings.Contains(string(status), want) {
						t.Errorf("session %s: no %q in\n%s", session, want, status)
					}
				}
				if uid < 59100 || uid > 59131 || seen[uid] || !strings.Contains(string(status), "Groups:\t \n") &&
					!strings.Contains(string(status), "Groups:\t\n") {
					t.Errorf("session %s: user %d beside %v\n%s", session, uid, seen, status)
				}
				seen[uid] = true
				about := Got[map[string]any](t, b.Run(In(session, 1, b.Call("about"))))
				if of, mode := owner(t, about["dir"].(string)); of != uid || mode != 0o700 {
					t.Errorf("session %s: its folder is user %d's, mode %o", session, of, mode)
				}
				b.Run(In(session, 1, b.Call("write", "kept"))) // it works in the session
			}
		})
	}
}

// The separation of users also works at the level process.
func TestUsersAreKeptApartWithoutAWall(t *testing.T) {
	o := open(t, sandbox.Options{Level: sandbox.LevelProcess})
	b := Open(t, Targets[0], o)
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := Got[map[string]any](t, b.Run(In("other", 1, b.Call("about"))))
	b.Run(In("other", 1, b.Call("write", "kept")))
	own := Got[map[string]any](t, b.Run(In("attacker", 1, b.Call("about"))))
	outcomes := Got[map[string]string](t, b.Run(In("attacker", 1, b.Call("attacks", Aim{
		Worker: os.Getpid(), Other: int(other["pid"].(int64)), Secret: secret, Folder: dir,
		Foreign: filepath.Join(other["dir"].(string), "kept"), Code: filepath.Join(o.Handlers, "python.py"),
		Scratch: own["dir"].(string),
	}))))
	for _, name := range []string{
		"signal to the worker", "signal to another executor", "secret file", "another executor's file",
		"environment of another executor", "environment of the worker", "memory of the worker", "ptrace",
		"ptrace of another executor", "limits of the worker", "write in the worker's folder", "change code", "write in /etc",
		"another user", "capabilities",
	} {
		if what, reported := outcomes[name]; !reported || what == "" {
			t.Errorf("%s is open", name)
		}
	}
	b.Run(In("other", 1, b.Call("count"))) // the state still exists
}

// Workers on one machine do not use the same user ID twice, and IDs of ended executors are reused.
func TestUsersAreGivenOnce(t *testing.T) {
	o := open(t, sandbox.Options{Blank: -1})
	o.Users = "59200-59202"
	one, two := Open(t, Targets[0], o), Open(t, Targets[0], o)
	user := func(b *Bench, session string) int {
		uid, _ := owner(t, fmt.Sprintf("/proc/%d", Got[int](t, b.Run(In(session, 1, b.Call("pid"))))))
		return uid
	}
	had := []int{user(one, "a"), user(two, "b"), user(one, "c")}
	slices.Sort(had)
	if !slices.Equal(had, []int{59200, 59201, 59202}) {
		t.Errorf("users %v", had)
	}
	e := WantType(t, two.Fail(In("d", 1, two.Call("pid"))), sandbox.Unavailable)
	if !e.Retryable || !strings.Contains(e.Message, "all user IDs from 59200 to 59202") {
		t.Errorf("got %+v", e)
	}
	ended := user(one, "a")
	if err := one.CloseSession(t.Context(), sandbox.Session{ID: "a", Epoch: 1}, "done"); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the user is free", func() bool { return len(one.Snapshot()) == 1 })
	var second int
	Eventually(t, "the user is given again", func() bool {
		res, err := two.Invoke(t.Context(), In("d", 1, two.Call("pid")), sandbox.Hooks{})
		if err != nil {
			return false
		}
		second, _ = owner(t, fmt.Sprintf("/proc/%d", Got[int](t, res)))
		return true
	})
	if second != ended {
		t.Errorf("user %d, want %d", second, ended)
	}
}

// The worker's data stays closed: executors have their folders elsewhere if they must.
func TestDataFolderStaysClosedToUsers(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	o := open(t, sandbox.Options{Level: sandbox.LevelProcess, Private: data})
	o.Dir = filepath.Join(data, "sandbox")
	p, err := sandbox.NewPool(Fit(o))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, mode := owner(t, data); mode != 0o700 {
		t.Errorf("mode %o", mode)
	}
	if _, err := os.Stat(o.Dir); err == nil {
		t.Error("the pool's folder is in a closed one")
	}
	if !p.Report().UIDPerSession {
		t.Errorf("report %+v", p.Report())
	}
}

// A pool with a configured range of users opens only if it can use it. Without a configured range the report states why
// executors have no separate users. F
func TestUsersAreAllocatedOrTheReasonIsReported(t *testing.T) {
	closed := HandlersDir(t)
	if err := os.Chmod(filepath.Join(closed, "python.py"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		o    sandbox.Options
		want string
	}{
		"a handler that is closed": {sandbox.Options{Handlers: closed}, "python.py is not accessible to other users"},
		"a folder to write to":     {sandbox.Options{Write: []string{"/etc"}}, "/etc is not accessible to other users"},
		"by the settings":          {sandbox.Options{Users: sandbox.UsersNone}, "the setting executor-uids is none"},
	} {
		if os.Geteuid() != 0 {
			c.want = "the worker is not root"
		}
		if _, err := os.Stat("/usr/bin/python3"); err == nil {
			c.o.Python = "/usr/bin/python3"
		}
		c.o.Dir = t.TempDir()
		p, err := sandbox.NewPool(c.o)
		if err != nil {
			t.Fatal(err)
		}
		r := p.Report()
		p.Close()
		reported := slices.ContainsFunc(r.Missing, func(m string) bool { return strings.Contains(m, c.want) })
		if r.UIDPerSession || os.Geteuid() == 0 && !reported {
			t.Errorf("%s: %+v", name, r)
		}
		if c.o.Users != "" {
			continue
		}
		c.o.Users = testUsers
		if p, err = sandbox.NewPool(c.o); err == nil {
			p.Close()
		}
		if !errors.Is(err, sandbox.ErrTooWeak) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, asked for: %v", name, err)
		}
	}
	for _, text := range []string{"1", "1-", "-1", "0-5", "9-8", "a-b", "1-2147483647"} {
		if _, _, err := sandbox.ParseUsers(text); err == nil {
			t.Errorf("%q is a range", text)
		}
	}
}
