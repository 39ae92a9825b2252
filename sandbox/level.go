package sandbox

import "fmt"

// Level says how far an executor is kept from the rest of the machine.
type Level string

// The levels, weakest first.
const (
	LevelNone    Level = "none"    // in the worker's own process
	LevelProcess Level = "process" // a child under a minder: clean environment, resource limits, no new privileges
	// and the kernel keeps it from files outside a list, other processes and dangerous system calls
	LevelConfined Level = "confined"
)

// FloorAuto is a least level: confined where the kernel can hold it, and nothing elsewhere.
const FloorAuto Level = "auto"

var rungs = map[Level]int{LevelNone: 0, LevelProcess: 1, LevelConfined: 2}

// AtLeast says whether l is no weaker than other.
func (l Level) AtLeast(other Level) bool { return rungs[l] >= rungs[other] }

// Report is what the isolation of a worker really holds, for its log, its registration and the dashboard.
type Report struct {
	Level         Level  `json:"level"`
	Reason        string `json:"reason,omitempty"` // why it is not a stronger one
	UIDPerSession bool   `json:"uid_per_session"`
	LandlockABI   int    `json:"landlock_abi"` // what the kernel offers; 0 for nothing
	// whether signals and abstract sockets of other processes are out of reach
	Signals bool `json:"signals"`
	// what code in an executor could still do, in words, as it was found by trying
	Missing  []string          `json:"missing"`
	Memory   string            `json:"memory"` // cgroup2, cgroup1, watchdog or none
	Disk     string            `json:"disk"`   // tmpfs, quota, watchdog or none
	Egress   Egress            `json:"egress"`
	EgressBy string            `json:"egress_by,omitempty"` // what holds it: landlock or seccomp
	Runtimes map[string]string `json:"runtimes"`            // program of each runtime there is
}

// egress is what code reaches of the network, and what holds it to that.
func (r Report) egress() string {
	if r.EgressBy == "" {
		return string(r.Egress)
	}
	return string(r.Egress) + " by " + r.EgressBy
}

// String is the level with what code reaches of the network, and how much is missing, in one line.
func (r Report) String() string {
	text := string(r.Level) + ", egress " + r.egress()
	switch n := len(r.Missing); n {
	case 0:
		return text
	case 1:
		return text + "; 1 thing is not held"
	default:
		return text + fmt.Sprintf("; %d things are not held", n)
	}
}

// Capabilities are the strings a worker offers: its level, every weaker one that code may be content with, and what
// holds beside it.
func (r Report) Capabilities() []string {
	var all []string
	for _, l := range []Level{LevelProcess, LevelConfined} {
		if r.Level.AtLeast(l) {
			all = append(all, "isolation:"+string(l))
		}
	}
	if r.Signals {
		all = append(all, "isolation:signals")
	}
	if r.Level.AtLeast(LevelConfined) && r.Egress != EgressOpen {
		all = append(all, "isolation:egress")
	}
	return all
}
