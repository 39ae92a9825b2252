package sqlite

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store/sqldb/db"
)

// The committer writes fewer pages than SQLite's own limit, so that none of its commits runs a checkpoint. The
// checkpointer copies the pages to the database file.
func TestPagesAreCheckpointedOutsideOfCommits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	c := &conn{dsn: dsn(path, memory)}
	if err := c.openFile(); err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	checkpoints, err := newCheckpointer(path)
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
