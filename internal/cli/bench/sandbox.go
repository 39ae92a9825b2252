package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/frame"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// These are the names of processes and handlers of the sandbox benchmark.
const (
	echoName     = "sojourn-frame-echo" // first argument of the process that only echoes frames
	echoActivity = "sojourn.bench.echo" // Go handler that returns its argument
	bare         = "frames"             // shown as the runtime of the process that only echoes frames
)

// SandboxOptions of a measurement of executors.
type SandboxOptions struct {
	Runtimes []string // names as in sandbox.Runtime…; empty: all available ones
	Levels   []string // process, confined; empty: both
	Cgroup   string   // sandbox.CgroupNone: executors without control groups, even if the machine supports them
	Quick    bool     // fewer calls, for a quick check
	Progress func(done, all int, what string)
	Log      zerolog.Logger
}

// SandboxResult is the result of one kind of call in one runtime at one level, or of the process that echoes frames.
type SandboxResult struct {
	Runtime string  `json:"runtime"` // "frames" for the echo
	Level   string  `json:"level,omitempty"`
	Case    string  `json:"case"`
	N       int     `json:"n"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	// processor time of the worker for each call, without that of the executor
	CPU     float64 `json:"worker_cpu_ms_per_call"`
	Skipped string  `json:"skipped,omitempty"` // why there are no figures
	Cores   int     `json:"cores"`
	Go      string  `json:"go"`
}

// Executor runs this process as the echo of frames, as a caller or as idle workers, or adds the benchmark's handlers to
// an executor of this binary. Pass it to sandbox.Main. Workers do not offer these handlers.
func Executor(all sandbox.Handlers) {
	if len(os.Args) > 0 && os.Args[0] == echoName {
		if err := echoFrames(); err != nil {
			fmt.Fprintln(os.Stderr, "echo:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[0] == callerName {
		if err := runCaller(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[0] == fleetName {
		workers, err := strconv.Atoi(os.Args[2])
		if err == nil {
			err = runFleet(os.Args[1], workers)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "workers:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if sandbox.IsExecutor() {
		all[echoActivity] = echo
	}
}

// echo returns its first argument.
func echo(_ context.Context, inv sandbox.Invocation) ([]byte, error) {
	args, err := payload.Args(payload.Payload{Blob: string(inv.Input)})
	if err != nil || len(args) == 0 {
		return nil, fmt.Errorf("no argument: %w", err)
	}
	return []byte(args[0].Blob), nil
}

// sandboxCase is one kind of call.
type sandboxCase struct {
	name     string
	cold     bool // every call starts an executor
	n, quick int
	input    any
	after    time.Duration // the process that echoes frames works for this long before it responds, as handlers do
}

// sandboxCases have inputs as in real programs: lists of records with short names, numbers, nested lists and text.
func sandboxCases() []sandboxCase {
	records := func(bytes int) any {
		const each = 180 // size of the record below, encoded
		all := make([]any, bytes/each)
		for i := range all {
			all[i] = map[string]any{
				"id": fmt.Sprintf("01JD3V9Q%06d", i), "path": "corpus/alice.txt", "tries": i, "score": 0.875, "final": i%2 == 0,
				"tags": []string{"index", "words"}, "title": "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich",
			}
		}
		return all
	}
	return []sandboxCase{
		{name: "cold", cold: true, n: 20, quick: 2, input: "x"},
		{name: "warm", n: 1000, quick: 20, input: strings.Repeat("x", 100)},
		{name: "64 KB", n: 300, quick: 5, input: records(64 << 10)},
		{name: "1 MB", n: 40, quick: 2, input: records(1 << 20)},
	}
}

// echoCases returns the cases of the echo. A process that responds at once finds the worker's thread spinning; a
// process that works for a while, as executors do, has to wake it.
func echoCases() []sandboxCase {
	const work = 100 * time.Microsecond
	return append(sandboxCases(), sandboxCase{
		name: "warm, " + work.String(), n: 1000, quick: 20, input: strings.Repeat("x", 100), after: work,
	})
}

// RunSandbox measures executors. Results are ordered by runtime, level and case; those of the echo come first.
func RunSandbox(ctx context.Context, o SandboxOptions) ([]SandboxResult, error) {
	if len(o.Runtimes) == 0 {
		o.Runtimes = []string{sandbox.RuntimeNative, sandbox.RuntimeNode, sandbox.RuntimePython}
	}
	if len(o.Levels) == 0 {
		o.Levels = []string{string(sandbox.LevelProcess), string(sandbox.LevelConfined)}
	}
	cases := sandboxCases()
	all, done := len(echoCases())+len(o.Runtimes)*len(o.Levels)*len(cases), 0
	step := func(what string) {
		done++
		if o.Progress != nil {
			o.Progress(done, all, what)
		}
	}
	results, err := measureFrames(ctx, o, step)
	if err != nil {
		return results, fmt.Errorf("echo of frames: %w", err)
	}
	sandbox.Native[echoActivity] = echo // the executors of this process also register it
	defer delete(sandbox.Native, echoActivity)
	for _, rt := range o.Runtimes {
		for _, level := range o.Levels {
			some, err := measureRuntime(ctx, o, rt, sandbox.Level(level), cases, step)
			results = append(results, some...)
			if err != nil {
				return results, fmt.Errorf("%s at level %s: %w", rt, level, err)
			}
		}
	}
	return results, nil
}

// measureRuntime measures all cases in one runtime at one level.
func measureRuntime(
	ctx context.Context, o SandboxOptions, rt string, level sandbox.Level, cases []sandboxCase, step func(string),
) (results []SandboxResult, err error) {
	dir, err := os.MkdirTemp("", "sojourn-bench-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	handlers := filepath.Join(dir, "handlers")
	if err := errors.Join(
		os.Chmod(dir, 0o755), os.Mkdir(handlers, 0o755), // executors with other users can read the folder
		os.WriteFile(filepath.Join(handlers, "echo-node.mjs"), []byte("export const main = (input) => input;\n"), 0o644),
		os.WriteFile(filepath.Join(handlers, "echo-python.py"), []byte("def main(input, ctx):\n    return input\n"), 0o644),
	); err != nil {
		return nil, err
	}
	skipped := func(why string) []SandboxResult {
		for _, c := range cases {
			results = append(results, SandboxResult{Runtime: rt, Level: string(level), Case: c.name, Skipped: why})
			step(rt + " " + string(level) + " " + c.name)
		}
		return results
	}
	pool, err := sandbox.NewPool(sandbox.Options{
		Dir: filepath.Join(dir, "executors"), Handlers: handlers, Level: level, Blank: -1, Logger: o.Log,
		Cgroup: o.Cgroup,
	})
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if r := pool.Report(); r.Level != level {
		return skipped(r.Reason), nil
	} else if _, there := r.Runtimes[rt]; !there {
		return skipped("not on this machine"), nil
	}
	activity := map[string]string{sandbox.RuntimeNative: echoActivity}[rt]
	if activity == "" {
		activity = "echo-" + rt
	}
	epoch := int64(1)
	for _, c := range cases {
		input, err := payload.EncodeArgs(c.input)
		if err != nil {
			return results, err
		}
		call := func() error {
			_, err := pool.Invoke(ctx, sandbox.Invocation{
				ID: "bench", Activity: activity, Attempt: 1, Input: input.Text(),
				Session: &sandbox.Session{ID: "bench", Epoch: epoch},
			}, sandbox.Hooks{})
			return err
		}
		before := func() error { return nil }
		if c.cold {
			before = func() error {
				err := pool.CloseSession(ctx, sandbox.Session{ID: "bench", Epoch: epoch}, "the next begins")
				epoch++
				return err
			}
		}
		r, err := measureCalls(c, o.Quick, before, call)
		r.Runtime, r.Level = rt, string(level)
		if err != nil {
			return results, fmt.Errorf("%s: %w", c.name, err)
		}
		results = append(results, r)
		step(rt + " " + string(level) + " " + c.name)
	}
	return results, nil
}

// measureCalls runs the calls of one case after a few warm-up calls. Warm-up calls are not measured, except for the
// processor time of a cold start.
func measureCalls(c sandboxCase, quick bool, before, call func() error) (SandboxResult, error) {
	n := c.n
	if quick {
		n = c.quick
	}
	r := SandboxResult{Case: c.name, N: n, Cores: runtime.NumCPU(), Go: runtime.Version()}
	for range max(1, n/10) { // so that the runtime has compiled hot code
		if err := errors.Join(before(), call()); err != nil {
			return r, err
		}
	}
	each := make([]time.Duration, 0, n)
	runtime.GC()
	used := cpuTime()
	for range n {
		if err := before(); err != nil {
			return r, err
		}
		start := time.Now()
		if err := call(); err != nil {
			return r, err
		}
		each = append(each, time.Since(start))
	}
	r.CPU = millis(cpuTime()-used) / float64(n)
	r.P50, r.P99 = millis(percentile(each, 50)), millis(percentile(each, 99))
	return r, nil
}

// measureFrames sends the same payloads to a process that only sends them back.
func measureFrames(
	ctx context.Context, o SandboxOptions, step func(string),
) (results []SandboxResult, err error) {
	var peer *framePeer
	defer func() {
		if peer != nil {
			err = errors.Join(err, peer.endPeer())
		}
	}()
	for _, c := range echoCases() {
		input, err := payload.EncodeArgs(c.input)
		if err != nil {
			return results, err
		}
		before := func() error { return nil }
		if c.cold {
			before = func() (err error) {
				if peer != nil {
					err = peer.endPeer()
				}
				peer = nil
				return err
			}
		}
		r, err := measureCalls(c, o.Quick, before, func() error {
			if peer == nil {
				if peer, err = startFramePeer(ctx); err != nil {
					return err
				}
			}
			return peer.call(input.Text(), c.after)
		})
		r.Runtime = bare
		if err != nil {
			return results, fmt.Errorf("%s: %w", c.name, err)
		}
		results = append(results, r)
		step(bare + " " + c.name)
	}
	return results, nil
}

// framePeer is a process that echoes frames, at the other end of a pair of sockets like that of an executor.
type framePeer struct {
	cmd    *exec.Cmd
	conn   net.Conn
	frames *frame.Reader
	buf    []byte
}

func startFramePeer(ctx context.Context) (*framePeer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	ours, theirs := os.NewFile(uintptr(fds[0]), "frames"), os.NewFile(uintptr(fds[1]), "frames")
	defer ours.Close()
	defer theirs.Close()
	p := &framePeer{cmd: exec.CommandContext(ctx, self)}
	if p.conn, err = net.FileConn(ours); err != nil {
		return nil, err
	}
	p.cmd.Args, p.cmd.ExtraFiles, p.cmd.Stderr = []string{echoName}, []*os.File{theirs}, os.Stderr
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, p.conn.Close())
	}
	p.frames = frame.NewReader(p.conn, frame.DefaultLimits, p.conn.SetReadDeadline)
	return p, nil
}

// call sends a body and waits until it receives the body again.
func (p *framePeer) call(body []byte, after time.Duration) error {
	h := frame.Header{T: frame.Invoke, ID: "1", Attempt: int(after.Microseconds())}
	head, err := frame.AppendHead(p.buf[:0], &frame.Frame{Header: h, Body: body}, frame.DefaultLimits)
	if err != nil {
		return err
	}
	p.buf = head
	if _, err := (&net.Buffers{head, body}).WriteTo(p.conn); err != nil {
		return err
	}
	f, err := p.frames.Read()
	if err == nil && len(f.Body) != len(body) {
		err = fmt.Errorf("the executor returned %d bytes, want %d", len(f.Body), len(body))
	}
	return err
}

// endPeer ends the process and returns how it ended.
func (p *framePeer) endPeer() error { return errors.Join(p.conn.Close(), p.cmd.Wait()) }

// echoFrames sends every received frame back until the end of the stream.
func echoFrames() error {
	file := os.NewFile(3, "frames")
	conn, err := net.FileConn(file)
	if err != nil {
		return err
	}
	_ = file.Close()
	r := frame.NewReader(conn, frame.DefaultLimits, conn.SetReadDeadline)
	var head []byte
	for {
		f, err := r.Read()
		if err != nil {
			return nil //nolint:nilerr // the other side left, as it does when it has measured
		}
		for began := time.Now(); time.Since(began) < time.Duration(f.Attempt)*time.Microsecond; {
			continue // the process is busy
		}
		if head, err = frame.AppendHead(head[:0], &f, frame.DefaultLimits); err != nil {
			return err
		}
		if _, err := (&net.Buffers{head, f.Body}).WriteTo(conn); err != nil {
			return err
		}
	}
}
