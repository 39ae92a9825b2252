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

// Resources that a probe exceeds, to find the mechanism that limits them.
const (
	takeProcesses = "processes"
	takeMemory    = "memory"
	takeDisk      = "disk"
	takeCPU       = "cpu"
)

// The limits of such a prober.
const (
	triedMemory    = 64 << 20
	countedMemory  = 16 << 20 // of that a prober takes where a group has to count it
	triedProcesses = 4
	triedDisk      = 1 << 20
	triedCPU       = 0.01 // so little that it is used up also on a machine that has much else to do
)

const heldByNone = "none"

// held lists the mechanisms that enforce the limits of executors.
type held struct{ memory, processes, cpu, disk string }

// groupsOf are the control groups that executors can have; nil, and why, when they cannot.
func groupsOf(o Options) (*cgroup.Tree, error) {
	switch o.Cgroup {
	case CgroupNone:
		return nil, errors.New("the settings ask for none")
	case CgroupAuto, "":
		return cgroup.Open()
	}
	return nil, fmt.Errorf("%q is neither %s nor %s", o.Cgroup, CgroupAuto, CgroupNone)
}

// group returns the limits that a control group can enforce.
func (l Limits) group() cgroup.Limits {
	return cgroup.Limits{Memory: l.Memory, Threads: l.Threads, Processors: l.Processors}
}

// measure runs probes that exceed each limit to find out which mechanism enforces it. It removes control groups that do
// not limit any process.
func (p *Pool) measure() error {
	tests.Lock()
	defer tests.Unlock()
	k := trial{users: p.users != nil, groups: p.groups != nil}
	h, done := tests.limits[k]
	if !done {
		var err error
		if h, err = p.limited(); err != nil && p.groups != nil {
			p.groups.Close()
			p.groups, p.report.Cgroup = nil, err.Error()
			h, err = p.limited()
		}
		if err != nil {
			return fmt.Errorf("test of limits: %w", err)
		}
		if k.groups == (p.groups != nil) {
			tests.limits[k] = h
		}
	}
	p.report.Memory, p.report.Processes, p.report.CPU, p.report.Disk = h.memory, h.processes, h.cpu, h.disk
	return nil
}

// limited runs the probes. With control groups one probe tests several limits, since it survives reaching them. For
// memory and processes it suffices that the group counts its members: an out-of-memory kill at each start would trigger
// alerts.
func (p *Pool) limited() (h held, err error) {
	h = held{heldByNone, heldByNone, heldByNone, heldByNone}
	var all errgroup.Group
	try := func(fn func(*taker) error, takes ...string) {
		all.Go(func() error {
			t := &taker{pool: p, found: &h}
			err := t.start(takes)
			if err == nil {
				err = fn(t)
			}
			t.endProber()
			if err != nil {
				return fmt.Errorf("%s: %w", takes[0], err)
			}
			return nil
		})
	}
	memory, processes, cpu := p.groups.Holds()
	var grouped []string
	for _, r := range []struct{ take, by string }{
		{takeMemory, memory}, {takeProcesses, processes}, {takeCPU, cpu},
	} {
		switch {
		case r.by != "":
			grouped = append(grouped, r.take)
		case r.take != takeCPU && watches(r.take):
			try(func(t *taker) error {
				t.proc.order(supervisor.OrderBusy)
				return t.until(r.take, nil)
			}, r.take)
		}
	}
	try(func(t *taker) error {
		for _, take := range grouped {
			if take == takeCPU {
				if err := t.group.Share(triedCPU); err != nil {
					return err
				}
			}
			if err := t.until(take, t.reached); err != nil {
				return err
			}
		}
		if err := t.group.Share(0); err != nil { // else its end takes as long
			return err
		}
		t.proc.order(supervisor.OrderBusy)
		return t.until(takeDisk, nil)
	}, append(grouped, takeDisk)...)
	return h, all.Wait()
}

// taker is a probe that exceeds limits, and its results.
type taker struct {
	pool    *Pool
	found   *held
	proc    *process
	user    *user
	group   *cgroup.Group
	scratch string
	facts   chan supervisor.Fact
}

