package sandbox

import (
	"fmt"
	"strings"

	"github.com/sojourn-run/sojourn/sandbox/internal/cgroup"
	"github.com/sojourn-run/sojourn/sandbox/internal/supervisor"
)

// Level is the degree of isolation of an executor from the machine.
type Level string

// These are the levels, weakest first.
const (
	LevelNone    Level = "none"    // in the worker's own process
	LevelProcess Level = "process" // a child under a supervisor: clean environment, resource limits, no new privileges
	// like process; in addition, the kernel denies access to files outside a list, to other processes, and to dangerous
	// system calls
	LevelConfined Level = "confined"
)

// FloorAuto is a minimum level: confined if the kernel supports it, otherwise none.
const FloorAuto Level = "auto"

var rungs = map[Level]int{LevelNone: 0, LevelProcess: 1, LevelConfined: 2}

// AtLeast reports whether l is at least as strong as other.
func (l Level) AtLeast(other Level) bool { return rungs[l] >= rungs[other] }

// Report describes the verified isolation of a worker, for its log, its registration and the dashboard.
type Report struct {
	Level         Level  `json:"level"`
	Reason        string `json:"reason,omitempty"` // why the level is not stronger
	UIDPerSession bool   `json:"uid_per_session"`
	LandlockABI   int    `json:"landlock_abi"` // supported Landlock version; 0: not supported
	// whether signals and abstract sockets of other processes are out of reach
	Signals bool `json:"signals"`
	// protections that are missing, as sentences about what code in an executor can do, found by probes
	Missing []string `json:"missing"`

	// Mechanisms that ended, stopped or counted a probe that exceeded the limit: cgroup2, cgroup1, watchdog or none.
	Memory    string `json:"memory"`
	Processes string `json:"processes"`
	CPU       string `json:"cpu"`
	Disk      string `json:"disk"`
	Cgroup    string `json:"cgroup,omitempty"` // why no control group limits them

	Egress   Egress            `json:"egress"`
	EgressBy string            `json:"egress_by,omitempty"` // mechanism that limits it: landlock or seccomp
	Runtimes map[string]string `json:"runtimes"`            // program of each available runtime
}

// egress describes the network access of code and the mechanism that limits it.
func (r Report) egress() string {
	if r.EgressBy == "" {
		return string(r.Egress)
	}
	return string(r.Egress) + " by " + r.EgressBy
}

// unenforcedLimits describes the limits that the kernel does not enforce.
func (r Report) unenforcedLimits() []string {
	why := ""
	if r.Cgroup != "" {
		why = " (no control group: " + r.Cgroup + ")"
	}
	var all []string
	for _, resource := range []struct{ name, by string }{
		{"memory", r.Memory}, {"the number of processes", r.Processes}, {"processor time", r.CPU},
	} {
		switch resource.by {
		case cgroup.One, cgroup.Two:
			continue
		case supervisor.Watchdog:
			all = append(all, resource.name+" is watched, not capped by the kernel")
		default:
			all = append(all, resource.name+" is not limited")
		}
	}
	if len(all) == 0 {
		return nil
	}
	return []string{strings.Join(all, "; ") + why}
}

// Limits describes the mechanisms that enforce limits, in one line.
func (r Report) Limits() string {
	text := fmt.Sprintf("memory by %s, processes by %s, processor time by %s, disk by %s", r.Memory, r.Processes, r.CPU, r.Disk)
	if r.Cgroup != "" {
		text += " (no control group: " + r.Cgroup + ")"
	}
	return text
}

// String returns the level, the network access and the number of missing protections in one line.
func (r Report) String() string {
	text := string(r.Level) + ", egress " + r.egress()
	switch n := len(r.Missing); n {
	case 0:
		return text
	case 1:
		return text + "; 1 protection is missing"
	default:
		return text + fmt.Sprintf("; %d protections are missing", n)
	}
}

// Capabilities returns the worker's capabilities: its level, all weaker levels, and additional protections.
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
