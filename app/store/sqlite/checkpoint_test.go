package sqlite

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// The committer writes fewer pages than SQLite's own limit, so that none of its commits runs a checkpoint. The
// checkpointer copies the pages to the database file.
func TestPagesAreCheckpointedOutsideOfCommits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	c := &conn{dsn: dsn(path, tempStoreInMemory)}
	if err := c.openFile(); err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	checkpoints, err := newCheckpointer(path, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer checkpoints.close()
	run := func(sql string) {
		t.Helper()
		if err := c.run(&db.Call{Stmt: &db.Stmt{SQL: sql}}); err != nil {
			t.Fatal(err)
		}
		checkpoints.committed(c.c)
	}
	const mib = 1 << 20
	size := func() int64 {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	run("CREATE TABLE big (x BLOB)")
	for range 3 {
		run("INSERT INTO big VALUES (zeroblob(1048576))")
	}
	if got := size(); got >= mib {
		t.Fatalf("3 MiB were checkpointed, file of %d bytes: fewer than %d pages", got, checkpointPages)
	}
	for range 3 {
		run("INSERT INTO big VALUES (zeroblob(1048576))")
	}
	for late := time.Now().Add(time.Minute); size() < 4*mib; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("after 6 MiB the database file has %d bytes", size())
		}
	}
}

// A checkpoint writes page 1 as SQLite has it in its cache, with an older counter of commits. The newest counter is
// written again.
func TestACheckpointKeepsTheCounterOfCommits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	c := &conn{dsn: dsn(path, tempStoreInMemory)}
	if err := c.openFile(); err != nil {
		t.Fatal(err)
	}
	run := func(sql string) {
		t.Helper()
		if err := c.run(&db.Call{Stmt: &db.Stmt{SQL: sql}}); err != nil {
			t.Fatal(err)
		}
	}
	run("CREATE TABLE small (x BLOB)")
	if err := c.Close(t.Context()); err != nil { // page 1 is in the database file
		t.Fatal(err)
	}
	d, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if err := c.openFile(); err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	run("CREATE TABLE big (x BLOB)") // writes page 1 to the log
	if err := d.markOpen("app", 6); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	checkpoints, err := newCheckpointer(path, func() { d.checkpointed(); close(done) })
	if err != nil {
		t.Fatal(err)
	}
	defer checkpoints.close()
	d.committed(7)
	checkpoints.due <- struct{}{}
	<-done
	var b [markSize]byte
	if _, err := d.f.ReadAt(b[:], markAt); err != nil {
		t.Fatal(err)
	}
	if m := decodeMark(b, d.inode); !m.open || m.batch != 7 {
		t.Errorf("after a checkpoint the counter is %+v, want 7", m)
	}
}
