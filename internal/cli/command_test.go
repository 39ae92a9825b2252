package cli_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/web"
)

// contains fails the test unless text contains all parts.
func contains(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%s: nothing of %q in:\n%s", what, p, text)
		}
	}
}

func TestWrongUsageExitsWithTwoAndAReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		e    env
		args []string
		want []string
	}{
		{
			"unknown container type",
			env{"SOJOURN_CONTAINER_TYPE": "APPS"},
			nil,
			[]string{"APPS", "SOJOURN_CONTAINER_TYPE", "WORKER_AND_APP"},
		},
		{
			"none beyond loopback",
			env{"SOJOURN_AUTH": "none", "SOJOURN_ADDR": "0.0.0.0:0"},
			[]string{"app"},
			[]string{"auth", "none", "0.0.0.0", "loopback"},
		},
		{"dev beyond loopback", nil, []string{"dev", "--addr", ":0"}, []string{"loopback"}},
		{"unknown command", nil, []string{"serve"}, []string{"serve"}},
		{"unknown flag", nil, []string{"app", "--colour", "red"}, []string{"unknown flag --colour; see sojourn app --help"}},
		{"misspelled flag", nil, []string{"app", "--adr", ":1"}, []string{"unknown flag --adr; did you mean --addr?"}},
		{"flag of another role", nil, []string{"worker", "--addr", "127.0.0.1:0"}, []string{"addr"}},
		{
			"value that is none",
			env{"SOJOURN_WORKER_CONCURRENCY": "many"},
			[]string{"worker"},
			[]string{"many", "worker-concurrency"},
		},
		{"what ran in no session", nil, []string{"sessions", "attempts", ""}, []string{"session ID", "empty"}},
		{"a workflow without an id", nil, []string{"workflow", "describe", ""}, []string{"workflow ID", "empty"}},
		{"a signal without a name", nil, []string{"workflow", "signal", "w", ""}, []string{"signal name", "empty"}},
		{"a build of no queue", nil, []string{"queues", "drain", "", "b1"}, []string{"queue name", "empty"}},
		{"roles without any", nil, []string{"token", "roles", "abc"}, []string{"one or more roles"}},
		{"revoke without an id", nil, []string{"token", "revoke"}, []string{"requires a token ID"}},
		{"unknown scenario", nil, []string{"bench", "P99"}, []string{"P99"}},
		{"unknown runtime", nil, []string{"bench", "sandbox", "--runtime", "perl"}, []string{"perl"}},
		{"conformance of nothing", nil, []string{"conformance"}, []string{"URL of a server"}},
		{"conformance of no server", nil, []string{"conformance", "localhost:7700"}, []string{"localhost:7700", "http://"}},
		{
			"a part there is not", nil,
			[]string{"conformance", "http://127.0.0.1:1", "--only", "mine"},
			[]string{"mine", "contract"},
		},
		{"a filter that is none", nil, []string{"conformance", "http://127.0.0.1:1", "--filter", "("}, []string{"--filter"}},
		{
			"no such case", nil,
			[]string{"conformance", "http://127.0.0.1:1", "--filter", "nothing-like-it"},
			[]string{"--list"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, out, err := run(t, t.TempDir(), c.e, c.args...)
			if code != 2 || out != "" {
				t.Errorf("exit %d with output %q, want 2 and none", code, out)
			}
			contains(t, "stderr", err, append(c.want, "sojourn:")...)
		})
	}
}

func TestUnknownVariablesStopTheProcess(t *testing.T) {
	t.Parallel()
	e := env{
		"SOJOURN_WORKER_CONCURENCY": "3", "SOJOURN_SERVICE_HOST": "10.0.0.1", "SOJOURN_PORT_7700_TCP": "tcp://10.0.0.1:7700",
	}
	for _, command := range []string{"config", "app"} {
		code, _, err := run(t, t.TempDir(), e, command)
		if code != 2 {
			t.Errorf("%s: exit %d, want 2", command, code)
		}
		contains(t, command, err, "SOJOURN_WORKER_CONCURENCY", "SOJOURN_WORKER_CONCURRENCY", "--ignore-unknown-settings")
	}
	code, _, err := run(t, t.TempDir(), e, "config", "--ignore-unknown-settings")
	if code != 0 {
		t.Errorf("with --ignore-unknown-settings: exit %d", code)
	}
	contains(t, "config", err, "SOJOURN_WORKER_CONCURENCY", "SOJOURN_WORKER_CONCURRENCY")
	if strings.Contains(err, "SERVICE_HOST") || strings.Contains(err, "PORT_7700") {
		t.Errorf("what Kubernetes sets is reported:\n%s", err)
	}
	p := launch(t, t.TempDir(), e.with(env{"SOJOURN_ADDR": "127.0.0.1:0"}), "app", "--ignore-unknown-settings")
	p.line(p.err, `"level":"warn".*SOJOURN_WORKER_CONCURENCY`)
}

