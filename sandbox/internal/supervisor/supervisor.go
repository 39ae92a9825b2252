//go:build unix

package supervisor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sojourn-run/sojourn/sandbox/internal/lockdown"
)

// The supervisor runs from init, as soon as the packages that it imports are initialised. It uses the same binary as
// the app and the worker. Initialising their other packages (tables, patterns, metrics) would take two thirds of its
// start time, and memory until the executor ends.
func init() {
	if len(os.Args) > 0 && os.Args[0] == Name {
		run()
	}
}

// run is the main function of a supervisor; it never returns. A dedicated thread applies the lockdown to itself and
// starts the executor. This thread lives as long as the supervisor, so that the executor dies with the supervisor
// (PR_SET_PDEATHSIG on Linux). The other threads are not restricted: they watch and kill the executor.
func run() {
	closeInherited(roomFD)
	syscall.CloseOnExec(lifelineFD)
	syscall.CloseOnExec(roomFD)
	_ = syscall.SetNonblock(lifelineFD, true)
	m := &supervisor{
		line: os.NewFile(lifelineFD, "lifeline"), poke: make(chan struct{}, 1), began: make(chan struct{}, 1),
		killed: make(chan struct{}),
	}
	in := bufio.NewReader(m.line)
	first, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(first, &m.Config)
	}
	if err != nil {
		os.Exit(2) // the worker has ended, or another program started this process
	}
	lockdown.OnOwnThread(func() { err = m.start() })
	_, _ = syscall.Close(controlFD), syscall.Close(roomFD)
	detach()
	if err != nil {
		m.report(Fact{T: FactStarted, Error: err.Error()})
		m.exitWith(Fact{T: FactEnd, Exit: -1, Error: err.Error()})
	}
	m.report(Fact{T: FactStarted, PID: m.pid})
	go m.obey(in)
	go m.watch()
	go m.countProcesses()
	m.exitWith(m.reap())
}

type supervisor struct {
	Config
	line *os.File // the lifeline; os.File serializes its writes
	pid  int      // PID of the executor

	busy   atomic.Bool
	poke   chan struct{} // wakes the watchdog when a call begins
	began  chan struct{} // the same for the goroutine that counts processes
	peak   atomic.Int64
	once   sync.Once
	oom    sync.Once
	killed chan struct{} // closed when everything is to be killed
}

// Values of oom_score_adj, by which the kernel kills executors first, then supervisors, then the worker. The kernel may
// choose a second victim before the memory of a killed executor is freed.
const (
	executorScore   = 800
	supervisorScore = 700
)

