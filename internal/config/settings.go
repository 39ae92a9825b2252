package config

import (
	"path/filepath"
	"strings"

	"github.com/sojourn-run/sojourn/internal/mask"
)

const prefix = "SOJOURN_"

type kind int

const (
	text kind = iota
	number
	flag // true or false
	span // a duration: 30s, 5m; a bare number is seconds
	list // comma separated
)

func (k kind) String() string { return [...]string{"text", "number", "bool", "duration", "list"}[k] }

// setting is one entry of the table: its name determines the flag, the environment variable and the key in the file.
type setting struct {
	name   string
	former string // name until the previous release, still read with a warning; empty: none
	kind   kind
	value  string                 // the default, written as a user would
	in     map[Role]string        // defaults that differ in a role
	derive func(c *Config) string // default that depends on other settings; value is the text for help
	secret func(v string) string  // part of the value that may be shown; nil: all
	roles  []Role                 // roles that have the flag; the variable and the file's key are read in every role
	help   string
}

func (s setting) env() string { return variable(s.name) }

// variable returns the environment variable of a setting's name.
func variable(name string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// defaultFor returns the default of s in a role.
func (s setting) defaultFor(r Role) string {
	if v, ok := s.in[r]; ok {
		return v
	}
	if s.derive != nil {
		return ""
	}
	return s.value
}

var (
	apps    = []Role{App, Both, Dev}
	workers = []Role{Worker, Both, Dev}
	servers = []Role{App, Worker, Both, Dev}
	callers = []Role{Worker, Client}
	all     = []Role{App, Worker, Both, Dev, Client}
)

// settings is the table of all settings with their defaults.
var settings = []setting{
	{
		name: "container-type", value: ContainerWorkerAndApp,
		help: "role if no subcommand is given: APP, WORKER or WORKER_AND_APP",
	},
	{
		name: "addr", value: "127.0.0.1:7700", roles: apps,
		help: "listen address of the app: API, worker protocol, socket and dashboard",
	},
	{
		name: "base-path", roles: apps,
		help: "URL path prefix of the app behind a proxy, such as /sojourn; a proxy that strips it may send " +
			"X-Forwarded-Prefix instead",
	},
	{
		name: "trusted-proxies", kind: list, roles: apps,
		help: "addresses and networks of proxies whose X-Forwarded-For is trusted, comma separated " +
			"(10.0.0.1,10.1.0.0/16); unset: none",
	},
	{
		name: "tls-cert", roles: apps,
		help: "PEM file with the app's certificate chain; reloaded when it changes; unset: no TLS",
	},
	{name: "tls-key", roles: apps, help: "PEM file with the private key of tls-cert"},
	{
		name: "tls-client-ca", roles: apps,
		help: "CA bundle for client certificates (mTLS on everything except health probes); unset: off",
	},
	{
		name: "database-url", value: "sqlite:DATA-DIR/sojourn.db", roles: apps, secret: mask.URL,
		derive: func(c *Config) string { return "sqlite:" + filepath.Join(c.DataDir, "sojourn.db") },
		help:   "database: sqlite:PATH or postgres://…",
	},
	{
		name: "database-url-file", roles: apps,
		help: "file with a postgres:// URL, such as a mounted secret; replaces database-url; read at every " +
			"connect; unset: none",
	},
	{
		name: "data-dir", value: "./.sojourn", roles: all,
		help: "directory for the database, handler packages, logs and session folders",
	},
	{
		name: "auth", value: AuthToken, in: map[Role]string{Dev: AuthNone}, roles: apps,
		help: "authentication: token, or none (loopback addresses only)",
	},
	{
		name: "token", roles: all, secret: mask.All,
		help: "app: bootstrap token, generated and printed once if unset; worker and commands: the token they send",
	},
	{
		name: "app-url", kind: list, value: "http://127.0.0.1:7700", roles: callers, secret: mask.URL,
		help: "URLs of the apps, comma separated; workers spread over them",
	},
	{
		name: "app-ca", roles: callers,
		help: "CA bundle for the app's certificate; read at every connect; unset: the machine's",
	},
	{name: "client-cert", roles: callers, help: "PEM file with the client certificate of a worker or command"},
	{name: "client-key", roles: callers, help: "PEM file with the private key of client-cert"},
	{
		name: "link", value: "auto", roles: []Role{Worker},
		help: "transport of a worker: socket, http (for proxies that block sockets), or auto, which tries both",
	},
	{
		name: "worker-id", in: map[Role]string{Dev: "local", Both: "local"}, roles: workers,
		help: "stable worker ID; a restarted worker reacquires its sessions at once; unset: a new ULID per start",
	},
	{
		name: "worker-concurrency", kind: number, value: "0", roles: workers,
		help: "maximum number of activities at once; 0: 128, or 2 × cores if some run in executors",
	},
	{
		name: "worker-max-sessions", value: "auto", roles: workers,
		help: "maximum number of held sessions; auto: 1000, or as many as executor-memory allows if all " +
			"activities run in executors; 0: the worker holds no session",
	},
	{
		name: "max-set-ups", kind: number, value: "0", roles: workers,
		help: "maximum number of session set-ups at once in a worker; 0: the number of cores",
	},
	{
		name: "sticky-cache-size", former: "worker-kept-runs", kind: number, value: "1000", roles: workers,
		help: "size of the sticky cache: runs that a worker keeps in memory between workflow tasks; others are " +
			"replayed",
	},
	{
		name: "queues", kind: list, value: "default", roles: workers,
		help: "task queues that a worker polls, comma separated",
	},
	{
		name: "build-id", roles: workers,
		help: "build ID of a worker's code, by which rollouts promote and drain; unset: none",
	},
	{
		name: "namespace", value: "default", roles: []Role{Worker, Both, Dev, Client},
		help: "namespace in which a worker polls for tasks, or to which a client command applies",
	},
	{name: "capabilities", kind: list, roles: workers, help: "capabilities of a worker, comma separated"},
	{
		name: "resources", kind: list, roles: workers,
		help: "amounts that the sessions of a worker may use together: NAME=QUANTITY pairs, comma separated, such as " +
			"gpu_mem=80GiB,licence=2; unset: none, and no limit of memory",
	},
	{name: "handlers", roles: workers, help: "directory with activity handlers in other languages"},
	{
		name: "attempt-lease", kind: span, value: "30s", in: map[Role]string{App: "120s"}, roles: servers,
		help: "lease of an activity attempt, renewed by heartbeats; an app uses it for socket workers that " +
			"request none",
	},
	{name: "session-lease", kind: span, value: "30s", roles: workers, help: "lease of a session"},
	{
		name: "session-buffer", kind: span, value: "5s", roles: workers,
		help: "a lease is renewed at least this long before it expires",
	},
	{
		name: "session-idle", kind: span, value: "5m", roles: workers,
		help: "an implicit session without activity is released after this time",
	},
	{
		name: "snapshot-dir", roles: workers,
		help: "directory that all workers reach, for snapshots of sessions above 2 MiB; " +
			"unset: such a session loses its state",
	},
	{
		name: "snapshot-max-age", kind: span, value: "1h", roles: workers,
		help: "time after which the snapshot of a session is discarded",
	},
	{
		name: "snapshot-timeout", kind: span, value: "30s", roles: workers,
		help: "maximum time for taking the snapshot of a session, at most 5m; in a shutdown also limited by drain-timeout",
	},
	{
		name: "session-cleanup", kind: span, value: "5m", roles: apps,
		help: "interval at which an app removes expired sessions",
	},
	{
		name: "activity-log-age", kind: span, value: "168h", roles: apps,
		help: "retention of activity logs; deleting a run deletes its logs",
	},
	{
		name: "audit-log-age", kind: span, value: "8760h", roles: apps,
		help: "retention of the audit log",
	},
	{
		name: "isolation", value: "auto", roles: workers,
		help: "isolation of executors: none, process, confined, or auto: the strongest that this machine supports",
	},
	{
		name: "isolation-min-level", value: "auto", roles: workers,
		help: "a worker refuses to start below this isolation: none, process, confined, or auto: confined if " +
			"the kernel has Landlock",
	},
	{name: "node", roles: workers, help: "Node executable for handlers: a path, or a name in PATH; empty: node"},
	{
		name: "python", roles: workers,
		help: "Python executable for handlers, for example of a virtual environment: a path, or a name in " +
			"PATH; empty: python3",
	},
	{
		name: "handler-packages", value: "install", roles: workers,
		help: "package.json and requirements.txt of handlers: install (without install scripts), scripts (with install " +
			"scripts), or none",
	},
	{
		name: "executor-read", kind: list, roles: workers,
		help: "files and folders that confined handlers may read, comma separated",
	},
	{
		name: "executor-write", kind: list, roles: workers,
		help: "files and folders that confined handlers may write, comma separated",
	},
	{
		name: "executor-uids", value: "auto", roles: workers,
		help: "user IDs for executors of a worker that runs as root, one per executor, such as 60600-60999; auto: those, if " +
			"other users can read the handlers and their runtimes; none: root",
	},
	{
		name: "egress", value: "auto", roles: workers,
		help: "network access of handlers: none, filtered (public addresses, through a proxy), open, or auto: filtered " +
			"if isolation is confined",
	},
	{
		name: "egress-allow", kind: list, roles: workers,
		help: "private addresses that handlers may connect to: HOST, HOST:PORT or CIDR, comma separated",
	},
	{
		name: "executor-cgroup", value: "auto", roles: workers,
		help: "limits of executors: auto (cgroups if the worker may create them) or none (the supervisor samples)",
	},
	{
		name: "executor-memory", kind: number, value: "0", roles: workers,
		help: "memory of all executors in MiB; above it idle sessions are evicted; 0: three quarters of the " +
			"machine's memory",
	},
	{name: "release", roles: servers, help: "release that app and worker compare; overrides the detected one"},
	{
		name: "release-strict", kind: flag, value: "false", roles: servers,
		help: "refuse to dispatch if neither the app nor the worker has a known release",
	},
	{
		name: "socket-transports", kind: list, value: "websocket,polling", roles: apps,
		help: "Socket.IO transports that the app offers, comma separated",
	},
	{
		name: "max-blamed-losses", kind: number, value: "3", roles: apps,
		help: "number of lost worker processes that a task may be blamed for before it fails as poison; " +
			"an activity's policy may allow more",
	},
	{
		name: "quota-open-runs", kind: number, value: "1000000", roles: apps,
		help: "quota of open runs per namespace, unless the namespace sets one",
	},
	{
		name: "quota-starts-per-second", kind: number, value: "20000", roles: apps,
		help: "quota of workflow starts per second and namespace, unless the namespace sets one",
	},
	{
		name: "quota-stored-bytes", kind: number, value: "1099511627776", roles: apps,
		help: "quota of history bytes per namespace, unless the namespace sets one; default: 1 TiB",
	},
	{
		name: "quota-schedules", kind: number, value: "100000", roles: apps,
		help: "quota of schedules per namespace, unless the namespace sets one",
	},
	{
		name: "max-polls", kind: number, value: "10000", roles: apps,
		help: "maximum number of HTTP polls that wait at an app",
	},
	{
		name: "sockets-per-token", kind: number, value: "5000", roles: apps,
		help: "maximum number of sockets per token; 0: unlimited",
	},
	{
		name: "postgres-pool", kind: number, value: "10", roles: apps,
		help: "maximum number of connections of an app to PostgreSQL",
	},
	{name: "drain-timeout", kind: span, value: "25s", roles: servers, help: "maximum duration of a shutdown"},
	{name: "log-level", value: "info", roles: all, help: "trace, debug, info, warn or error"},
	{name: "log-format", value: "console", roles: all, help: "console or json"},
	{
		name: "worker-addr", roles: []Role{Worker},
		help: "listen address of a worker for /healthz, /readyz and /metrics, such as 127.0.0.1:7701; unset: off",
	},
	{name: "metrics", kind: flag, value: "true", roles: apps, help: "serve /metrics"},
}

func find(name string) (setting, bool) {
	for _, s := range settings {
		if s.name == name || s.former == name && name != "" {
			return s, true
		}
	}
	return setting{}, false
}