func TestConfigShowsEveryValueWithItsSource(t *testing.T) {
	t.Parallel()
	e := env{
		"SOJOURN_TOKEN": "sjn_secret_secret", "SOJOURN_QUEUES": "fast,slow",
		"SOJOURN_DATABASE_URL": "postgres://me:hunter2@db/x",
	}
	code, out, err := run(t, t.TempDir(), e, "config", "--session-idle", "10m")
	if code != 0 || err != "" {
		t.Errorf("exit %d: %s", code, err)
	}
	lines := map[string]string{}
	for text := range strings.Lines(out) {
		if f := strings.Fields(text); len(f) > 0 {
			lines[f[0]] = text
		}
	}
	for name, parts := range map[string][]string{
		"session-idle": {"10m", "--session-idle"}, "queues": {"fast,slow", "SOJOURN_QUEUES"},
		"addr":         {"127.0.0.1:7700", "default"},
		"database-url": {"postgres://me", "@db/x", "SOJOURN_DATABASE_URL"}, "token": {"SOJOURN_TOKEN"},
		"attempt-lease": {"30s", "default"},
	} {
		contains(t, name, lines[name], parts...)
	}
	if strings.Contains(out, "hunter2") || strings.Contains(out, "sjn_secret_secret") {
		t.Errorf("secrets are shown:\n%s", out)
	}
	code, out, err = run(t, t.TempDir(), env{"SOJOURN_AUTH": "perhaps"}, "config")
	contains(t, "config that is wrong", out, "perhaps")
	contains(t, "config that is wrong", err, "perhaps", "token, none")
	if code != 2 {
		t.Errorf("exit %d, want 2", code)
	}
}

func TestVersionNamesTheRelease(t *testing.T) {
	t.Parallel()
	code, out, _ := run(t, t.TempDir(), env{"SOJOURN_RELEASE": "9.8.7"}, "version")
	if code != 0 || !strings.HasPrefix(out, "sojourn 9.8.7 (from SOJOURN_RELEASE), go") {
		t.Errorf("exit %d: %s", code, out)
	}
}

func TestAppLogsItsAddress(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"APP", "WORKER_AND_APP"} {
		p := launch(t, t.TempDir(), env{"SOJOURN_ADDR": "127.0.0.1:0", "SOJOURN_CONTAINER_TYPE": role})
		p.line(p.err, `http://127\.0\.0\.1:[1-9].*app started`)
	}
}

func TestOneFileHasOneProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := env{"SOJOURN_ADDR": "127.0.0.1:0"}
	code, out, err := run(t, dir, nil, "migrate")
	if code != 0 {
		t.Fatalf("migrate: exit %d: %s", code, err)
	}
	contains(t, "migrate", out, "migrated", "sojourn.db")
	p := launch(t, dir, e, "app")
	p.line(p.err, `app started`)
	holder := "process " + strconv.Itoa(p.cmd.Process.Pid)
	for _, args := range [][]string{{"app"}, {"migrate"}, {"dev", "--addr", "127.0.0.1:0"}} {
		code, out, err := run(t, dir, env{}, args...)
		if code != 1 || out != "" {
			t.Errorf("%s beside an app: exit %d, output %q", args[0], code, out)
		}
		contains(t, args[0]+" next to an app", err, holder, "sojourn.db")
	}
	code, out, err = run(t, dir, nil, "doctor")
	if code != 0 && web.Built() { // doctor reports a binary without the dashboard as a failure
		t.Errorf("doctor beside an app: exit %d: %s", code, err)
	}
	contains(
		t, "doctor", out,
		"ok   release", "1.0.0", "ok   data directory", dir, "ok   database", holder, "ok   machine",
	)
	p.kill()
	// the killed process no longer holds the lock of the database
	if code, _, err = run(t, dir, nil, "migrate"); code != 0 {
		t.Errorf("migrate after a crash: exit %d: %s", code, err)
	}
}

func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for url, why := range map[string]string{
		"sqlite:" + dir: dir, // a directory is no database
		"postgres://127.0.0.1:1/x?sslmode=disable": "refused",
	} {
		code, out, err := run(t, t.TempDir(), env{"SOJOURN_DATABASE_URL": url}, "doctor")
		if code != 1 || !strings.Contains(err, "checks failed") {
			t.Errorf("exit %d: %s", code, err)
		}
		contains(t, "doctor", out, "FAIL database", why)
	}
}

