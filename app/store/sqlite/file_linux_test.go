package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/storetest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// other has the test's binary be another process, which does this to the file in the next argument.
const other = "SOJOURN_TEST_OTHER"

func TestMain(m *testing.M) {
	if what := os.Getenv(other); what != "" {
		if err := asAnother(what, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// inAnotherProcess runs asAnother in a separate process, which ends with the test, and returns its output.
func inAnotherProcess(t *testing.T, what, path string) (*bufio.Scanner, *exec.Cmd) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], path)
	cmd.Env = append(os.Environ(), other+"="+what)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return bufio.NewScanner(out), cmd
}

// line returns the next line that the other process prints.
func line(t *testing.T, from *bufio.Scanner) string {
	t.Helper()
	if !from.Scan() {
		t.Fatalf("the other process ended: %v", from.Err())
	}
	return from.Text()
}

func asAnother(what, path string) error {
	switch what {
	case "open":
		s, err := sqlite.Open(context.Background(), path, sqldb.Options{})
		if err != nil {
			fmt.Println("refused:", errors.Is(err, store.ErrBusy), err)
			return nil
		}
		fmt.Println("opened")
		return s.Close()
	case "serve": // starts runs and prints each acknowledged one, until it is killed
		s, err := sqlite.Open(context.Background(), path, sqldb.Options{})
		if err != nil {
			return err
		}
		for n := 0; ; n++ {
			if err := start(s, n); err != nil {
				return err
			}
			fmt.Println(n)
		}
	case "locks": // reports whether SQLite's locks would block another process
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: 1<<30 + 2, Len: 510}
		err = unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l)
		fmt.Println(l.Type != unix.F_UNLCK)
		return err
	case "copy":
		db, err := sql.Open("sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(5000)")
		if err != nil {
			return err
		}
		if _, err := db.Exec("VACUUM INTO ?", path+".copy"); err != nil {
			return err
		}
		fmt.Println("copied")
		return db.Close()
	}
	return fmt.Errorf("%s: no such process", what)
}

func start(s *sqldb.Store, n int) error {
	_, err := s.Commit(context.Background(), storetest.StartChange(engine.Start{
		RunID: fmt.Sprintf("R%025d", n), Number: 1, Arguments: strings.Repeat("x", 3000), Request: protocol.StartRequest{
			Namespace: storetest.Namespace, WorkflowID: fmt.Sprint("w", n), WorkflowType: "flow", TaskQueue: storetest.Queue,
		},
	}))
	return err
}

func has(s *sqldb.Store, n int) error {
	return s.View(context.Background(), func(r store.Reader) error {
		_, err := r.Workflow(context.Background(), engine.WorkflowKey{Namespace: storetest.Namespace, ID: fmt.Sprint("w", n)})
		return err
	})
}

// byOtherNames returns further names of the file at path.
func byOtherNames(t *testing.T, path string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	names := map[string]string{
		"hard link": filepath.Join(dir, "hard.db"), "symbolic link": filepath.Join(dir, "soft.db"),
		"bind mount": filepath.Join(dir, "bound.db"),
	}
	if err := errors.Join(os.Link(path, names["hard link"]), os.Symlink(path, names["symbolic link"]),
		os.WriteFile(names["bind mount"], nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(path, names["bind mount"], "", unix.MS_BIND, ""); err != nil {
		t.Logf("no bind mount: %v", err)
		delete(names, "bind mount")
	} else {
		t.Cleanup(func() { _ = unix.Unmount(names["bind mount"], unix.MNT_DETACH) })
	}
	return names
}

// Only one app can open a file, also under another name, and its locks survive such an attempt, even in the same
// process.
func TestAFileHasOneAppUnderAllItsNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "one.db")
	s := open(t, path, sqldb.Options{})
	if err := start(s, 0); err != nil {
		t.Fatal(err)
	}
	for kind, name := range byOtherNames(t, path) {
		t.Run(kind, func(t *testing.T) {
			out, _ := inAnotherProcess(t, "open", name)
			if got := line(t, out); !strings.HasPrefix(got, "refused: true") {
				t.Errorf("another process: %s", got)
			}
			if second, err := sqlite.Open(t.Context(), name, sqldb.Options{}); !errors.Is(err, store.ErrBusy) {
				t.Errorf("this process: %v", err)
				if err == nil {
					_ = second.Close()
				}
			}
			if _, err := sqlite.Inspect(t.Context(), name); !errors.Is(err, store.ErrBusy) {
				t.Errorf("inspected: %v", err)
			}
			out, _ = inAnotherProcess(t, "locks", path)
			if got := line(t, out); got != "true" {
				t.Error("SQLite's locks are gone")
			}
		})
	}
	if err := start(s, 1); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path, sqldb.Options{})
}

