package sandbox

import (
	"context"
	"runtime"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/sandbox/internal/egress"
	"github.com/sojourn-run/sojourn/sandbox/internal/lockdown"
)

// Options configure a [Pool]. The zero value works: native handlers and the interpreters in PATH, at the strongest
// level that the machine supports.
type Options struct {
	// folder for scratch folders, preferably on a disk with free space; empty: a folder in the system's temporary
	// folder
	Dir         string
	Handlers    string   // folder of handlers in other languages; empty: none
	Instance    string   // name of this worker, unique among the workers that share Dir; empty for a random name
	Environment []string // extra NAME=value of every executor: never secrets, all code sees them

	Read    []string // files and folders that confined code may read besides its runtime and the handlers
	Write   []string // files and folders that confined code may change besides its scratch folder; must exist
	Private string   // a folder to which Read, Write and Handlers never give access, even if it is inside one of them

	// network access of code; empty for filtered if the level confined is available, and otherwise open
	Egress      Egress
	EgressAllow []string // HOST, HOST:PORT or CIDRthat filtered egress may reach although they are not public
	Apps        []string // URLs and host:port of the app, which filtered egress never reaches

	// users of executors if the worker is root, as FIRST-LAST; empty: 60600-60999 if possible; "none": the worker's own
	Users string

	// where the limits of executors are enforced: CgroupAuto, or empty: in control groups if this process may create
	// them; CgroupNone: never in control groups
	Cgroup string

	Node, Python string   // paths of the programs; empty: node and python3 in PATH
	Packages     Packages // whether packages of handlers are installed; empty: PackagesInstall

	Level       Level // requested level; empty: the strongest available
	MinLevel    Level // minimum level, below which NewPool fails; empty: none; see FloorAuto
	AllowWeaker bool  // open the pool even below MinLevel

	MaxExecutors int // maximum number of executors, prepared ones included; 0: as memory allows, at most 64
	// resident bytes of all executors above which idle ones are ended; 0: three quarters of the machine's memory
	Memory int64
	Blank  int               // prepared executors per used runtime; 0: one; negative: none
	Limits map[string]Limits // per runtime; zero fields use the defaults

	CancelTerm    time.Duration // time from a cancel to SIGTERM; 0: 2 s
	CancelKill    time.Duration // time from a cancel to SIGKILL; 0: 5 s
	DeadlineGrace time.Duration // time from a deadline to SIGKILL; 0: 250 ms
	IdleEvictable time.Duration // time without a call after which a session may be evicted for another one; 0: 60 s

	Logger zerolog.Logger

	// OnLost is called once for each session epoch whose state was lost other than by CloseSession or an eviction that
	// OnEvict allowed, after its executor ended. It runs on a separate goroutine. A rebuilt epoch may be reported
	// again.
	OnLost func(SessionLost)

	// OnEvict is called before an idle session is evicted to free executors or memory. It must notify the owner of the
	// session's state and return whether the session may be evicted. If OnEvict is nil, sessions are evicted, and
	// OnLost is called before the executor ends.
	OnEvict func(context.Context, SessionLost) bool

	kernel   *lockdown.Kernel // nil: detected
	resolver egress.Resolver  // nil: the resolver of the machine
	patience time.Duration    // maximum time to complete a frame; 0: frame.Deadline

	installRetry time.Duration // pause after the first failed installation of packages; 0: installRetry
}

// Limits are the limits of an executor and its descendants.
type Limits struct {
	Memory    int64 // resident bytes of all its processes
	Data      int64 // heap bytes of each process; 0 for Memory and 64 MiB, negative for no limit
	FileSize  int64 // bytes of one file
	OpenFiles int   // descriptors of each process
	Processes int   // maximum number of processes
	// threads of all its processes: enforced by a control group, else by ending the executor; 0: 16 times Processes
	Threads      int
	ScratchBytes int64 // bytes in the scratch folder
	ScratchFiles int   // files in the scratch folder
	// processors that it may use at once, if a control group limits them; 0: all. Under contention the worker has
	// precedence over its executors in any case
	Processors float64
}

// These are the values of Options.Cgroup.
const (
	CgroupAuto = "auto"
	CgroupNone = "none"
)

// These are fixed times and sizes.
const (
	bootTime = 10 * time.Second // maximum time from start to ready
	// maximum time for a script to print the path of its interpreter, for a busy machine
	outputTimeout = time.Minute
	closeTime     = 5 * time.Second        // maximum time of all close hooks
	endTime       = 2 * time.Second        // maximum time from a kill to the supervisor's last message
	stoppedTime   = 200 * time.Millisecond // time from a kill to the check whether the supervisor is stopped
	// maximum silence of the supervisor while a call runs; it sends a message every second
	silenceTime = 10 * time.Second
	writeTime   = 30 * time.Second // maximum time to write one frame
	// time after the start to the second sweep, for folders whose locks were held at the start
	sweepRetry       = 2 * time.Second
	tombstoneTime    = time.Hour   // how long the end of a session is remembered
	idleAfter        = time.Second // time without a call after which an executor counts as idle
	reuseCalls       = 100         // maximum number of calls in one executor outside sessions
	reuseAge         = 10 * time.Minute
	maxUnknownFrames = 100     // frames about unknown calls after which the executor is killed
	maxLogBytes      = 1 << 20 // maximum size of the log of one call
	maxLogLine       = 16 << 10
	workerReserve    = 256 << 20 // memory that is reserved for the worker itself
)

func (o Options) withDefaults() Options {
	if o.Blank == 0 {
		o.Blank = 1
	}
	o.Blank = max(o.Blank, 0)
	if o.Packages == "" {
		o.Packages = PackagesInstall
	}
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&o.CancelTerm, 2*time.Second)
	set(&o.CancelKill, 5*time.Second)
	set(&o.DeadlineGrace, 250*time.Millisecond)
	set(&o.IdleEvictable, time.Minute)
	if o.OnLost == nil {
		o.OnLost = func(SessionLost) {}
	}
	return o
}

// or returns the limits l with its zero fields replaced by the fields of d.
func (l Limits) or(d Limits) Limits {
	fill(&l.Memory, d.Memory)
	fill(&l.FileSize, d.FileSize)
	fill(&l.OpenFiles, d.OpenFiles)
	fill(&l.Processes, d.Processes)
	fill(&l.ScratchBytes, d.ScratchBytes)
	fill(&l.ScratchFiles, d.ScratchFiles)
	fill(&l.Data, l.Memory+64<<20)
	fill(&l.Threads, 16*l.Processes)
	return l
}

func fill[T int | int64](p *T, d T) {
	if *p == 0 {
		*p = d
	}
}

func defaultLimits(memory int64) Limits {
	return Limits{
		Memory: memory, FileSize: 256 << 20, OpenFiles: 256, Processes: 64, ScratchBytes: 512 << 20, ScratchFiles: 20_000,
	}
}

// capacity returns the number of executors with a memory limit that fit into total bytes: most use far less than their
// limit.
func capacity(total, limit int64) int {
	n := int(float64(total-workerReserve) / float64(limit) * 1.5)
	return min(max(n, runtime.NumCPU(), 4), 64)
}
