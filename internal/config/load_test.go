package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// load reads settings as a subcommand of that role would.
func load(t *testing.T, role Role, args, environ []string, path string) (*Config, []Source, []Warning, error) {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	Register(flags, role)
	if err := flags.Parse(args); err != nil {
		t.Fatalf("flags %v: %v", args, err)
	}
	return Load(flags, environ, path)
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sojourn.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func from(sources []Source, name string) Source {
	return sources[slices.IndexFunc(sources, func(s Source) bool { return s.Name == name })]
}

func TestDefaultsAreTheOnesProgramsRelyOn(t *testing.T) {
	c, sources, warnings, err := load(t, Any, nil, nil, "")
	if err != nil || len(warnings) != 0 {
		t.Fatalf("got %v, warnings %v", err, warnings)
	}
	want := &Config{
		Role: Both, ContainerType: ContainerWorkerAndApp, Addr: "127.0.0.1:7700", DatabaseURL: "sqlite:.sojourn/sojourn.db",
		DataDir: "./.sojourn", Auth: AuthToken, AppURLs: []string{"http://127.0.0.1:7700"}, Link: "auto", WorkerID: "local",
		WorkerMaxSessions: "auto", StickyCacheSize: 1000, Queues: []string{"default"}, Namespace: "default",
		Capabilities: []string{}, Resources: []string{}, TrustedProxies: []string{}, ExecutorRead: []string{},
		ExecutorWrite: []string{}, Egress: "auto", Packages: "install", ExecutorUIDs: "auto",
		ExecutorCgroup: "auto", EgressAllow: []string{},
		AttemptLease: 30 * time.Second,
		SessionLease: 30 * time.Second, SessionBuffer: 5 * time.Second,
		SessionIdle: 5 * time.Minute, SnapshotMaxAge: time.Hour, SnapshotTimeout: 30 * time.Second,
		SessionCleanup: 5 * time.Minute,
		ActivityLogAge: 168 * time.Hour, AuditLogAge: 8760 * time.Hour, Isolation: "auto", IsolationMin: "auto",
		SocketTransports: []string{"websocket", "polling"}, MaxBlamed: 3, MaxPolls: 10_000,
		QuotaOpenRuns: 1_000_000, QuotaStarts: 20_000, QuotaBytes: 1 << 40, QuotaSchedules: 100_000,
		MaxSockets: 5000, PostgresPool: 10,
		DrainTimeout: 25 * time.Second,
		LogLevel:     "info", LogFormat: "console", Metrics: true,
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	for _, s := range sources {
		if s.From != "default" {
			t.Errorf("%s comes from %s, want default", s.Name, s.From)
		}
	}
	if got := from(sources, "database-url").Value; got != "sqlite:.sojourn/sojourn.db" {
		t.Errorf("database-url is shown as %q", got)
	}
}

func TestFlagGoesBeforeVariableBeforeFileBeforeDefault(t *testing.T) {
	path := writeFile(t, "addr: 127.0.0.1:1\nnamespace: of-file\nqueues: [a, b]\nsession-idle: 400\nmetrics: false\n")
	environ := []string{"SOJOURN_ADDR=127.0.0.1:2", "SOJOURN_NAMESPACE=of-env", "SOJOURN_TOKEN="}
	c, sources, warnings, err := load(t, Dev, []string{"--addr", "127.0.0.1:3"}, environ, path)
	if err != nil || len(warnings) != 0 {
		t.Fatalf("got %v, warnings %v", err, warnings)
	}
	if c.Addr != "127.0.0.1:3" || c.Namespace != "of-env" || !slices.Equal(c.Queues, []string{"a", "b"}) ||
		c.SessionIdle != 400*time.Second || c.Metrics || c.LogLevel != "info" {
		t.Errorf("got %+v", c)
	}
	for name, want := range map[string]string{
		"addr": "--addr", "namespace": "SOJOURN_NAMESPACE", "queues": "file " + path, "log-level": "default",
		"token": "default",
	} {
		if got := from(sources, name).From; got != want {
			t.Errorf("%s comes from %q, want %q", name, got, want)
		}
	}
}

// A renamed setting is read under its former name from every source, with one warning for each.
func TestARenamedSettingIsReadUnderItsFormerName(t *testing.T) {
	path := writeFile(t, "worker-kept-runs: 7\n")
	for _, c := range []struct {
		args, environ []string
		path          string
		size          int
		from          string
		warnings      []Warning
	}{
		{args: []string{"--worker-kept-runs", "5"}, size: 5, from: "--worker-kept-runs", warnings: []Warning{
			"setting worker-kept-runs (--worker-kept-runs) is deprecated and will be removed in the next release; " +
				"use sticky-cache-size",
		}},
		{environ: []string{"SOJOURN_WORKER_KEPT_RUNS=6"}, size: 6, from: "SOJOURN_WORKER_KEPT_RUNS", warnings: []Warning{
			"setting worker-kept-runs (SOJOURN_WORKER_KEPT_RUNS) is deprecated and will be removed in the next release; " +
				"use sticky-cache-size",
		}},
		{path: path, size: 7, from: "file " + path, warnings: []Warning{
			Warning("setting worker-kept-runs (file " + path + ") is deprecated and will be removed in the next release; " +
				"use sticky-cache-size"),
		}},
		{
			args: []string{"--sticky-cache-size", "8"}, environ: []string{"SOJOURN_WORKER_KEPT_RUNS=6"}, size: 8,
			from: "--sticky-cache-size", warnings: []Warning{
				"setting worker-kept-runs (SOJOURN_WORKER_KEPT_RUNS) is deprecated and will be removed in the next release; " +
					"use sticky-cache-size",
			},
		},
		{environ: []string{"SOJOURN_STICKY_CACHE_SIZE=9"}, size: 9, from: "SOJOURN_STICKY_CACHE_SIZE"},
	} {
		got, sources, warnings, err := load(t, Worker, c.args, c.environ, c.path)
		if err != nil || !slices.Equal(warnings, c.warnings) {
			t.Errorf("%v %v %v: got %v, warnings %q", c.args, c.environ, c.path, err, warnings)
			continue
		}
		if source := from(sources, "sticky-cache-size").From; got.StickyCacheSize != c.size || source != c.from {
			t.Errorf("%v %v %v: got %d from %q", c.args, c.environ, c.path, got.StickyCacheSize, source)
		}
	}
	if _, _, _, err := load(t, Worker, nil, []string{"SOJOURN_WORKER_KEPT_RUNS=x"}, ""); err == nil ||
		!strings.Contains(err.Error(), "SOJOURN_WORKER_KEPT_RUNS") {
		t.Errorf("an invalid value under the former name: got %v, want an error that names the variable", err)
	}
}

func TestFileIsNamedByArgumentFlagOrVariable(t *testing.T) {
	path := writeFile(t, "namespace: of-file\n")
	for name, try := range map[string]func() (*Config, []Source, []Warning, error){
		"argument": func() (*Config, []Source, []Warning, error) { return load(t, App, nil, nil, path) },
		"flag":     func() (*Config, []Source, []Warning, error) { return load(t, App, []string{"--config", path}, nil, "") },
		"variable": func() (*Config, []Source, []Warning, error) {
			return load(t, App, nil, []string{"SOJOURN_CONFIG=" + path}, "")
		},
	} {
		c, _, warnings, err := try()
		if err != nil || len(warnings) != 0 || c.Namespace != "of-file" {
			t.Errorf("%s: got %+v, %v, %v", name, c, warnings, err)
		}
	}
	if _, _, _, err := load(t, App, nil, nil, path+".gone"); err == nil || !strings.Contains(err.Error(), path+".gone") {
		t.Errorf("missing file: got %v, want an error that names it", err)
	}
	if _, _, _, err := load(t, App, nil, nil, writeFile(t, "a: [")); err == nil {
		t.Error("a file that is not YAML was taken")
	}
	if _, _, _, err := load(t, App, nil, nil, writeFile(t, "addr: {a: b}\n")); err == nil ||
		!strings.Contains(err.Error(), "addr") {
		t.Errorf("a map for a text: got %v, want an error that names the setting", err)
	}
}

func TestRolesHaveDefaultsAndFlagsOfTheirOwn(t *testing.T) {
	for _, c := range []struct {
		role     Role
		environ  []string
		want     Role
		auth, id string
	}{
		{Dev, nil, Dev, AuthNone, "local"},
		{App, nil, App, AuthToken, ""},
		{Worker, nil, Worker, AuthToken, ""},
		{Worker, []string{"SOJOURN_CONTAINER_TYPE=WORKER_AND_APP"}, Worker, AuthToken, ""}, // a subcommand decides
		{Any, nil, Both, AuthToken, "local"},
		{Any, []string{"SOJOURN_CONTAINER_TYPE=APP"}, App, AuthToken, ""},
		{Any, []string{"SOJOURN_CONTAINER_TYPE=WORKER"}, Worker, AuthToken, ""},
		{Any, []string{"SOJOURN_CONTAINER_TYPE=WORKER", "SOJOURN_WORKER_ID=w7"}, Worker, AuthToken, "w7"},
	} {
		got, _, _, err := load(t, c.role, nil, c.environ, "")
		if err != nil {
			t.Errorf("%q %v: %v", c.role, c.environ, err)
		} else if got.Role != c.want || got.Auth != c.auth || got.WorkerID != c.id {
			t.Errorf(
				"%q %v: got role %q auth %q id %q, want %q %q %q", c.role, c.environ, got.Role, got.Auth, got.WorkerID, c.want,
				c.auth, c.id,
			)
		}
	}
	client := pflag.NewFlagSet("client", pflag.ContinueOnError)
	Register(client, Client)
	if client.Lookup("addr") != nil || client.Lookup("app-url") == nil {
		t.Error("a client has --addr, or no --app-url")
	}
	if c, _, _, err := Load(nil, nil, ""); err != nil || c.Role != Both {
		t.Errorf("without flags: got %+v, %v", c, err)
	}
}

func TestUnknownSettingsStopTheProcessButNotThoseOfKubernetes(t *testing.T) {
	environ := []string{
		"SOJOURN_ADRR=127.0.0.1:1", "SOJOURN_NONSENSE=1", "SOJOURN_SERVICE_HOST=10.0.0.1", "SOJOURN_PORT=tcp://10.0.0.1:7700",
		"SOJOURN_PORT_7700_TCP_ADDR=10.0.0.1", "SOJOURN_APP_SERVICE_PORT_HTTP=1", "SOJOURN_TEST_POSTGRES=x", "PATH=/bin",
		"SOJOURN_QUEUES=q",
	}
	path := writeFile(t, "qeues: [a]\n")
	want := []string{
		"unknown variable SOJOURN_ADRR; did you mean SOJOURN_ADDR?", "unknown variable SOJOURN_NONSENSE",
		"unknown setting qeues in file",
	}
	_, _, _, err := load(t, App, nil, environ, path)
	if err == nil {
		t.Fatal("unknown settings are accepted")
	}
	for _, w := range append(want, "--ignore-unknown-settings") {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in %q", w, err)
		}
	}
	if n := strings.Count(err.Error(), "unknown "); n != len(want) {
		t.Errorf("%d unknown settings are named, want %d: %v", n, len(want), err)
	}
	if _, _, _, err := load(t, App, nil, environ[2:], ""); err != nil {
		t.Errorf("variables that Kubernetes sets: %v", err)
	}
	for name, ignore := range map[string][2][]string{
		"flag":     {{"--ignore-unknown-settings"}, environ},
		"variable": {nil, append([]string{"SOJOURN_IGNORE_UNKNOWN_SETTINGS=true"}, environ...)},
	} {
		c, _, warnings, err := load(t, App, ignore[0], ignore[1], path)
		if err != nil || c.Queues[0] != "q" {
			t.Fatalf("%s: got %+v, %v", name, c, err)
		}
		sameWarnings(t, warnings, want)
	}
}

func sameWarnings(t *testing.T, warnings []Warning, want []string) {
	t.Helper()
	if len(warnings) != len(want) {
		t.Fatalf("got %q, want %d warnings", warnings, len(want))
	}
	for i, w := range want {
		if !strings.HasPrefix(string(warnings[i]), w) {
			t.Errorf("got %q, want %q", warnings[i], w)
		}
	}
}

func TestSecretsNeverLeaveThroughSourcesOrErrors(t *testing.T) {
	environ := []string{
		"SOJOURN_TOKEN=sjn_1_hush", "SOJOURN_DATABASE_URL=postgres://me:hu@sh@db:5432/x?password=hush&sslmode=disable",
	}
	c, sources, _, err := load(t, App, nil, environ, "")
	if err != nil || c.Token != "sjn_1_hush" || !strings.Contains(c.DatabaseURL, "hu@sh") {
		t.Fatalf("got %+v, %v", c, err)
	}
	var out strings.Builder
	if err := Write(&out, sources); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "hush") || strings.Contains(out.String(), "sh@db") {
		t.Errorf("a secret is printed:\n%s", out.String())
	}
	for _, line := range []string{
		"postgres://me:********@db:5432/x?password=********&sslmode=disable", "SOJOURN_TOKEN", "drain-timeout",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q is missing in\n%s", line, out.String())
		}
	}
	_, _, _, err = load(t, App, nil, []string{"SOJOURN_DATABASE_URL=mysql://me:hush@db/x"}, "")
	if err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("got %v, want an error without the password", err)
	}
}

