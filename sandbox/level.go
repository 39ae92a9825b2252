package sandbox

import "fmt"

// Level says how far an executor is kept from the rest of the machine.
type Level string

// The levels, weakest first. External stands beside the ladder: what it holds is up to the program that starts the executor.
const (
	LevelNone      Level = "none"      // in the worker's own process
	LevelProcess   Level = "process"   // a child under a minder: clean environment, resource limits, no new privileges
	LevelConfined  Level = "confined"  // and the kernel's filters on files, network and system calls
	LevelNamespace Level = "namespace" // and namespaces of its own
	LevelExternal  Level = "external"  // started by another sandbox
)

var rungs = map[Level]int{LevelNone: 0, LevelProcess: 1, LevelConfined: 2, LevelNamespace: 3, LevelExternal: 4}

// ParseLevel reads a level by name.
func ParseLevel(s string) (Level, error) {
	if _, ok := rungs[Level(s)]; !ok {
		return "", fmt.Errorf("unknown isolation level %q: want none, process, confined, namespace or external", s)
	}
	return Level(s), nil
}

// AtLeast says whether l is no weaker than other.
func (l Level) AtLeast(other Level) bool { return rungs[l] >= rungs[other] }

// Report is what the isolation of a worker really holds, for its log, its registration and the dashboard.
type Report struct {
	Level         Level             `json:"level"`
	UIDPerSession bool              `json:"uid_per_session"`
	LandlockABI   int               `json:"landlock_abi"` // what the kernel offers; 0 for nothing
	Missing       []string          `json:"missing"`      // what code in an executor could still do, in words
	Memory        string            `json:"memory"`       // cgroup2, cgroup1, watchdog or none
	Disk          string            `json:"disk"`         // tmpfs, quota, watchdog or none
	Egress        string            `json:"egress"`       // none, filtered, advisory or open
	Runtimes      map[string]string `json:"runtimes"`     // program of each runtime there is
}

// Capability is the string a worker offers for its level, such as isolation:process.
func (r Report) Capability() string { return "isolation:" + string(r.Level) }
