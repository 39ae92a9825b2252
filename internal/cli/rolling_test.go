package cli_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// newerMigration is the additional migration of the newer build, always of the same length.
func newerMigration(version int, release string, minReader int) []byte {
	return fmt.Appendf(nil, "-- +goose Up\nALTER TABLE audit ADD COLUMN newer TEXT;\n%-160s\n", fmt.Sprintf(
		"INSERT INTO schema_versions (version, release, min_reader) VALUES (%d, '%s', %d);", version, release, minReader,
	))
}

// newest is this program with one more migration in both databases, which names no release yet. It is built once for
// all tests, because all packages that import the databases must be compiled for it.
var newest = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "sojourn-newest-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	more, overlay := filepath.Join(dir, "newer.sql"), filepath.Join(dir, "overlay.json")
	version, err := schemaHere()
	if err != nil {
		return nil, err
	}
	replaced := map[string]string{}
	for _, database := range []string{"sqlite", "postgres"} {
		at, err := filepath.Abs(filepath.Join(
			"..", "..", "app", "store", database, "migrations", fmt.Sprintf("%05d_newer.sql", version+1),
		))
		if err != nil {
			return nil, err
		}
		replaced[at] = more
	}
	raw, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return nil, err
	}
	err = errors.Join(os.WriteFile(more, newerMigration(0, "", 0), 0o600), os.WriteFile(overlay, raw, 0o600))
	if err != nil {
		return nil, err
	}
	binary := filepath.Join(dir, "sojourn")
	build := exec.Command("go", "test", "-c", "-ldflags", "-s -w", "-overlay", overlay, "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build: %w\n%s", err, out)
	}
	return os.ReadFile(binary)
})

// newerBuild returns a build of the program with one more migration in both databases, which sets a release and the
// minimum schema version of binaries that may serve the result. The migration is patched into the binary.
func newerBuild(t *testing.T, release string, minReader int) (binary string) {
	t.Helper()
	built, err := newest()
	if err != nil {
		t.Fatal(err)
	}
	nameless, named := newerMigration(0, "", 0), newerMigration(latestSchema(t)+1, release, minReader)
	if len(named) != len(nameless) || !bytes.Contains(built, nameless) {
		t.Fatalf("the newer build has no room for %q", named)
	}
	binary = filepath.Join(t.TempDir(), "sojourn")
	syscall.ForkLock.RLock() // a process started meanwhile would inherit the file open for writing (ETXTBSY)
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(binary, bytes.ReplaceAll(built, nameless, named), 0o700); err != nil {
		t.Fatal(err)
	}
	return binary
}

// schemaOf returns the newest migration of a database.
func schemaOf(t *testing.T, driver, source string) (n int) {
	t.Helper()
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT max(version_id) FROM goose_db_version").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Two builds use one database: the newer migrates it while the older serves. If the migration allows it, the older one
// continues and can be restarted, and both process tasks of each other. Otherwise the running older app ends and a
// starting one fails, each with exit code 1 and both versions in the message.
func TestARollingUpgradeWithASchemaChange(t *testing.T) {
	t.Parallel()
	known := latestSchema(t)
	versions := fmt.Sprintf("the database has schema %d of release 0.2.0; this is release 0.1.0 with schema %d", known+1, known)
	t.Run("the older may stay", func(t *testing.T) {
		database := apptest.Postgres(t)
		e := env{"SOJOURN_DATABASE_URL": database, "SOJOURN_TOKEN": "rolling"}
		newer := newerBuild(t, "0.2.0", known)
		app := func(binary string) (*process, client) {
			at := address(t)
			p := launchAs(t, binary, t.TempDir(), e.with(env{"SOJOURN_ADDR": at}), "app")
			c := client{t: t, base: "http://" + at, token: "rolling"}
			c.up()
			return p, c
		}
		first, old := app("")
		second, next := app(newer)
		if got := schemaOf(t, "pgx", database); got != known+1 {
			t.Fatalf("schema %d, want %d", got, known+1)
		}
		launch(t, t.TempDir(), e.with(env{"SOJOURN_APP_URL": old.base, "SOJOURN_WORKER_ID": "w"}), "worker")
		for i, c := range []client{old, next} { // the worker is connected to the older app, and both receive tasks
			id := fmt.Sprint("one-", i)
			a := c.start(id, "one", "v")
			old.completed(id, a.RunID)
		}
		first.terminate()
		third, restarted := app("") // the older one, restarted on the schema of the newer one
		next.start("two", "nobody has this", "v")
		restarted.must(http.MethodPost, "/api/workflows/two/terminate", map[string]any{"reason": "seen"}, nil)
		if v := next.describe("two"); !v.Terminal {
			t.Errorf("the older ended a run of the newer, which sees %s", v.Status)
		}
		if got := schemaOf(t, "pgx", database); got != known+1 {
			t.Errorf("schema %d, want %d", got, known+1)
		}
		for _, p := range []*process{second, third} {
			if code := p.terminate(); code != 0 {
				t.Errorf("exit %d", code)
			}
		}
	})
	t.Run("the older may not stay", func(t *testing.T) {
		database := apptest.Postgres(t)
		e := env{"SOJOURN_DATABASE_URL": database, "SOJOURN_TOKEN": "rolling"}
		at := address(t)
		old := launch(t, t.TempDir(), e.with(env{"SOJOURN_ADDR": at}), "app")
		client{t: t, base: "http://" + at, token: "rolling"}.up()
		newer := newerBuild(t, "0.2.0", known+1)
		if p := launchAs(t, newer, t.TempDir(), e, "migrate"); p.exit() != 0 {
			t.Fatal(p)
		}
		if code := old.exit(); code != 1 {
			t.Errorf("exit %d", code)
		}
		contains(t, "the app that ran", old.String(), versions)
		for _, command := range []string{"app", "migrate"} {
			code, out, err := run(t, t.TempDir(), e, command)
			if code != 1 {
				t.Errorf("%s: exit %d", command, code)
			}
			contains(t, command, out+err, versions, fmt.Sprintf("schema %d needs a release with schema %d or newer", known+1, known+1))
		}
		if code, out, _ := run(t, t.TempDir(), e, "doctor"); code != 1 || !strings.Contains(out, "FAIL database") {
			t.Errorf("doctor: exit %d\n%s", code, out)
		}

		dir := t.TempDir()
		if p := launchAs(t, newer, dir, nil, "migrate"); p.exit() != 0 {
			t.Fatal(p)
		}
		code, out, err := run(t, dir, nil, "app")
		if code != 1 {
			t.Errorf("on SQLite: exit %d", code)
		}
		contains(t, "on SQLite", out+err, versions)
	})
}
