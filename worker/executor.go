package worker

import (
	"time"

	"github.com/sojourn-run/sojourn/sandbox"
)

// SessionOptions are the options of a worker for the sessions that it holds.
type SessionOptions struct {
	Max       int           // maximum number of held sessions; 0: the worker never holds a session; see AutoSessions
	MaxSetUps int           // set-ups of sessions at once; 0: the number of cores
	Lease     time.Duration // lease of a session, renewed with each heartbeat; 0: 30 s
	// The worker ends its attempts this long before their lease or their session expires; 0: 5 s.
	Buffer time.Duration
	Idle   time.Duration // the worker stops renewing a session after this time without an activity; 0: 5 min
	// SnapshotDir is a directory that all workers reach, for snapshots of sessions above 2 MiB; empty: none. Only the
	// user of the workers can read the files.
	SnapshotDir     string
	SnapshotMaxAge  time.Duration // a snapshot is discarded after this time; 0: 1 hour
	SnapshotTimeout time.Duration // maximum time for taking a snapshot, at most 5 min; 0: 30 s
}

// ExecutorOptions are the options of a worker for executors: the processes that run handlers in other languages and
// isolated activities.
type ExecutorOptions struct {
	Isolation string // auto, none, process or confined; empty: auto
	// IsolationMin is the weakest isolation level with which the worker starts if something needs executors; auto:
	// confined if the kernel supports it. Empty: any level.
	IsolationMin string
	Disabled     bool // no executors; isolated activities and handlers are then an error
	// files and folders that confined code may read, or change, besides its runtime, the handlers and its scratch
	// folder
	Read, Write []string
	// Node and Python are the programs that run handlers; empty: node and python3 in PATH. A program that is set must
	// exist.
	Node, Python string
	// Packages is the setting for the installation of packages that handlers need; empty: InstallPackages.
	Packages Packages
	// UIDs are the user IDs of executors if the worker runs as root: FIRST-LAST, none, or auto (a separate range, if
	// all users may read the handlers and runtimes); empty: auto
	UIDs string
	// Cgroup selects whether control groups enforce the limits of executors: none, or auto or empty for where possible
	Cgroup string
	// Egress is the network access of executors: auto, none, filtered or open; empty: auto, which is filtered if the
	// level confined is available and otherwise open
	Egress      string
	EgressAllow []string          // non-public HOST, HOST:PORT or CIDR that filtered egress may reach
	Apps        []string          // URLs and host:port of the app, which filtered egress never reaches
	Limits      map[string]Limits // of executors, per runtime: native, node, python
	// Memory is the maximum resident memory of all executors in bytes. Above it idle sessions are evicted, least
	// recently used first, except sessions that a workflow started; 0: three quarters of the machine's memory.
	Memory int64
}

// Limits are the limits of an executor, together with the processes that its code starts. 0 means the default of the
// runtime, unless the field says otherwise.
type Limits struct {
	Memory       int64 // bytes of resident memory of all processes together
	Data         int64 // bytes of heap of each process; 0: Memory plus 64 MiB; negative: no limit
	FileSize     int64 // bytes of one file
	OpenFiles    int   // file descriptors of each process
	Processes    int   // number of processes
	Threads      int   // number of threads of all its processes; 0: 16 times Processes
	ScratchBytes int64 // bytes in the scratch folder
	ScratchFiles int   // number of files in the scratch folder
	// Processors is the number of processors that the executor may use at once, if a control group limits them; 0: all.
	Processors float64
}

// Packages is the setting for the installation of npm and Python packages that handlers need.
type Packages string

// These are the values of Packages; the default is InstallPackages.
const (
	InstallPackages    Packages = "install" // run no code of the packages: no scripts of npm, only wheels of Python
	InstallWithScripts Packages = "scripts" // run the installation scripts of the packages
	InstallNoPackages  Packages = "none"
)

// RunExecutor runs this process as an executor of isolated activities and session definitions, if a worker of this
// program started it as one, and then never returns; otherwise it returns at once. A program that uses New and isolates
// some of them must call it first in main, and first in TestMain of its tests. Main and sojourn.Main call it
// themselves.
func RunExecutor(r *Registry) { sandbox.Main(isolatedActivities(r)) }

// limits returns the limits of executors in the form of package sandbox.
func (o ExecutorOptions) limits() map[string]sandbox.Limits {
	if o.Limits == nil {
		return nil
	}
	all := make(map[string]sandbox.Limits, len(o.Limits))
	for runtime, l := range o.Limits {
		all[runtime] = sandbox.Limits(l)
	}
	return all
}