// start sets the attributes of this thread, which the child inherits, and starts the executor from it. Attributes of
// the process also apply to the supervisor.
func (m *supervisor) start() error {
	if err := becomeSubreaper(); err != nil {
		return err
	}
	setOOMScoreAdj(os.Getpid(), supervisorScore)
	// the kernel's limit of threads for the executor's user; the watchdog ends the executor at half of it
	most := int64(-1)
	if m.User > 0 && m.Threads > 0 {
		most = 2 * int64(m.Threads)
	}
	for _, l := range []struct {
		name  string
		which int
		value int64
	}{
		{"core size", syscall.RLIMIT_CORE, 0},
		{"data", syscall.RLIMIT_DATA, orNone(m.Data)},
		{"file size", syscall.RLIMIT_FSIZE, orNone(m.FileSize)},
		{"open files", syscall.RLIMIT_NOFILE, orNone(m.Files)},
		{"threads", maxThreads, most},
	} {
		if err := lowerLimit(l.which, l.value); err != nil {
			return fmt.Errorf("set the limit of %s: %w", l.name, err)
		}
	}
	null, err := syscall.Open(os.DevNull, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", os.DevNull, err)
	}
	defer syscall.Close(null)
	if err := m.Group.Enter(); err != nil {
		return fmt.Errorf("enter the control group: %w", err)
	}
	if m.Lockdown != nil { // opened before the change of user: another user may be unable to open the path
		if err := lockdown.Raise(*m.Lockdown); err != nil {
			return err
		}
	}
	if err := dropPrivileges(m.User); err != nil {
		return err
	}
	files := []uintptr{uintptr(null), 1, 2, controlFD}
	if m.Room {
		files = append(files, roomFD)
	}
	m.pid, err = syscall.ForkExec(m.Path, m.Args, &syscall.ProcAttr{
		Dir: m.Dir, Env: m.Env, Files: files, Sys: childAttr(),
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", m.Path, err)
	}
	returned := make(chan error)
	go func() { // on another thread, because this thread has dropped the necessary rights
		setOOMScoreAdj(m.pid, executorScore)
		returned <- m.Group.Return()
	}()
	if err := <-returned; err != nil {
		return fmt.Errorf("leave the executor's control group: %w", err)
	}
	return nil
}

// orNone returns no limit (-1) for 0.
func orNone(n int64) int64 {
	if n <= 0 {
		return -1
	}
	return n
}

// lowerLimit sets the soft and the hard limit to n, or to the current hard limit if that is lower; -1 changes nothing.
func lowerLimit(which int, n int64) error {
	if n < 0 {
		return nil
	}
	var now syscall.Rlimit
	if err := syscall.Getrlimit(which, &now); err != nil {
		return err
	}
	limit := uint64(n)
	if limit > now.Max {
		limit = now.Max
	}
	return syscall.Setrlimit(which, &syscall.Rlimit{Cur: limit, Max: limit})
}

// detach closes the executor's output in the supervisor, so that it ends when the executor's processes close it.
func detach() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer null.Close()
	for fd := range 3 {
		_ = dup(int(null.Fd()), fd)
	}
}

func (m *supervisor) report(f Fact) {
	line, _ := json.Marshal(f)
	// A worker that does not read must not delay the end of the supervisor.
	_ = m.line.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = m.line.Write(append(line, '\n'))
}

// obey executes the worker's orders until the lifeline breaks; then it kills all descendants.
func (m *supervisor) obey(in *bufio.Reader) {
	for {
		order, err := in.ReadByte()
		if err != nil {
			m.kill()
			return
		}
		switch order {
		case OrderBusy, OrderIdle:
			m.busy.Store(order == OrderBusy)
			for _, wake := range []chan struct{}{m.poke, m.began} {
				select {
				case wake <- struct{}{}:
				default:
				}
			}
		case OrderTerm:
			_ = syscall.Kill(-m.pid, syscall.SIGTERM)
		case OrderCount:
			m.report(Fact{T: FactCount, Count: len(descendants(m.pid, 0))})
		case OrderKill:
			m.kill()
		}
	}
}

// kill starts killing every descendant and continues until the process ends.
func (m *supervisor) kill() {
	m.once.Do(func() {
		close(m.killed)
		go func() {
			for pause := time.Duration(0); ; pause = min(pause+time.Millisecond, 20*time.Millisecond) {
				_ = syscall.Kill(-m.pid, syscall.SIGKILL)
				killUser(m.User)
				m.Group.Kill()
				for _, pid := range descendants(m.pid, 0) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
				time.Sleep(pause)
			}
		}()
	})
}

// reap reaps children, including reparented processes, until none remains. When the executor ends, reap kills its
// descendants.
func (m *supervisor) reap() Fact {
	end := Fact{T: FactEnd, Exit: -1}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // ECHILD: there are no more children
			m.outOfMemory()
			end.Peak = m.peak.Load()
			return end
		case pid == m.pid:
			if end.Exit = status.ExitStatus(); status.Signaled() {
				end.Signal = int(status.Signal())
			}
			m.kill()
		case end.Signal != 0 || end.Exit >= 0:
			end.Extra++
		}
	}
}

// exitWith wipes the scratch folder, sends the last fact and exits.
func (m *supervisor) exitWith(last Fact) {
	if m.Dir != "" {
		Wipe(m.Dir)
	}
	m.report(last)
	os.Exit(0)
}
