package config

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestSettingsThatCannotWorkAreRefusedByName(t *testing.T) {
	for _, c := range []struct {
		role    Role
		environ string
		want    []string // all texts that the error contains; none: the settings are valid
	}{
		{
			Any, "SOJOURN_CONTAINER_TYPE=APPS", []string{"container-type", `"APPS"`, "SOJOURN_CONTAINER_TYPE", "WORKER_AND_APP"},
		},
		{Any, "SOJOURN_CONTAINER_TYPE=app", []string{"container-type"}},
		{App, "SOJOURN_AUTH=none", nil},
		{App, "SOJOURN_AUTH=none SOJOURN_ADDR=[::1]:7700", nil},
		{App, "SOJOURN_AUTH=none SOJOURN_ADDR=localhost:0", nil},
		{App, "SOJOURN_AUTH=none SOJOURN_ADDR=0.0.0.0:7700", []string{"auth", `"none"`, "loopback", "0.0.0.0:7700"}},
		{App, "SOJOURN_AUTH=none SOJOURN_ADDR=:7700", []string{"loopback"}},
		{App, "SOJOURN_AUTH=none SOJOURN_ADDR=127.example.com:7700", []string{"loopback"}},
		{Dev, "SOJOURN_ADDR=192.168.1.5:7700", []string{"loopback"}},
		{App, "SOJOURN_AUTH=open", []string{"auth", "token, none"}},
		{App, "SOJOURN_ADDR=7700", []string{"addr", "HOST:PORT"}},
		{App, "SOJOURN_ADDR=127.0.0.1:70000", []string{"addr"}},
		{App, "SOJOURN_DATABASE_URL=mysql://x", []string{"database-url", "mysql://x"}},
		{App, "SOJOURN_DATABASE_URL=sqlite:", []string{"database-url"}},
		{App, "SOJOURN_DATABASE_URL=sqlite:x SOJOURN_DATABASE_URL_FILE=/x", []string{"database-url-file", "cannot be combined with database-url"}},
		{App, "SOJOURN_DATABASE_URL=postgresql://db/x", nil},
		{App, "SOJOURN_TLS_CERT=a.crt", []string{"tls-cert", "tls-key"}},
		{App, "SOJOURN_TLS_KEY=a.key", []string{"tls-cert", "tls-key"}},
		{App, "SOJOURN_TLS_CERT=a.crt SOJOURN_TLS_KEY=a.key", nil},
		{App, "SOJOURN_TLS_CLIENT_CA=ca.crt", []string{"tls-client-ca", "over TLS only"}},
		{App, "SOJOURN_TLS_CERT=a.crt SOJOURN_TLS_KEY=a.key SOJOURN_TLS_CLIENT_CA=ca.crt", nil},
		{Worker, "SOJOURN_CLIENT_CERT=w.crt", []string{"client-cert", "client-key"}},
		{Worker, "SOJOURN_CLIENT_KEY=w.key", []string{"client-cert", "client-key"}},
		{Worker, "SOJOURN_CLIENT_CERT=w.crt SOJOURN_CLIENT_KEY=w.key", nil},
		{App, "SOJOURN_SOCKET_TRANSPORTS=carrier-pigeon", []string{"socket-transports", "carrier-pigeon"}},
		{App, "SOJOURN_ATTEMPT_LEASE=-1s", []string{"attempt-lease", `"-1s"`}},
		{App, "SOJOURN_DRAIN_TIMEOUT=soon", []string{"drain-timeout", `"soon"`, "SOJOURN_DRAIN_TIMEOUT"}},
		{App, "SOJOURN_METRICS=perhaps", []string{"metrics", `"perhaps"`}},
		{App, "SOJOURN_LOG_LEVEL=loud SOJOURN_LOG_FORMAT=xml", []string{"log-level", "log-format"}},
		{App, "SOJOURN_POSTGRES_POOL=1", []string{"postgres-pool"}},
		{Worker, "SOJOURN_ADDR=nonsense", nil}, // this role does not use the setting
		{Worker, "SOJOURN_APP_URL=ftp://x", []string{"app-url"}},
		{Worker, "SOJOURN_APP_URL=http://a:7700/,https://b", nil},
		{Worker, "SOJOURN_WORKER_CONCURRENCY=-1", []string{"worker-concurrency", `"-1"`}},
		{Worker, "SOJOURN_WORKER_CONCURRENCY=many", []string{"worker-concurrency", `"many"`}},
		{Worker, "SOJOURN_WORKER_MAX_SESSIONS=0", nil},
		{Worker, "SOJOURN_WORKER_MAX_SESSIONS=auto", nil},
		{Worker, "SOJOURN_WORKER_MAX_SESSIONS=-1", []string{"worker-max-sessions", "auto or a number"}},
		{Worker, "SOJOURN_WORKER_MAX_SESSIONS=many", []string{"worker-max-sessions", "many", "auto or a number"}},
		{Worker, "SOJOURN_WORKER_ID=a/b", []string{"worker-id"}},
		{Worker, "SOJOURN_BUILD_ID=" + strings.Repeat("b", 256), []string{"build-id", "255"}},
		{Worker, "SOJOURN_BUILD_ID=2026-11.3", nil},
		{Worker, "SOJOURN_QUEUES=,", []string{"queues"}},
		{Worker, "SOJOURN_SESSION_BUFFER=30s", []string{"session-buffer", "30s"}},
		{Worker, "SOJOURN_ISOLATION=magic", []string{"isolation", "magic"}},
		{Worker, "SOJOURN_EXECUTOR_MEMORY=-1", []string{"executor-memory", "-1"}},
		{Worker, "SOJOURN_EXECUTOR_UIDS=60600-60999", nil},
		{Worker, "SOJOURN_EXECUTOR_UIDS=none", nil},
		{Worker, "SOJOURN_EXECUTOR_UIDS=0-5", []string{"executor-uids", "0-5", "range of user IDs"}},
		{Worker, "SOJOURN_EXECUTOR_UIDS=700-600", []string{"executor-uids", "700-600"}},
		{Worker, "SOJOURN_EXECUTOR_CGROUP=always", []string{"executor-cgroup", "auto", "none"}},
		{Worker, "SOJOURN_EXECUTOR_UIDS=nobody", []string{"executor-uids", "nobody"}},
		{Worker, "SOJOURN_HANDLER_PACKAGES=yes", []string{"handler-packages", "yes", "scripts"}},
		{Worker, "SOJOURN_EGRESS=advisory", []string{"egress", "advisory", "filtered"}},
		{Worker, "SOJOURN_EGRESS=filtered SOJOURN_ISOLATION=process", []string{"egress", "set isolation to confined"}},
		{Worker, "SOJOURN_EGRESS=none SOJOURN_ISOLATION=none", []string{"egress", "set isolation to confined"}},
		{Worker, "SOJOURN_EGRESS=open SOJOURN_ISOLATION=process", nil},
		{Worker, "SOJOURN_EGRESS=filtered SOJOURN_EGRESS_ALLOW=db:5432,10.0.0.0/8,[::1]:80", nil},
		{Worker, "SOJOURN_EGRESS=open SOJOURN_EGRESS_ALLOW=db", []string{"egress-allow", "egress is open"}},
		{Worker, "SOJOURN_EGRESS_ALLOW=http://db", []string{"egress-allow", "HOST:PORT"}},
		// An idle time must outlast the pause between two renewals of a running attempt; equal is not enough.
		{Worker, "SOJOURN_ATTEMPT_LEASE=10m", []string{"session-idle", "5m", "595 s"}},
		{Worker, "SOJOURN_ATTEMPT_LEASE=30s SOJOURN_SESSION_IDLE=25s", []string{"session-idle", "25 s"}},
		{Worker, "SOJOURN_ATTEMPT_LEASE=30s SOJOURN_SESSION_IDLE=26s", nil},
		// leases below 15 s: half, no buffer
		{Worker, "SOJOURN_ATTEMPT_LEASE=2s SOJOURN_SESSION_LEASE=2s SOJOURN_SESSION_IDLE=3s", nil},
		{Worker, "SOJOURN_ATTEMPT_LEASE=2s SOJOURN_SESSION_IDLE=1s", []string{"session-idle", "1 s"}},
		{App, "SOJOURN_ATTEMPT_LEASE=10m", nil}, // an app holds no sessions
		{Worker, "SOJOURN_SESSION_IDLE=0", []string{"session-idle"}},
	} {
		_, _, _, err := load(t, c.role, nil, strings.Fields(c.environ), "")
		if len(c.want) == 0 {
			if err != nil {
				t.Errorf("%s %s: got %v, want no error", c.role, c.environ, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s %s: got no error, want one with %q", c.role, c.environ, c.want)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s %s: got %q, want it to contain %q", c.role, c.environ, err, w)
			}
		}
	}
}

func TestAFlagIsCheckedWhenItIsParsed(t *testing.T) {
	for arg, ok := range map[string]bool{
		"--session-idle=soon": false, "--session-idle=90": true, "--worker-concurrency=x": false, "--metrics=false": true,
		"--release-strict": true, "--metrics=maybe": false, "--unheard-of": false,
	} {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		Register(flags, Any)
		if err := flags.Parse([]string{arg}); (err == nil) != ok {
			t.Errorf("%s: got %v, want ok %v", arg, err, ok)
		}
	}
}

func TestDurationsAreShownAsPeopleWriteThem(t *testing.T) {
	for d, want := range map[time.Duration]string{
		5 * time.Minute: "5m", time.Hour: "1h", 90 * time.Minute: "1h30m", 2*time.Minute + 5*time.Second: "2m5s",
		30 * time.Second:  "30s",
		100 * time.Second: "1m40s", 10 * time.Minute: "10m", 250 * time.Millisecond: "250ms", 0: "0s",
	} {
		if got := formatValue(d); got != want {
			t.Errorf("%d: got %s, want %s", d, got, want)
		}
		if back, err := span.parse(formatValue(d)); err != nil || back != d {
			t.Errorf("%s reads back as %v, %v", want, back, err)
		}
	}
}