// doctor shows the last jump of the clock that the app in the settings detected.
func TestDoctorShowsAJumpOfTheClock(t *testing.T) {
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "test.db")
	clock := apptest.NewClock(t, database)
	a := apptest.Start(t, apptest.Options{Database: database, Change: func(o *app.Options) { clock.Change(&o.Options) }})
	e := env{"SOJOURN_APP_URL": a.URL()}
	_, out, _ := run(t, t.TempDir(), e, "doctor")
	contains(t, "doctor before a jump", out, "ok   clock", "no jump since the start of app")
	clock.Set(-2 * time.Hour)
	jumped := func() bool {
		_, raw, err := client{t: t, base: a.URL()}.call(t.Context(), http.MethodGet, "/api/sojourn/overview", nil)
		return err == nil && strings.Contains(string(raw), `"clock_jump":`)
	}
	for end := time.Now().Add(time.Minute); !jumped(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the app found no jump")
		}
		if _, err := a.Store().Now(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_, out, _ = run(t, t.TempDir(), e, "doctor")
	contains(t, "doctor after a jump", out, "ok   clock", "the database's clock went back by 2h0m", "follow it", "keep their times")
}

func TestMigrateAndDoctorKnowPostgres(t *testing.T) {
	t.Parallel()
	e := env{"SOJOURN_DATABASE_URL": apptest.EmptyPostgres(t)}
	for range 2 { // the second time there is nothing to do
		if code, out, err := run(t, t.TempDir(), e, "migrate"); code != 0 || !strings.Contains(out, "migrated postgres://") {
			t.Errorf("exit %d: %s%s", code, out, err)
		}
	}
	code, out, _ := run(t, t.TempDir(), e, "doctor")
	if code != 0 && web.Built() {
		t.Errorf("doctor: exit %d", code)
	}
	contains(t, "doctor", out, "ok   database", "postgres://", fmt.Sprint("schema ", latestSchema(t)), "fsync ",
		"synchronous_commit ", "full_page_writes ")
	e["SOJOURN_DATABASE_URL"] += map[bool]string{true: "&", false: "?"}[strings.Contains(e["SOJOURN_DATABASE_URL"], "?")] +
		"target_session_attrs=read-write"
	_, out, _ = run(t, t.TempDir(), e, "doctor")
	contains(t, "doctor with target_session_attrs=read-write", out, "ok   database", fmt.Sprint("schema ", latestSchema(t)))
}

