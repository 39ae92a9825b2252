// Package supervisor supervises one executor process and its descendants, and ends them when the worker ends.
//
// A supervisor is the worker's own binary, started again without secrets and with an empty environment. It starts the
// executor with the control socket on descriptor 3, is the subreaper of all descendants, and holds a pipe to the
// worker on descriptor 4. When the pipe closes because the worker ended, it kills every descendant, removes the
// scratch folder and exits.
package supervisor

import (
	"syscall"

	"github.com/sojourn-run/sojourn/sandbox/internal/cgroup"
	"github.com/sojourn-run/sojourn/sandbox/internal/lockdown"
)

// Name is the first argument of a supervisor process. The second is the parent of its scratch folder; [EndAll] finds
// supervisors of a dead worker by both, also those of older releases, so the text of Name must not change.
const Name = "sojourn-minder"

// These are the descriptors of a supervisor besides the standard three.
const (
	controlFD  = 3 // the executor's control socket, passed on
	lifelineFD = 4 // stream socket to the worker, which sends the configuration and orders and receives facts
	roomFD     = 5 // memory shared by worker and executor, passed on as the executor's fourth
)

// Config is the first line that the worker writes to the lifeline, as JSON.
type Config struct {
	Path string   `json:"path"` // program to start
	Args []string `json:"args"` // arguments, starting with the program's name
	Env  []string `json:"env"`  // complete environment
	Dir  string   `json:"dir"`  // scratch folder: working directory of the executor, wiped at the end

	// memory limit in bytes of the executor with its descendants, resident pages and page tables; 0: no limit
	Memory       int64 `json:"memory"`
	Data         int64 `json:"data"`          // RLIMIT_DATA of each process, bytes; 0 for no limit
	FileSize     int64 `json:"file_size"`     // RLIMIT_FSIZE, bytes; 0 for no limit
	Files        int64 `json:"files"`         // RLIMIT_NOFILE; 0 for no limit
	Processes    int   `json:"processes"`     // maximum number of descendants; 0: no limit
	Threads      int   `json:"threads"`       // maximum number of threads of all processes; 0: no limit
	ScratchBytes int64 `json:"scratch_bytes"` // bytes in Dir; 0 for no limit
	ScratchFiles int   `json:"scratch_files"` // files and folders in Dir; 0 for no limit

	Room     bool            `json:"room,omitempty"` // there is shared memory at roomFD
	User     int             `json:"user,omitempty"` // user and group of the executor; 0 for the supervisor's
	Lockdown *lockdown.Rules `json:"wall,omitempty"` // restrictions of the executor; nil: none

	// control group in which the executor starts; nil: the supervisor's group. The watchdog does not check limits that
	// a group enforces
	Group *cgroup.Group `json:"group,omitempty"`
}

// These are the orders that the worker sends over the lifeline after the configuration, one byte each.
const (
	OrderBusy  = 'b' // a call runs: check the limits often
	OrderIdle  = 'i' // no call runs
	OrderTerm  = 't' // SIGTERM to the executor's process group
	OrderKill  = 'k' // kill everything and end
	OrderCount = 'n' // respond with a count fact
)

// These are the kinds of [Fact].
const (
	FactStarted = "started" // PID; or Error when the program could not be started
	FactMemory  = "memory"  // Bytes: resident memory changed, or a heartbeat while a call runs
	FactCount   = "count"   // Count: live descendants, including the executor
	FactOOM     = "oom"     // the memory limit was exceeded (Bytes); By enforced it, and all processes are being killed
	FactQuota   = "quota"   // Error names the limit; all processes are being killed
	FactEnd     = "end"     // the executor and all descendants have ended; the last fact
)

// Watchdog is the name of the supervisor as the mechanism that enforces a limit.
const Watchdog = "watchdog"

// EndUnreported is the end of an executor whose supervisor ended first, so that nothing else is known.
var EndUnreported = Fact{Exit: -1, Signal: int(syscall.SIGKILL)}

// Fact is a message of the supervisor, one line of JSON on the lifeline.
type Fact struct {
	T      string `json:"t"`
	PID    int    `json:"pid,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
	Count  int    `json:"count,omitempty"`
	Error  string `json:"error,omitempty"`
	By     string `json:"by,omitempty"`     // Watchdog, or the kind of the group
	Around bool   `json:"around,omitempty"` // with oom: the limit was that of the machine or of a parent group
	Exit   int    `json:"exit"`             // exit code of the executor, with end; -1: it was ended by a signal
	Signal int    `json:"signal,omitempty"` // signal that ended the executor
	Peak   int64  `json:"peak,omitempty"`   // maximum of resident bytes, with end
	// Descendants that outlived the executor and were killed or reaped, with end.
	Extra int `json:"extra,omitempty"`
}