func (t *taker) start(takes []string) (err error) {
	name := "limits-" + takes[0]
	t.scratch = filepath.Join(t.pool.dir, name)
	if t.user, err = t.pool.users.takeUser(); err != nil {
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
	for _, take := range takes {
		switch take {
		case takeMemory:
			c.Memory, l.Memory = triedMemory, triedMemory
		case takeProcesses:
			c.Processes, l.Threads = triedProcesses, 1000
		case takeDisk:
			c.ScratchBytes = triedDisk
		}
	}
	if t.group, err = t.pool.groups.Make(filepath.Base(t.pool.dir)+"-"+name, l); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	c.Group = t.group
	memory, processes, _ := t.group.Holds()
	if memory != "" { // is asked of the group alone
		c.Memory = 0
	}
	if processes != "" {
		c.Processes = 0
	}
	if t.proc, err = startProcess(c); err != nil {
		return err
	}
	encoded, err := json.Marshal(aim{Take: takes})
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
		for f := range t.facts { // says more than that there was no answer
			if f.Error != "" {
				err = errors.New(f.Error)
			}
		}
	}
	return err
}

// reached returns the kind of group that limits the probe's use of a resource; empty as long as no limit was reached.
func (t *taker) reached(take string) string {
	memory, processes, cpu := t.group.Holds()
	if n, ok := t.group.Use(); take == takeMemory && ok && n >= countedMemory {
		return memory
	}
	switch {
	case take == takeProcesses && t.group.Count() > 0:
		return processes
	case take == takeCPU && t.group.Throttled() > 0:
		return cpu
	}
	return ""
}

// until waits until a limit stops the probe. Either the supervisor reports this, or the result of ask does. After
// probeTime without a report, no mechanism enforces the limit.
func (t *taker) until(take string, ask func(take string) string) error {
	field := map[string]*string{
		takeMemory: &t.found.memory, takeProcesses: &t.found.processes, takeCPU: &t.found.cpu, takeDisk: &t.found.disk,
	}[take]
	late := time.NewTimer(probeTime)
	defer late.Stop()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-late.C:
			return nil
		case <-look.C:
			if ask == nil {
				continue
			}
			if by := ask(take); by != "" {
				*field = by
				return nil
			}
		case f, more := <-t.facts:
			switch {
			case !more || f.T == supervisor.FactEnd && f.Error != "":
				return errors.New("it ended before a limit was reached: " + f.Error)
			case f.T == supervisor.FactOOM && take == takeMemory, f.T == supervisor.FactQuota && take != takeMemory:
				*field = supervisor.Watchdog
				return nil
			}
		}
	}
}

// endProber ends the probe and removes its files.
func (t *taker) endProber() {
	if t.proc != nil {
		t.proc.order(supervisor.OrderKill)
		_ = t.proc.line.SetReadDeadline(time.Now().Add(probeTime))
		if t.facts != nil {
			for range t.facts { // until there are none
			}
		}
		_ = t.proc.cmd.Process.Kill()
		_ = t.proc.cmd.Wait()
		t.proc.release()
	}
	t.group.Remove()
	supervisor.Wipe(t.scratch)
	t.user.give()
}

// takeAll is the main function of a probe that exceeds limits. It uses less of resources that a group only has to
// count.
func takeAll(takes []string, control *os.File) {
	dir, _ := os.Getwd()
	var all [][]byte
	memory := func(bytes int) {
		for range bytes >> 20 {
			all = append(all, slices.Repeat([]byte{1}, 1<<20))
		}
	}
	alone := len(takes) == 1
	if slices.Contains(takes, takeMemory) && !alone {
		memory(countedMemory)
	}
	if slices.Contains(takes, takeDisk) {
		_ = os.WriteFile(filepath.Join(dir, "large"), make([]byte, 4*triedDisk), 0o600)
	}
	_, _ = control.Write([]byte("\n"))
	if slices.Contains(takes, takeProcesses) && alone {
		program, _ := self()
		for range 2 * triedProcesses {
			c := exec.Command(program) //nolint:noctx // it is killed
			c.Args = []string{proberName, "idle"}
			if c.Start() != nil {
				break
			}
		}
	}
	if slices.Contains(takes, takeMemory) && alone {
		memory(4 * triedMemory)
	}
	for slices.Contains(takes, takeCPU) { // that is what it is for
	}
	time.Sleep(probeTime)
	runtime.KeepAlive(all)
}
