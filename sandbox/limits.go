package sandbox

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sojourn-run/sojourn/sandbox/internal/cgroup"
	"github.com/sojourn-run/sojourn/sandbox/internal/supervisor"
)

// These are the resources that a probe exceeds, to find out which mechanism limits them.
const (
	resourceProcesses = "processes"
	resourceMemory    = "memory"
	resourceDisk      = "disk"
	resourceCPU       = "cpu"
)

// These are the limits of these probes.
const (
	probeMemory    = 64 << 20
	countedMemory  = 16 << 20 // memory that a probe uses if a group only has to count it
	probeProcesses = 4
	probeDisk      = 1 << 20
	probeCPU       = 0.01 // a small quota, so that the probe exhausts it even on a busy machine
)

const enforcedByNone = "none"

// limitMechanisms returns the mechanisms that enforce the limits of executors.
type limitMechanisms struct{ memory, processes, cpu, disk string }

// groupsOf returns the cgroups that executors can have, or nil and the reason why they cannot have any.
func groupsOf(o Options) (*cgroup.Tree, error) {
	switch o.Cgroup {
	case CgroupNone:
		return nil, errors.New("the setting executor-cgroup is none")
	case CgroupAuto, "":
		return cgroup.Open()
	}
	return nil, fmt.Errorf("executor-cgroup is %q; it must be %s or %s", o.Cgroup, CgroupAuto, CgroupNone)
}

// group returns the limits that a control group can enforce.
func (l Limits) group() cgroup.Limits {
	return cgroup.Limits{Memory: l.Memory, Threads: l.Threads, Processors: l.Processors}
}

// measure runs probes that exceed each limit to find out which mechanism enforces it. It removes control groups that do
// not limit any process.
func (p *Pool) measure() error {
	probeCache.Lock()
	defer probeCache.Unlock()
	k := probeConfig{users: p.users != nil, groups: p.groups != nil}
	h, done := probeCache.limits[k]
	if !done {
		var err error
		if h, err = p.probeLimits(); err != nil && p.groups != nil {
			p.groups.Close()
			p.groups, p.report.Cgroup = nil, err.Error()
			h, err = p.probeLimits()
		}
		if err != nil {
			return fmt.Errorf("self-test of the limits of executors: %w", err)
		}
		if k.groups == (p.groups != nil) {
			probeCache.limits[k] = h
		}
	}
	p.report.Memory, p.report.Processes, p.report.CPU, p.report.Disk = h.memory, h.processes, h.cpu, h.disk
	return nil
}

// probeLimits runs the probes. With control groups one probe tests several limits, since it survives reaching them. For
// memory and processes it suffices that the group counts its members: an out-of-memory kill at each start would trigger
// alerts.
func (p *Pool) probeLimits() (h limitMechanisms, err error) {
	h = limitMechanisms{enforcedByNone, enforcedByNone, enforcedByNone, enforcedByNone}
	var all errgroup.Group
	run := func(fn func(*limitProbe) error, resources ...string) {
		all.Go(func() error {
			t := &limitProbe{pool: p, found: &h}
			err := t.start(resources)
			if err == nil {
				err = fn(t)
			}
			t.endProber()
			if err != nil {
				return fmt.Errorf("%s: %w", resources[0], err)
			}
			return nil
		})
	}
	memory, processes, cpu := p.groups.Holds()
	var grouped []string
	for _, r := range []struct{ acquire, by string }{
		{resourceMemory, memory}, {resourceProcesses, processes}, {resourceCPU, cpu},
	} {
		switch {
		case r.by != "":
			grouped = append(grouped, r.acquire)
		case r.acquire != resourceCPU && watches(r.acquire):
			run(func(t *limitProbe) error {
				t.proc.order(supervisor.OrderBusy)
				return t.until(r.acquire, nil)
			}, r.acquire)
		}
	}
	run(func(t *limitProbe) error {
		for _, acquire := range grouped {
			if acquire == resourceCPU {
				if err := t.group.SetProcessors(probeCPU); err != nil {
					return err
				}
			}
			if err := t.until(acquire, t.limitedBy); err != nil {
				return err
			}
		}
		if err := t.group.SetProcessors(0); err != nil { // otherwise the probe would also end slowly
			return err
		}
		t.proc.order(supervisor.OrderBusy)
		return t.until(resourceDisk, nil)
	}, append(grouped, resourceDisk)...)
	return h, all.Wait()
}

// limitProbe is a probe that exceeds limits, and its results.
type limitProbe struct {
	pool    *Pool
	found   *limitMechanisms
	proc    *process
	user    *user
	group   *cgroup.Group
	scratch string
	facts   chan supervisor.Fact
}