func TestEveryFieldHasALineInTheTableAndTheReverse(t *testing.T) {
	fields := map[string]bool{}
	for f := range reflect.TypeFor[Config]().Fields() {
		if name := f.Tag.Get("koanf"); name != "-" {
			fields[name] = true
		}
	}
	for _, s := range settings {
		if !fields[s.name] {
			t.Errorf("setting %s has no field", s.name)
		}
		if s.help == "" {
			t.Errorf("setting %s has no help", s.name)
		}
		delete(fields, s.name)
	}
	for name := range fields {
		t.Errorf("field %s is no setting", name)
	}
}

// An app warns of a token that is easy to guess. A process that only sends such a token does not.
func TestATokenThatCanBeGuessedIsWarnedOf(t *testing.T) {
	for _, c := range []struct {
		role  Role
		set   string
		warns bool
	}{
		{App, "SOJOURN_TOKEN=short", true},
		{Both, "SOJOURN_TOKEN=fifteen-letters", true},
		{App, "SOJOURN_TOKEN=sixteen-letters-", false},
		{App, "SOJOURN_TOKEN=", false},
		{App, "SOJOURN_TOKEN=short SOJOURN_AUTH=none", false},
		{Dev, "SOJOURN_TOKEN=short", false},
		{Worker, "SOJOURN_TOKEN=short", false},
		{Client, "SOJOURN_TOKEN=short", false},
	} {
		_, _, warnings, err := load(t, c.role, nil, strings.Fields(c.set), "")
		if err != nil || (len(warnings) == 1) != c.warns {
			t.Errorf("%s, %s: got %v, %v", c.role, c.set, warnings, err)
		}
		for _, w := range warnings {
			if strings.Contains(string(w), "short ") || !strings.Contains(string(w), "characters") {
				t.Errorf("%s: %s", c.set, w)
			}
		}
	}
}
