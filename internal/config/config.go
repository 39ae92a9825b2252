// Package config reads the settings of a process from flags, environment and file, and reports the source of each.
package config

import "time"

// Role is the role of a process. It determines the flags of a subcommand, some defaults, and the checks.
type Role string

// These are the roles.
const (
	Any    Role = ""       // the binary without a subcommand: container-type selects the role
	App    Role = "app"    // a control plane
	Worker Role = "worker" // a worker that connects to an app
	Both   Role = "both"   // app and worker in one process
	Dev    Role = "dev"    // both roles, for this machine only: without tokens
	Client Role = "client" // a command that calls an app
)

// RunsApp reports whether a process of this role is a control plane.
func (r Role) RunsApp() bool { return r == App || r == Both || r == Dev }

// RunsWorker reports whether a process of this role runs activities and workflows.
func (r Role) RunsWorker() bool { return r == Worker || r == Both || r == Dev }

// These are the values of ContainerType.
const (
	ContainerApp          = "APP"
	ContainerWorker       = "WORKER"
	ContainerWorkerAndApp = "WORKER_AND_APP"
)

// These are the values of Auth.
const (
	AuthToken = "token" // every call presents a token
	AuthNone  = "none"  // every caller is trusted; loopback only
)

// Config has every setting of a process after Load: parsed, derived where a default depends on another setting, and
// checked. The key of a field is the name of its flag; the table in settings.go describes the settings.
type Config struct {
	Role Role `koanf:"-"` // never Any: Load has resolved it

	ContainerType string `koanf:"container-type"`
	Addr          string `koanf:"addr"`
	BasePath      string `koanf:"base-path"` // empty, or /a or /a/b
	// TrustedProxies are the addresses and networks of reverse proxies whose forwarding headers are trusted.
	TrustedProxies []string `koanf:"trusted-proxies"`
	TLSCert        string   `koanf:"tls-cert"` // empty: no TLS
	TLSKey         string   `koanf:"tls-key"`
	TLSClientCA    string   `koanf:"tls-client-ca"` // empty: callers need no certificate
	DatabaseURL    string   `koanf:"database-url"`  // sqlite:PATH or postgres://…
	// DatabaseURLFile is a file with a postgres:// URL, read at every connect; empty: DatabaseURL is used.
	DatabaseURLFile string `koanf:"database-url-file"`
	DataDir         string `koanf:"data-dir"`
	Auth            string `koanf:"auth"`
	Token           string `koanf:"token"` // empty: the token in DataDir/token, if it exists

	AppURLs           []string `koanf:"app-url"` // without a trailing slash
	AppCA             string   `koanf:"app-ca"`  // empty: the CA bundle of the machine
	ClientCert        string   `koanf:"client-cert"`
	ClientKey         string   `koanf:"client-key"`
	Link              string   `koanf:"link"`      // auto, socket or http
	WorkerID          string   `koanf:"worker-id"` // empty: the worker generates a ULID at its start
	WorkerConcurrency int      `koanf:"worker-concurrency"`
	WorkerMaxSessions string   `koanf:"worker-max-sessions"` // auto or a number; 0: this worker acquires no session
	MaxSetUps         int      `koanf:"max-set-ups"`         // session set-ups that run at once; 0: number of cores
	StickyCacheSize   int      `koanf:"sticky-cache-size"`
	Queues            []string `koanf:"queues"`
	BuildID           string   `koanf:"build-id"` // empty: none
	Namespace         string   `koanf:"namespace"`
	Capabilities      []string `koanf:"capabilities"`
	Resources         []string `koanf:"resources"` // NAME=QUANTITY pairs
	Handlers          string   `koanf:"handlers"`

	AttemptLease    time.Duration `koanf:"attempt-lease"`
	SessionLease    time.Duration `koanf:"session-lease"`
	SessionBuffer   time.Duration `koanf:"session-buffer"`
	SessionIdle     time.Duration `koanf:"session-idle"`
	SnapshotDir     string        `koanf:"snapshot-dir"` // empty: no snapshots of sessions above 2 MiB
	SnapshotMaxAge  time.Duration `koanf:"snapshot-max-age"`
	SnapshotTimeout time.Duration `koanf:"snapshot-timeout"`
	SessionCleanup  time.Duration `koanf:"session-cleanup"`
	ActivityLogAge  time.Duration `koanf:"activity-log-age"`
	AuditLogAge     time.Duration `koanf:"audit-log-age"`

	Isolation    string `koanf:"isolation"`
	IsolationMin string `koanf:"isolation-min-level"`
	Node         string `koanf:"node"`             // the program; empty: node in PATH
	Python       string `koanf:"python"`           // the program; empty: python3 in PATH
	Packages     string `koanf:"handler-packages"` // install, scripts or none
	// ExecutorRead and ExecutorWrite are additional paths that confined executors may read or write.
	ExecutorRead  []string `koanf:"executor-read"`
	ExecutorWrite []string `koanf:"executor-write"`
	ExecutorUIDs  string   `koanf:"executor-uids"` // auto, none or FIRST-LAST
	// Egress and EgressAllow restrict the network destinations of handlers.
	Egress         string   `koanf:"egress"`
	EgressAllow    []string `koanf:"egress-allow"`
	ExecutorCgroup string   `koanf:"executor-cgroup"` // auto or none
	// ExecutorMemory is in MiB; 0: three quarters of the machine's memory.
	ExecutorMemory int `koanf:"executor-memory"`

	Release          string   `koanf:"release"` // empty: determined at start; see package release
	ReleaseStrict    bool     `koanf:"release-strict"`
	SocketTransports []string `koanf:"socket-transports"`

	MaxBlamed int `koanf:"max-blamed-losses"`
	// Quotas of namespaces that override none.
	QuotaOpenRuns  int `koanf:"quota-open-runs"`
	QuotaStarts    int `koanf:"quota-starts-per-second"`
	QuotaBytes     int `koanf:"quota-stored-bytes"`
	QuotaSchedules int `koanf:"quota-schedules"`

	MaxPolls     int           `koanf:"max-polls"`
	MaxSockets   int           `koanf:"sockets-per-token"` // 0: any number
	WorkerAddr   string        `koanf:"worker-addr"`       // empty: no port
	PostgresPool int           `koanf:"postgres-pool"`
	DrainTimeout time.Duration `koanf:"drain-timeout"`
	LogLevel     string        `koanf:"log-level"`
	LogFormat    string        `koanf:"log-format"`
	Metrics      bool          `koanf:"metrics"`
}

// Source contains the value of one setting and its origin.
type Source struct {
	Name  string // the flag, without dashes in front
	Env   string // the environment variable
	Value string // text form; secrets are masked
	From  string // "default", "file PATH", "SOJOURN_…" or "--flag"
}

// Warning is a log message about suspicious settings with which a process can start.
type Warning string