// Another process copies the file while the store writes, and neither is in the other's way.
func TestAnotherProcessCopiesTheFileUnderWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "copied.db")
	s := open(t, path, sqldb.Options{})
	if err := start(s, 0); err != nil {
		t.Fatal(err)
	}
	out, _ := inAnotherProcess(t, "copy", path)
	copied := make(chan string, 1)
	go func() {
		if out.Scan() {
			copied <- out.Text()
		}
		close(copied)
	}()
	n := 1
	for done := false; !done; n++ {
		if err := start(s, n); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-copied:
			if done = true; got != "copied" {
				t.Fatal("the copy failed")
			}
		default:
		}
	}
	reopened := open(t, path+".copy", sqldb.Options{})
	for _, s := range []*sqldb.Store{s, reopened} {
		if err := has(s, 0); err != nil {
			t.Error(err)
		}
	}
	if err := has(s, n-1); err != nil {
		t.Error(err)
	}
}

// killed returns a file whose app was killed during writes, with the number of the last start that it acknowledged.
func killed(t *testing.T, enough int) (path string, last int) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "killed.db")
	out, cmd := inAnotherProcess(t, "serve", path)
	for last < enough {
		if _, err := fmt.Sscan(line(t, out), &last); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for out.Scan() {
		n := 0
		if _, err := fmt.Sscan(out.Text(), &n); err == nil {
			last = max(last, n)
		}
	}
	return path, last
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	raw, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A log without its end looks like a log that ends there. The file is refused, unchanged, as long as acknowledged work
// is missing, and it is opened with the complete log.
func TestATruncatedLogIsDetected(t *testing.T) {
	path, last := killed(t, 40)
	log, whole := path+"-wal", filepath.Join(t.TempDir(), "wal")
	copyFile(t, log, whole)
	info, err := os.Stat(log)
	if err != nil || info.Size() < 100_000 {
		t.Fatalf("a log of %v: %v", info, err)
	}
	refused := func(how string) {
		t.Helper()
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := sqlite.Open(t.Context(), path, sqldb.Options{})
		if !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "backup") {
			t.Errorf("%s: %v, want damage and what to do", how, err)
		}
		if err == nil {
			t.Fatal(s.Close())
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
			t.Errorf("%s: the file was changed: %v", how, err)
		}
	}
	// The app may have been killed between its last commit and the answers to that commit's callers. The end of the log
	// belongs to that commit, and without it the file may be opened: all acknowledged starts are there.
	main := filepath.Join(t.TempDir(), "main")
	copyFile(t, path, main)
	for _, less := range []int64{1, 5000} {
		copyFile(t, whole, log)
		if err := os.Truncate(log, info.Size()-less); err != nil {
			t.Fatal(err)
		}
		s, err := sqlite.Open(t.Context(), path, sqldb.Options{})
		if err != nil {
			refused(fmt.Sprintf("a log without its last %d bytes", less))
			continue
		}
		for n := range last + 1 {
			if err := has(s, n); err != nil {
				t.Fatalf("opened with a log without its last %d bytes: start %d of %d: %v", less, n, last, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		copyFile(t, main, path)
	}
	for _, keep := range []int64{info.Size() / 2, 4096, 1, 0} {
		copyFile(t, whole, log)
		if err := os.Truncate(log, keep); err != nil {
			t.Fatal(err)
		}
		refused(fmt.Sprintf("%d of %d bytes of the log", keep, info.Size()))
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	refused("no log")
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Link(path, link); err != nil {
		t.Fatal(err)
	}
	copyFile(t, whole, log)
	if s, err := sqlite.Open(t.Context(), link, sqldb.Options{}); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("by another name, beside which no log is: %v", err)
		if err == nil {
			_ = s.Close()
		}
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	// An operator who accepts the loss of the missing work copies the file and starts the app with the copy.
	accepted := filepath.Join(t.TempDir(), "accepted.db")
	copyFile(t, path, accepted)
	open(t, accepted, sqldb.Options{})
	s := open(t, path, sqldb.Options{})
	for n := range last + 1 {
		if err := has(s, n); err != nil {
			t.Fatalf("start %d of %d: %v", n, last, err)
		}
	}
}

// damage overwrites the middle of pages that contain tables, in the main file.
func damage(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	for at := int64(2 * 4096); at < info.Size(); at += 4096 {
		if _, err := f.WriteAt([]byte(strings.Repeat("\xff", 64)), at); err != nil {
			t.Fatal(err)
		}
	}
}

// damagePayloads overwrites only pages of payloads, which are not read when a store opens.
func damagePayloads(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	hit := 0
	for at := 4096; at < len(raw); at += 4096 {
		if raw[at] == 0x0d && strings.Contains(string(raw[at:at+4096]), "xxxxxxxx") {
			if _, err := f.WriteAt([]byte(strings.Repeat("\xff", 8)), int64(at)); err != nil {
				t.Fatal(err)
			}
			hit++
		}
	}
	if err := f.Close(); err != nil || hit == 0 {
		t.Fatalf("%d pages damaged: %v", hit, err)
	}
}

// A file that was not closed is checked before it is served.
func TestADamagedFileIsRejectedWithInstructions(t *testing.T) {
	path, _ := killed(t, 400) // the first are in the main file by then
	damagePayloads(t, path)
	s, err := sqlite.Open(t.Context(), path, sqldb.Options{})
	if !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "restore the last backup") {
		t.Errorf("got %v", err)
	}
	if err == nil {
		_ = s.Close()
	}
}

// A check of a file that takes long continues while the store serves. If the check finds damage, the store stops.
func TestDamageFoundByTheCheckStopsTheStore(t *testing.T) {
	path, last := killed(t, 400) // the first are in the main file by then
	defer sqlite.CheckFor(0)()
	whole := filepath.Join(t.TempDir(), "whole.db")
	copyFile(t, path, whole)
	copyFile(t, path+"-wal", whole+"-wal")
	t.Run("nothing is wrong", func(t *testing.T) {
		s := open(t, whole, sqldb.Options{})
		if err := start(s, last+1000); err != nil {
			t.Error(err)
		}
	})
	damagePayloads(t, path)
	s := open(t, path, sqldb.Options{})
	if err := <-s.Unusable(); !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), path) {
		t.Errorf("told %v", err)
	}
	for what, err := range map[string]error{"ready": s.Writable(t.Context()), "a start": start(s, last+1000)} {
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, store.ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Damage that a statement meets stops the store as well.
func TestDamageFoundByAStatementStopsTheStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "met.db")
	s := open(t, path, sqldb.Options{})
	for n := range 50 {
		if err := start(s, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil { // all is in the main file
		t.Fatal(err)
	}
	s = open(t, path, sqldb.Options{})
	if err := s.Writable(t.Context()); err != nil {
		t.Fatal(err)
	}
	damage(t, path)
	for n := range 50 {
		if err := has(s, n); errors.Is(err, store.ErrUnavailable) {
			break
		}
	}
	select {
	case err := <-s.Unusable():
		if !errors.Is(err, store.ErrDamaged) {
			t.Errorf("told %v", err)
		}
	default:
		t.Error("nothing was told")
	}
	if err := s.Writable(t.Context()); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("ready: %v", err)
	}
}