// latestSchema is the version of this source's last migration.
func latestSchema(t *testing.T) int {
	t.Helper()
	n, err := schemaHere()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func schemaHere() (int, error) {
	all, err := filepath.Glob("../../app/store/sqlite/migrations/*.sql")
	if err == nil && len(all) == 0 {
		err = errors.New("no migrations are here")
	}
	return len(all) + 1, err // one migration is written in Go, not in SQL
}

func TestDoctorChangesNothing(t *testing.T) {
	t.Parallel()
	files := func(dir string) map[string]string {
		all := map[string]string{}
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			raw, err := os.ReadFile(path)
			all[path] = string(raw)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	dir := t.TempDir()
	_, out, _ := run(t, dir, nil, "doctor")
	contains(
		t, "doctor before anything", out, "ok   database",
		fmt.Sprint("empty; the first start creates schema ", latestSchema(t)), "ok   data directory", "created at the first start",
	)
	if left := files(dir); len(left) > 0 {
		t.Errorf("the doctor left %v", left)
	}
	handlers := t.TempDir()
	for name, text := range map[string]string{
		"greet.mjs": "export default () => 1;\n", "package.json": `{"dependencies": {"lib": "file:../lib"}}`,
	} {
		if err := os.WriteFile(filepath.Join(handlers, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out, _ := run(t, dir, env{"SOJOURN_HANDLERS": handlers, "SOJOURN_ISOLATION_MIN_LEVEL": "none"}, "doctor")
	contains(t, "doctor of handlers", out, "FAIL node packages", "package.json: installation failed: ../lib is outside")
	if left := files(dir); code == 0 || len(left) > 0 {
		t.Errorf("the doctor of handlers: exit %d, left %v", code, left)
	}
	if code, _, err := run(t, dir, nil, "migrate"); code != 0 {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, ".sojourn", "sojourn.db"))
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[int]string{
		1: "schema 1; the next start", latestSchema(t): "ok   database", 99: "FAIL database",
	} {
		if _, err := db.Exec("DELETE FROM goose_db_version WHERE version_id > 1"); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (?, 1)", version); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			t.Fatal(err)
		}
		before := files(dir)
		_, out, _ = run(t, dir, nil, "doctor")
		contains(t, "doctor", out, want)
		if after := files(dir); !maps.Equal(before, after) {
			t.Errorf("the doctor changed files: %d before, %d after", len(before), len(after))
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestDoctorLeavesAnEmptyPostgresEmpty(t *testing.T) {
	t.Parallel()
	url := apptest.EmptyPostgres(t)
	_, out, _ := run(t, t.TempDir(), env{"SOJOURN_DATABASE_URL": url}, "doctor")
	contains(t, "doctor", out, "ok   database", fmt.Sprint("empty; the first start creates schema ", latestSchema(t)))
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n int
	if err := db.QueryRow("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&n); err != nil || n != 0 {
		t.Errorf("the doctor made %d tables (%v)", n, err)
	}
}

func TestTokensAreMadeListedAndRevoked(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), address(t)
	p := launch(t, dir, env{"SOJOURN_ADDR": addr}, "app")
	p.line(p.err, `app started`)
	e := env{"SOJOURN_APP_URL": "http://" + addr} // with the token that the app stores in their common data directory
	code, out, err := run(t, dir, e, "token", "create", "--name", "ci", "--role", "viewer", "--lasts", "1h")
	if code != 0 || !strings.HasPrefix(out, "sjn_") || strings.ContainsAny(out, " \n") {
		t.Fatalf("create: exit %d: %q %s", code, out, err)
	}
	id := strings.Split(out, "_")[1]
	made := client{t: t, base: "http://" + addr, token: out}
	try := func(method, path string, body any) int {
		t.Helper()
		status, _, err := made.call(t.Context(), method, path, body)
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	if got := try(http.MethodGet, "/api/workflows", nil); got != 200 {
		t.Errorf("a viewer's token lists workflows: %d", got)
	}
	if got := try(http.MethodPost, "/api/workflows", map[string]any{"workflow_type": "one"}); got != 403 {
		t.Errorf("a viewer's token starts a workflow: %d", got)
	}
	code, out, err = run(t, dir, e, "token", "list")
	if code != 0 {
		t.Errorf("list: exit %d: %s", code, err)
	}
	contains(t, "list", out, id, "ci", "viewer", "active", "LAST USED")
	until(t, "the list says when the token was used", func() bool {
		_, out, _ := run(t, dir, e, "token", "list", "--json")
		return strings.Contains(out, `"last_used_at": "20`)
	})
	if strings.Contains(out, strings.Split(made.token, "_")[2]) {
		t.Error("list shows a secret")
	}
	if code, out, err = run(t, dir, e, "token", "roles", id, "writer", "worker"); code != 0 ||
		!strings.Contains(out, id+" has the roles writer, worker") {
		t.Errorf("roles: exit %d: %s%s", code, out, err)
	}
	if got := try(http.MethodPost, "/api/workflows", map[string]any{"workflow_type": "one"}); got != 201 {
		t.Errorf("the same token, a writer's now, starts a workflow: %d", got)
	}
	if code, out, err = run(t, dir, e, "token", "revoke", id); code != 0 || !strings.Contains(out, "revoked "+id) {
		t.Errorf("revoke: exit %d: %s%s", code, out, err)
	}
	if got := try(http.MethodGet, "/api/workflows", nil); got != 401 {
		t.Errorf("a revoked token lists workflows: %d", got)
	}
	_, out, _ = run(t, dir, e, "token", "list")
	contains(t, "list after revoking", out, id, "revoked")

	code, _, err = run(t, dir, e, "token", "revoke", "nosuchtoken")
	contains(t, "revoke of nothing", err, "nosuchtoken")
	if code != 1 {
		t.Errorf("revoke of nothing: exit %d", code)
	}
	code, _, err = run(t, dir, e.with(env{"SOJOURN_TOKEN": "sjn_wrong_wrong"}), "token", "list")
	contains(t, "a wrong token", err, "unauthorized")
	if code != 1 {
		t.Errorf("a wrong token: exit %d", code)
	}
	code, _, err = run(t, dir, env{"SOJOURN_APP_URL": "http://" + address(t)}, "token", "list")
	contains(t, "no app", err, "refused")
	if code != 1 {
		t.Errorf("no app: exit %d", code)
	}
	code, _, err = run(t, dir, e, "token", "create", "--role", "emperor")
	contains(t, "a role that is none", err, "roles", "operator")
	if code != 1 {
		t.Errorf("a role that is none: exit %d", code)
	}
}

func TestWorkflowsAreListedDebuggedArchivedAndMoved(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), address(t)
	p := launch(t, dir, env{"SOJOURN_ADDR": addr}, "app")
	p.line(p.err, `app started`)
	e := env{"SOJOURN_APP_URL": "http://" + addr}
	try := func(exit int, want string, args ...string) string {
		t.Helper()
		code, out, err := run(t, dir, e, args...)
		if code != exit || !strings.Contains(out+err, want) {
			t.Fatalf("%v: exit %d: %q %s, want %d and %q", args, code, out, err, exit, want)
		}
		return out
	}
	token := try(0, "sjn_", "token", "create", "--name", "ci", "--role", "admin")
	c := client{t: t, base: "http://" + addr, token: strings.TrimSpace(token)}
	start := func(id string, amount int) {
		t.Helper()
		status, _, err := c.call(t.Context(), http.MethodPost, "/api/workflows", map[string]any{
			"workflow_id": id, "workflow_type": "order", "search_attributes": map[string]any{"Amount": amount},
		})
		if err != nil || status != 201 {
			t.Fatalf("start: %d %v", status, err)
		}
	}
	try(0, "created Amount", "search-attributes", "create", "Amount", "int")
	try(1, "already registered", "search-attributes", "create", "Amount", "int")
	try(0, "StartTime", "search-attributes", "list")
	start("small", 1)
	start("large", 100)
	if out := try(0, "large", "workflow", "list", "--filter", "Amount > 50 AND WorkflowType = 'order'"); strings.Contains(
		out, "small",
	) {
		t.Errorf("listed %s", out)
	}
	try(1, "at character 10", "workflow", "list", "--filter", "Amount > 'x'")
	try(0, `no live worker is polling queue "default"`, "workflow", "debug", "large")
	try(1, "is open", "workflow", "archive", "large")
	try(2, "requires a workflow ID (arguments given: 0)", "workflow", "archive")
	try(2, "requires an awakeable ID (arguments given: 2)", "awakeable", "complete", "ID", "true")
	if status, _, err := c.call(
		t.Context(), http.MethodPost, "/api/workflows/large/terminate", map[string]any{},
	); err != nil || status != 200 {
		t.Fatalf("terminate: %d %v", status, err)
	}
	try(0, "", "workflow", "export", "large", "-o", "bundle.json")
	try(0, "import_not_needed large", "workflow", "import", "bundle.json")
	try(0, "archived", "workflow", "archive", "large", "--reason", "done")
	try(1, "is open", "workflow", "delete", "small")
	try(0, "deleted large", "workflow", "delete", "large", "--reason", "erasure request")
	try(1, "workflow large not found", "workflow", "delete", "large")
	try(0, "deleted Amount", "search-attributes", "delete", "Amount")
}

func TestQueuesAreShownRolledOutAndLimited(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	c := client{t: t, base: a.URL()}
	c.must(
		http.MethodPost, "/api/workflows", map[string]any{"workflow_id": "f", "workflow_type": "wf", "task_queue": "q"}, nil,
	)
	do := func(want int, args ...string) string {
		t.Helper()
		code, out, err := run(t, t.TempDir(), env{"SOJOURN_APP_URL": a.URL()}, append([]string{"queues"}, args...)...)
		if code != want {
			t.Fatalf("queues %v: exit %d\n%s%s", args, code, out, err)
		}
		return out + err
	}
	contains(t, "queues", do(0), "q", "unlimited", "any build")
	contains(t, "promote", do(0, "promote", "q", "v2"), "build v2 of queue q is active, new runs are pinned to it")
	contains(t, "drain", do(0, "drain", "q", "v1"), "build v1 of queue q is draining")
	contains(t, "drain of the others", do(0, "drain", "q", "--unversioned"), "build (none) of queue q is draining")
	contains(t, "resume", do(0, "resume", "q", "v1"), "build v1 of queue q is active")
	limits := do(0, "limit", "q", "--activity-leases", "4", "--workflow-per-minute", "60")
	contains(t, "limit", limits, "4", "60", "no limit")
	contains(t, "limit of one more", do(0, "limit", "q", "--activity-leases", "none"), "60")
	contains(t, "limit of the namespace", do(0, "limit", "--activity-per-minute", "9"), "9")
	contains(t, "describe", do(0, "describe", "q"), "v2", "no_workers", "0 of 60", "accepting")
	contains(t, "a queue there is not", do(1, "describe", "nowhere"), "nowhere")
	contains(t, "drain of nothing", do(2, "drain", "q"), "--unversioned")
	contains(t, "a budget that is none", do(2, "limit", "q", "--activity-leases", "0"), "above 0")
}
