// Package cgroup limits the memory, processes and CPU time of executors with cgroups, version 2 or 1.
//
// The worker creates a cgroup, the supervisor enters it, and the worker removes it after the supervisor has ended. When
// a worker has died, the next worker on the host removes its cgroups.
package cgroup

// These are the mechanisms that limit a resource.
const (
	Two = "cgroup2"
	One = "cgroup1"
)

// Limits are the limits of a group; 0 means no limit.
type Limits struct {
	Memory     int64   // bytes, including kernel memory
	Threads    int     // threads of all its processes
	Processors float64 // number of processors that it may use at once
}

// Part is the control of one resource of a group.
type Part struct {
	By     string `json:"by"`   // mechanism: Two or One
	Dir    string `json:"dir"`  // folder of the group
	Parent string `json:"home"` // folder of the group that contains the worker and the supervisors
}

// Group holds the control groups of one executor and its descendants, one for each resource that control groups can
// limit on this machine. A nil group limits nothing.
type Group struct {
	Memory    *Part `json:"memory,omitempty"`
	Processes *Part `json:"processes,omitempty"`
	CPU       *Part `json:"cpu,omitempty"`
}

// by returns the mechanism that limits a resource, or an empty string.
func (p *Part) by() string {
	if p == nil {
		return ""
	}
	return p.By
}

// Limits returns the mechanisms that limit memory, processes and processor time; empty for resources without a limit.
func (g *Group) Limits() (memory, processes, cpu string) {
	if g == nil {
		return "", "", ""
	}
	return g.Memory.by(), g.Processes.by(), g.CPU.by()
}

// parts returns the distinct groups: all controllers of cgroup v2 share one, and some controllers of v1 may share one.
func (g *Group) parts() []*Part {
	if g == nil {
		return nil
	}
	var all []*Part
	for _, p := range []*Part{g.Memory, g.Processes, g.CPU} {
		known := p == nil
		for _, other := range all {
			known = known || other.Dir == p.Dir
		}
		if !known {
			all = append(all, p)
		}
	}
	return all
}

// Killed describes the kernel's out-of-memory kills.
type Killed struct {
	Processes int64 // number of processes that it killed in the group
	Own       bool  // the group was at its own limit; false: the machine or a parent group was
	Peak      int64 // maximum bytes of the group, if the kernel reports them
}
