package sandbox

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/sojourn-run/sojourn/sandbox/internal/supervisor"
)

// process is an executor's process as the worker sees it: the supervisor and the files that connect to it.
type process struct {
	cmd            *exec.Cmd // the supervisor
	control        *control  // frames
	line           net.Conn  // the lifeline: closing it kills all processes
	facts          *bufio.Reader
	stdout, stderr *os.File
	shared         *sharedMemory // memory that is shared with the executor; nil: none
}

// startProcess starts a supervisor that starts the program of c.
func startProcess(c supervisor.Config) (_ *process, err error) {
	p := &process{}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
		if err != nil {
			p.release()
		}
	}()
	ours, control, err := pair("control")
	if err != nil {
		return nil, err
	}
	theirs = append(theirs, control)
	if p.control, err = newControl(ours); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	ours, line, err := pair("lifeline")
	if err != nil {
		return nil, err
	}
	theirs = append(theirs, line)
	file := os.NewFile(uintptr(ours), "lifeline")
	theirs = append(theirs, file) // the connection has duplicated the descriptor
	if p.line, err = net.FileConn(file); err != nil {
		return nil, fmt.Errorf("lifeline socket: %w", err)
	}
	var out, errs *os.File
	if p.stdout, out, err = os.Pipe(); err != nil {
		return nil, fmt.Errorf("output pipe: %w", err)
	}
	theirs = append(theirs, out)
	if p.stderr, errs, err = os.Pipe(); err != nil {
		return nil, fmt.Errorf("output pipe: %w", err)
	}
	theirs = append(theirs, errs)
	room, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", os.DevNull, err)
	}
	theirs = append(theirs, room)
	if c.Room {
		if p.shared, err = newSharedMemory(); err != nil { // an old kernel: all bodies go through the socket
			c.Room = false
		} else {
			room = p.shared.file
		}
	}
	program, err := self()
	if err != nil {
		return nil, fmt.Errorf("own program: %w", err)
	}
	command := func() *exec.Cmd {
		return &exec.Cmd{
			Path: program, Args: []string{supervisor.Name, filepath.Dir(c.Dir)}, Env: []string{}, Dir: "/",
			Stdout: out, Stderr: errs, ExtraFiles: []*os.File{control, line, room}, SysProcAttr: supervisorAttr(),
		}
	}
	if err := p.start(command, c.Group.Second()); err != nil {
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	config, err := json.Marshal(c)
	if err == nil {
		_, err = p.line.Write(append(config, '\n'))
	}
	if err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		return nil, fmt.Errorf("configure supervisor: %w", err)
	}
	p.facts = bufio.NewReader(p.line)
	return p, nil
}

// start starts a supervisor, directly in a control group if there is one: a process that is moved to a group later
// costs the kernel some milliseconds. The supervisor checks in which group it is.
func (p *process) start(command func() *exec.Cmd, group string) error {
	if group != "" {
		if dir, err := os.Open(group); err == nil {
			defer dir.Close()
			p.cmd = command()
			startInCgroup(p.cmd.SysProcAttr, int(dir.Fd())) //nolint:gosec // a descriptor
			if p.cmd.Start() == nil {
				return nil
			} // an old kernel or a seccomp filter: start it outside of the group
		}
	}
	p.cmd = command()
	return p.cmd.Start()
}

// order sends a command to the supervisor. Errors are ignored: a supervisor that has ended needs no command.
func (p *process) order(o byte) { _, _ = p.line.Write([]byte{o}) }

// fact waits for the next message of the supervisor.
func (p *process) fact() (supervisor.Fact, error) {
	var f supervisor.Fact
	line, err := p.facts.ReadSlice('\n')
	if err != nil {
		return f, err
	}
	return f, json.Unmarshal(line, &f)
}

// release closes the worker's ends.
func (p *process) release() {
	if p.control != nil {
		_ = p.control.Close()
	}
	if p.line != nil {
		_ = p.line.Close()
	}
	if p.shared != nil {
		_ = p.shared.close()
	}
	for _, f := range []*os.File{p.stdout, p.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// pair creates a connected pair of sockets: ours is a descriptor, theirs is a file that is passed to the child process.
func pair(name string) (ours int, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return 0, nil, fmt.Errorf("%s socket: %w", name, err)
	}
	return fds[0], os.NewFile(uintptr(fds[1]), name), nil
}
