package cli_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// do runs one statement as the server's superuser.
func (s *server) do(statement string, args ...any) {
	s.t.Helper()
	c, err := pgx.Connect(s.t.Context(), s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close(s.t.Context())
	if _, err := c.Exec(s.t.Context(), statement, args...); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

// requirePassword makes the server require the password of a role.
func (s *server) requirePassword(role string) {
	s.t.Helper()
	c, err := pgx.Connect(s.t.Context(), s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close(s.t.Context())
	var rules string
	if err := c.QueryRow(s.t.Context(), "SHOW hba_file").Scan(&rules); err != nil {
		s.t.Fatal(err)
	}
	all, err := os.ReadFile(rules)
	if err == nil {
		err = os.WriteFile(rules, append([]byte("host all "+role+" all scram-sha-256\n"), all...), 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.do("SELECT pg_reload_conf()")
}

// An app that waits for its database is alive and not ready. The password of the database's role then changes twice
// while the app runs, and its connections end. The app refuses requests until a file has the new password: first the
// password file, then the file with the URL. Then it serves again without a restart, and no acknowledged run is lost.
// It logs two lines for each outage.
// Another app, which still has the first password, exits with status 1 after 2 s; the default is 5 minutes.
func TestARotatedPasswordIsReadByARunningApp(t *testing.T) {
	t.Parallel()
	db := ownPostgres(t)
	db.do("CREATE ROLE rotated LOGIN SUPERUSER PASSWORD 'one'")
	db.requirePassword("rotated")
	f := newFleet(t)
	pass, url := filepath.Join(f.dir, "pass"), filepath.Join(f.dir, "url")
	write := func(path, text string) {
		t.Helper()
		err := os.WriteFile(path+".new", []byte(text+"\n"), 0o600)
		if err == nil {
			err = os.Rename(path+".new", path) // the app may read it at any moment
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	with := func(password string) string { return strings.Replace(db.url, "sojourn@", "rotated"+password+"@", 1) }
	write(pass, "*:*:*:*:one")
	write(url, with("")+"&passfile="+pass)
	f.app["SOJOURN_TOKEN"] = "sjn_bootstrap_of_this_test_and_long_enough"
	f.client.token = f.app["SOJOURN_TOKEN"]
	f.app["SOJOURN_DATABASE_URL_FILE"] = url
	write(url, "postgres://rotated@"+address(t)+"/sojourn?sslmode=disable") // where no server listens yet
	p := launch(t, f.dir, f.app, "app")
	p.line(p.err, `database not reachable; waiting`)
	for path, want := range map[string]int{"/healthz": 200, "/up": 200, "/readyz": 503, "/api/workflows": 503} {
		if got, raw, err := f.client.call(t.Context(), http.MethodGet, path, nil); err != nil || got != want {
			t.Errorf("%s while the app waits for its database: %d %s %v, want %d", path, got, raw, err, want)
		}
	}
	write(url, with("")+"&passfile="+pass)
	f.client.up()
	status := func(path string) int {
		t.Helper()
		status, _, err := f.client.call(t.Context(), http.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	logged := func(text string) int {
		lines, _ := p.err.all()
		return strings.Count(strings.Join(lines, "\n"), text)
	}
	kept, at := filepath.Join(f.dir, "kept"), address(t)
	write(kept, "*:*:*:*:one")
	doomed := launch(t, t.TempDir(), env{
		"SOJOURN_DATABASE_URL": with("") + "&passfile=" + kept, "SOJOURN_ADDR": at, "SOJOURN_TOKEN": f.client.token,
		refusedFor: "2s",
	}, "app")
	client{t: t, base: "http://" + at, token: f.client.token}.up()
	rotations := []func(){
		func() { write(pass, "*:*:*:*:two-0") },
		func() { write(url, with(":two-1")) },
	}
	for i, rotate := range rotations {
		f.client.start(fmt.Sprint("before-", i), "nobody.runs.this")
		db.do(fmt.Sprintf("ALTER ROLE rotated PASSWORD 'two-%d'", i))
		db.do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rotated'")
		until(t, "the app is not ready", func() bool { return status("/readyz") == http.StatusServiceUnavailable })
		p.line(p.err, `database refused the credentials`)
		code, raw, err := f.client.call(t.Context(), http.MethodPost, "/api/workflows", map[string]any{"workflow_type": "x"})
		if err != nil || code != http.StatusServiceUnavailable {
			t.Errorf("a start while the password is refused: %d %s %v", code, raw, err)
		}
		if got := status("/healthz"); got != http.StatusOK {
			t.Errorf("liveness while the password is refused: %d", got)
		}
		rotate()
		until(t, "the app is ready again", func() bool { return status("/readyz") == http.StatusOK })
		f.client.start(fmt.Sprint("after-", i), "nobody.runs.this")
		for _, id := range []string{fmt.Sprint("before-", i), fmt.Sprint("after-", i)} {
			if got := f.client.describe(id).Status; got == "" {
				t.Errorf("%s is not there", id)
			}
		}
		if i == 0 {
			if code := doomed.exit(); code != 1 {
				t.Errorf("the app with the former password ended with %d", code)
			}
			doomed.line(doomed.err, `has rejected the credentials of this process for 2s; check the database URL`)
		}
		// An outage is logged in two lines, regardless of the number of requests and loops that fail.
		until(t, "the end of the outage is logged", func() bool { return logged("database available again") == i+1 })
		if n := logged("database unavailable"); n != i+1 {
			t.Errorf("after %d outages: %d lines log a beginning", i+1, n)
		}
	}
	lines, _ := p.err.all()
	for _, l := range lines {
		if strings.Contains(l, "store unavailable") && !strings.Contains(l, "database unavailable") {
			t.Errorf("another line about an outage: %s", l)
		}
	}
	select {
	case <-p.ended:
		t.Error("the app ended")
	default:
	}
}
