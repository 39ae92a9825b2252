package config

import (
	"path/filepath"
	"strings"

	"github.com/sojourn-run/sojourn/shared/mask"
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

// setting is one line of the table: a name, and with it a flag, an environment variable and a key of the file.
type setting struct {
	name   string
	kind   kind
	value  string                 // the default, written as a user would
	in     map[Role]string        // defaults that differ in a role
	derive func(c *Config) string // the default where it depends on other settings; value is then what help prints
	secret func(v string) string  // what may be shown of it; nil: all
	roles  []Role                 // whose flag it is; the variable and the file's key are read in every role
	help   string
}

func (s setting) env() string { return prefix + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_")) }

// preset is the default of s in a role.
func (s setting) preset(r Role) string {
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

// settings is the one place where a setting and its default are written down.
var settings = []setting{
	{
		name: "container-type", value: ContainerWorkerAndApp,
		help: "role without a subcommand: APP, WORKER or WORKER_AND_APP",
	},
	{
		name: "addr", value: "127.0.0.1:7700", roles: apps,
		help: "where the app listens: API, worker protocol, socket and dashboard",
	},
	{
		name: "base-path", roles: apps,
		help: "path below which a proxy passes the app on, as /sojourn; a proxy that takes it away may say it instead, in X-Forwarded-Prefix",
	},
	{
		name: "trusted-proxies", kind: list, roles: apps,
		help: "addresses and networks of proxies, comma separated (10.0.0.1,10.1.0.0/16); the address of a caller behind one is read from its X-Forwarded-For; unset: none",
	},
	{
		name: "tls-cert", roles: apps,
		help: "PEM file with the app's certificate and what leads to its authority; read anew when it changes; unset: no TLS",
	},
	{name: "tls-key", roles: apps, help: "PEM file with the key of tls-cert"},
	{
		name: "tls-client-ca", roles: apps,
		help: "PEM file with authorities: a caller needs a certificate of theirs, for all but probes; unset: it needs none",
	},
	{
		name: "database-url", value: "sqlite:DATA-DIR/sojourn.db", roles: apps, secret: mask.URL,
		derive: func(c *Config) string { return "sqlite:" + filepath.Join(c.DataDir, "sojourn.db") },
		help:   "sqlite:PATH or postgres://…",
	},
	{
		name: "database-url-file", roles: apps,
		help: "file with a postgres:// URL, such as a mounted secret; replaces database-url, read at every connect; unset: none",
	},
	{name: "data-dir", value: "./.sojourn", roles: all, help: "database, handler cache, logs, session directories"},
	{
		name: "auth", value: AuthToken, in: map[Role]string{Dev: AuthNone}, roles: apps,
		help: "token, or none (with a loopback address only)",
	},
	{
		name: "token", roles: all, secret: mask.All,
		help: "app: the bootstrap token, made and printed once if unset; worker and commands: the token they present",
	},
	{
		name: "app-url", kind: list, value: "http://127.0.0.1:7700", roles: callers, secret: mask.URL,
		help: "URLs of the apps, comma separated; workers spread over them",
	},
	{
		name: "app-ca", roles: callers,
		help: "PEM file with the authorities that sign the app's certificate, read at every connect; unset: those of the machine",
	},
	{name: "client-cert", roles: callers, help: "PEM file with the certificate a worker or command shows to the app"},
	{name: "client-key", roles: callers, help: "PEM file with the key of client-cert"},
	{
		name: "link", value: "auto", roles: []Role{Worker},
		help: "how a worker reaches the app: socket, http (where proxies let no socket through), or auto, which finds out",
	},
	{
		name: "worker-id", in: map[Role]string{Dev: "local", Both: "local"}, roles: workers,
		help: "stable worker id, which reclaims its sessions at once after a restart; unset: a new ULID per start",
	},
	{
		name: "worker-concurrency", kind: number, value: "0", roles: workers,
		help: "slots: activities run at once; 0: 128, or 2 × cores where some run in executors",
	},
	{
		name: "worker-max-sessions", value: "auto", roles: workers,
		help: "limit of sessions held; auto: 1000, or as many as executor-memory allows if all activities run in executors; 0: none",
	},
	{
		name: "worker-kept-runs", kind: number, value: "1000", roles: workers,
		help: "runs whose workflow a worker keeps in memory between their tasks; for any other it reads the history anew",
	},
	{name: "queues", kind: list, value: "default", roles: workers, help: "task queues a worker serves, comma separated"},
	{
		name: "build-id", roles: workers,
		help: "build of a worker's code, which rollouts of its queues promote and drain; unset: none",
	},
	{name: "namespace", value: "default", roles: []Role{Worker, Both, Dev, Client}, help: "namespace"},
	{name: "capabilities", kind: list, roles: workers, help: "capabilities a worker offers, comma separated"},
	{name: "handlers", roles: workers, help: "directory of activity handlers in other languages"},
	{
		name: "attempt-lease", kind: span, value: "30s", in: map[Role]string{App: "120s"}, roles: servers,
		help: "worker: lease of what it runs, renewed with each heartbeat; app: that of workers on the socket that name none",
	},
	{name: "session-lease", kind: span, value: "30s", roles: workers, help: "lease of the sessions a worker holds"},
	{name: "session-buffer", kind: span, value: "5s", roles: workers, help: "how long before its end a lease is renewed"},
	{name: "session-idle", kind: span, value: "5m", roles: workers, help: "how long an idle session is kept"},
	{name: "session-cleanup", kind: span, value: "5m", roles: apps, help: "how often an app removes expired sessions"},
	{
		name: "activity-log-age", kind: span, value: "168h", roles: apps,
		help: "how long an app keeps what activities logged; with a run that is removed earlier it goes as well",
	},
	{
		name: "audit-log-age", kind: span, value: "8760h", roles: apps,
		help: "how long an app keeps entries of the audit log",
	},
	{
		name: "isolation", value: "auto", roles: workers,
		help: "isolation of executors: none, process, confined, or auto: the strongest that holds here",
	},
	{
		name: "isolation-min-level", value: "auto", roles: workers,
		help: "weakest isolation with which a worker starts: none, process, confined, or auto: confined where the kernel has Landlock",
	},
	{name: "node", roles: workers, help: "Node that runs handlers: a path, or a name in PATH; empty: node"},
	{
		name: "python", roles: workers,
		help: "Python that runs handlers, as that of a virtual environment: a path, or a name in PATH; empty: python3",
	},
	{
		name: "handler-packages", value: "install", roles: workers,
		help: "what to do about package.json and requirements.txt beside the handlers: install (without running code of " +
			"packages), scripts (with what packages run when they are installed), none",
	},
	{
		name: "executor-read", kind: list, roles: workers,
		help: "files and folders that confined handlers may read, comma separated",
	},
	{
		name: "executor-write", kind: list, roles: workers,
		help: "files and folders that confined handlers may change, comma separated",
	},
	{
		name: "executor-uids", value: "auto", roles: workers,
		help: "user ids of which each executor of a worker that is root has one, as 60600-60999; auto: those, where the " +
			"handlers and their runtimes are open to other users; none: root",
	},
	{
		name: "egress", value: "auto", roles: workers,
		help: "what of the network handlers reach: none, filtered (public addresses, through a proxy), open, or auto: " +
			"filtered where isolation is confined",
	},
	{
		name: "egress-allow", kind: list, roles: workers,
		help: "what handlers reach though it is not public: HOST, HOST:PORT or CIDR, comma separated",
	},
	{
		name: "executor-cgroup", value: "auto", roles: workers,
		help: "auto: executors are held to their limits by control groups where the worker may make some; none: never",
	},
	{
		name: "executor-memory", kind: number, value: "0", roles: workers,
		help: "MiB that all executors may have in memory until idle sessions are evicted; 0: three quarters of the machine's",
	},
	{name: "release", roles: servers, help: "overrides the release that app and worker compare"},
	{
		name: "release-strict", kind: flag, value: "false", roles: servers,
		help: "refuse to work when no release can be read",
	},
	{name: "socket-transports", kind: list, value: "websocket,polling", roles: apps, help: "websocket, polling"},
	{
		name: "max-blamed-losses", kind: number, value: "3", roles: apps,
		help: "losses of worker processes that a task is blamed for before it is given up; " +
			"an activity's policy may allow more",
	},
	{
		name: "quota-open-runs", kind: number, value: "1000000", roles: apps,
		help: "open runs that a namespace without a quota of its own may have",
	},
	{
		name: "quota-starts-per-second", kind: number, value: "20000", roles: apps,
		help: "runs that may start per second in a namespace without a quota of its own",
	},
	{
		name: "quota-stored-bytes", kind: number, value: "1099511627776", roles: apps,
		help: "bytes that the histories of all runs of a namespace without a quota of its own may have; 1 TiB by default",
	},
	{
		name: "quota-schedules", kind: number, value: "100000", roles: apps,
		help: "schedules that a namespace without a quota of its own may have",
	},
	{
		name: "max-polls", kind: number, value: "10000", roles: apps,
		help: "most polls of workers over HTTP an app holds at once",
	},
	{
		name: "sockets-per-token", kind: number, value: "5000", roles: apps,
		help: "most sockets of workers and browsers with one token; 0: any number",
	},
	{name: "postgres-pool", kind: number, value: "10", roles: apps, help: "most connections an app opens to PostgreSQL"},
	{name: "drain-timeout", kind: span, value: "25s", roles: servers, help: "how long a shutdown may take"},
	{name: "log-level", value: "info", roles: all, help: "trace, debug, info, warn or error"},
	{name: "log-format", value: "console", roles: all, help: "console or json"},
	{
		name: "worker-addr", roles: []Role{Worker},
		help: "where a worker answers /healthz, /readyz and /metrics, as 127.0.0.1:7701; unset: nowhere",
	},
	{name: "metrics", kind: flag, value: "true", roles: apps, help: "serve /metrics"},
}

func find(name string) (setting, bool) {
	for _, s := range settings {
		if s.name == name {
			return s, true
		}
	}
	return setting{}, false
}