func (t *limitProbe) start(resources []string) (err error) {
	name := "limits-" + resources[0]
	t.scratch = filepath.Join(t.pool.dir, name)
	if t.user, err = t.pool.users.acquireUser(); err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(t.scratch, 0o700), t.user.own(t.scratch)); err != nil {
		return err
	}
	program, err := self()
	if err != nil {
		return err
	}
	c := supervisor.Config{
		Path: program, Args: []string{proberName}, Dir: t.scratch, User: t.user.number(),
		Env: (&language{}).environment(Options{}, t.scratch),
	}
	l := cgroup.Limits{}
	for _, acquire := range resources {
		switch acquire {
		case resourceMemory:
			c.Memory, l.Memory = probeMemory, probeMemory
		case resourceProcesses:
			c.Processes, l.Threads = probeProcesses, 1000
		case resourceDisk:
			c.ScratchBytes = probeDisk
		}
	}
	if t.group, err = t.pool.groups.Make(filepath.Base(t.pool.dir)+"-"+name, l); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	c.Group = t.group
	memory, processes, _ := t.group.Limits()
	if memory != "" { // a control group limits memory: check only the group
		c.Memory = 0
	}
	if processes != "" {
		c.Processes = 0
	}
	if t.proc, err = startProcess(c); err != nil {
		return err
	}
	encoded, err := json.Marshal(aim{Resources: resources})
	if err == nil {
		_ = t.proc.control.SetDeadline(time.Now().Add(probeTime))
		_, err = t.proc.control.Write(append(encoded, '\n'))
	}
	if err != nil {
		return err
	}
	t.facts = make(chan supervisor.Fact, 1)
	go func() {
		defer close(t.facts)
		for {
			f, err := t.proc.fact()
			if err != nil {
				return
			}
			t.facts <- f
		}
	}()
	// The probe has filled its folder when it responds.
	if _, err = bufio.NewReader(t.proc.control).ReadBytes('\n'); err != nil {
		for f := range t.facts { // the reported fact has more information than a missing response
			if f.Error != "" {
				err = errors.New(f.Error)
			}
		}
	}
	return err
}

// limitedBy returns the kind of group that limits the probe's use of a resource; empty as long as no limit was reached.
func (t *limitProbe) limitedBy(resource string) string {
	memory, processes, cpu := t.group.Limits()
	if n, ok := t.group.Use(); resource == resourceMemory && ok && n >= countedMemory {
		return memory
	}
	switch {
	case resource == resourceProcesses && t.group.Count() > 0:
		return processes
	case resource == resourceCPU && t.group.Throttled() > 0:
		return cpu
	}
	return ""
}

// until waits until a limit stops the probe. The limit is reported by the supervisor or by ask. After probeTime without
// a report, no mechanism enforces the limit.
func (t *limitProbe) until(resource string, limitedBy func(resource string) string) error {
	field := map[string]*string{
		resourceMemory: &t.found.memory, resourceProcesses: &t.found.processes, resourceCPU: &t.found.cpu,
		resourceDisk: &t.found.disk,
	}[resource]
	timeout := time.NewTimer(probeTime)
	defer timeout.Stop()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-timeout.C:
			return nil
		case <-ticker.C:
			if limitedBy == nil {
				continue
			}
			if by := limitedBy(resource); by != "" {
				*field = by
				return nil
			}
		case f, more := <-t.facts:
			switch {
			case !more || f.T == supervisor.FactEnd && f.Error != "":
				return errors.New("the probe ended before it reached a limit: " + f.Error)
			case f.T == supervisor.FactOOM && resource == resourceMemory,
				f.T == supervisor.FactQuota && resource != resourceMemory:
				*field = supervisor.Watchdog
				return nil
			}
		}
	}
}

// endProber ends the probe and removes its files.
func (t *limitProbe) endProber() {
	if t.proc != nil {
		t.proc.order(supervisor.OrderKill)
		_ = t.proc.line.SetReadDeadline(time.Now().Add(probeTime))
		if t.facts != nil {
			for range t.facts { // until the channel is closed
			}
		}
		_ = t.proc.cmd.Process.Kill()
		_ = t.proc.cmd.Wait()
		t.proc.release()
	}
	t.group.Remove()
	supervisor.Wipe(t.scratch)
	t.user.release()
}

// exceedLimits is the main function of a probe that exceeds limits. It uses less of resources that a group only has to
// count.
func exceedLimits(resources []string, control *os.File) {
	dir, _ := os.Getwd()
	var all [][]byte
	memory := func(bytes int) {
		for range bytes >> 20 {
			all = append(all, slices.Repeat([]byte{1}, 1<<20))
		}
	}
	single := len(resources) == 1
	if slices.Contains(resources, resourceMemory) && !single {
		memory(countedMemory)
	}
	if slices.Contains(resources, resourceDisk) {
		_ = os.WriteFile(filepath.Join(dir, "large"), make([]byte, 4*probeDisk), 0o600)
	}
	_, _ = control.Write([]byte("\n"))
	if slices.Contains(resources, resourceProcesses) && single {
		program, _ := self()
		for range 2 * probeProcesses {
			c := exec.Command(program) //nolint:noctx // it is killed
			c.Args = []string{proberName, "idle"}
			if c.Start() != nil {
				break
			}
		}
	}
	if slices.Contains(resources, resourceMemory) && single {
		memory(4 * probeMemory)
	}
	for slices.Contains(resources, resourceCPU) { // use processor time until the limit applies
	}
	time.Sleep(probeTime)
	runtime.KeepAlive(all)
}
