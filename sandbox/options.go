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
	// folder for scratch folders, best on a disk with room; empty for one in the system's temporary folder
	Dir         string
	Handlers    string   // folder of handlers in other languages; empty for none
	Instance    string   // name of this worker, unique among the workers that share Dir; empty for a random name
	Environment []string // extra NAME=value of every executor: never secrets, all code sees them

	Read    []string // files and folders that confined code may read in addition to its runtime and the handlers
	Write   []string // files and folders that confined code may change in addition to its scratch folder; must exist
	Private string   // a folder that Read, Write and Handlers never open, though it may lie in one of them

	// network access of code; empty for filtered if the level confined is available, and otherwise open
	Egress      Egress
	EgressAllow []string // HOST, HOST:PORT or CIDR: reached though not public, with EgressFiltered
	Apps        []string // URLs and host:port of the app: never reached, with EgressFiltered

	// the users that executors have when the worker is root, as FIRST-LAST; empty for 60600-60999 where that can be,
	// "none" for the worker's own
	Users string

	// where executors are held to their limits: CgroupAuto, or empty, in control groups where this process may make some;
	// CgroupNone never
	Cgroup string

	Node, Python string   // programs; empty looks for node and python3 in PATH
	Packages     Packages // whether what handlers need is installed for them; empty for PackagesInstall

	Level       Level // wanted; empty takes the strongest there is
	MinLevel    Level // NewPool refuses to go under it; empty for no floor; see FloorAuto
	AllowWeaker bool  // open the pool even below MinLevel

	MaxExecutors int // most executors at once, blanks included; 0 for what memory allows, at most 64
	// resident bytes of all executors above which idle ones are ended; 0 for three quarters of the machine's memory
	Memory int64
	Blank  int               // booted executors kept ready per runtime in use; 0 for one, negative for none
	Limits map[string]Limits // per runtime; zero fields take the defaults

	CancelTerm    time.Duration // from a cancel to SIGTERM; 0 for 2 s
	CancelKill    time.Duration // from a cancel to SIGKILL; 0 for 5 s
	DeadlineGrace time.Duration // from a deadline to SIGKILL; 0 for 250 ms
	IdleEvictable time.Duration // idle for so long a session may be evicted when executors run out; 0 for 60 s

	Logger zerolog.Logger

	// OnLost is called once for each session epoch whose state was lost other than by CloseSession or an eviction that
	// OnEvict allowed, after its executor ended. It runs on a separate goroutine. A rebuilt epoch may be reported
	// again.
	OnLost func(SessionLost)

	// OnEvict is called before an idle session is evicted to free executors or memory. It must notify the owner of the
	// session's state and return whether the session may be evicted. If OnEvict is nil, sessions are evicted, and
	// OnLost is called before the executor ends.
	OnEvict func(context.Context, SessionLost) bool

	kernel   *lockdown.Kernel // nil: asked
	resolver egress.Resolver  // nil: the machine's
	patience time.Duration    // with a frame that has begun; 0 for frame.Deadline

	installRetry time.Duration // after the first installation of packages that failed; 0 for installRetry
}

// Limits are the limits of an executor and its descendants.
type Limits struct {
	Memory       int64 // resident bytes of all its processes together
	Data         int64 // heap bytes of each process; 0 for Memory and 64 MiB, negative for no limit
	FileSize     int64 // bytes of one file
	OpenFiles    int   // descriptors of each process
	Processes    int   // processes at once
	Threads      int   // threads of all its processes: refused by a control group, else ended; 0 for 16 times Processes
	ScratchBytes int64 // bytes in the scratch folder
	ScratchFiles int   // files in the scratch folder
	// processors that it may use at once, if a control group limits them; 0 for all. Under contention the worker has
	// precedence over its executors in any case
	Processors float64
}

// The values of Options.Cgroup.
const (
	CgroupAuto = "auto"
	CgroupNone = "none"
)

// Fixed times and sizes.
const (
	bootTime         = 10 * time.Second       // from start to ready
	outputTimeout    = time.Minute            // for a script to say where its interpreter is, on a busy machine
	closeTime        = 5 * time.Second        // for all close hooks
	endTime          = 2 * time.Second        // from a kill to the supervisor's last word
	stoppedTime      = 200 * time.Millisecond // from a kill to the check whether the supervisor is stopped
	silenceTime      = 10 * time.Second       // of the supervisor, while a call runs; it says something every second
	writeTime        = 30 * time.Second       // for one frame to be taken
	sweepRetry       = 2 * time.Second        // after the start, for folders whose locks were held then
	tombstoneTime    = time.Hour              // for which the end of a session is remembered
	idleAfter        = time.Second            // without a call until the supervisor is notified
	reuseCalls       = 100                    // of one executor outside sessions
	reuseAge         = 10 * time.Minute
	maxUnknownFrames = 100     // frames about calls that are not there, until the executor is killed
	maxLogBytes      = 1 << 20 // kept of one call
	maxLogLine       = 16 << 10
	workerReserve    = 256 << 20 // of memory, not given to executors
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

// or returns l with its zero fields replaced by those of d.
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
