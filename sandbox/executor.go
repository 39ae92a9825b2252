package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sojourn-run/sojourn/sandbox/frame"
	"github.com/sojourn-run/sojourn/sandbox/internal/cgroup"
	"github.com/sojourn-run/sojourn/sandbox/internal/egress"
	"github.com/sojourn-run/sojourn/sandbox/internal/lockdown"
	"github.com/sojourn-run/sojourn/sandbox/internal/supervisor"
)

// errExited reports that an executor ended before a call could begin in it.
var errExited = errors.New("the executor has exited")

// executor is one process that runs handlers, from its start to its end.
type executor struct {
	id      string
	scratch string
	user    *user         // nil: the worker's user
	group   *cgroup.Group // nil: the worker's group
	lang    *language
	rules   *lockdown.Rules // rules that confine it; nil at level process
	packs   string          // folder of the packages that it was started with; empty: none
	born    time.Time
	proc    *process
	pass    *egress.Pass            // its access to the network through the proxy; nil if it has other access, or none
	pid     int                     // PID of the program; 0 until started
	session atomic.Pointer[session] // nil outside sessions; set once, before the first call

	patience time.Duration           // maximum time to complete a frame; 0: the default of package frame
	onGrown  func()                  // called when its memory use changed; must not block
	onEnd    func(*executor, ending) // called before calls in flight receive their errors
	ready    chan frame.Header       // response to init
	shut     chan struct{}           // closed by the response to close
	done     chan struct{}           // closed when process, descendants and scratch folder are gone
	counts   chan int                // responses to a count

	stdout, stderr *output
	out            sync.Mutex // held while a frame is written; guards frameBuf
	frameBuf       []byte
	frames         *frame.Reader // used by the goroutine that reader names
	reads          readDeadlines
	interrupt      func()        // interrupts reads
	runMayRead     chan struct{} // notifies run that it may read

	loading  sync.Mutex     // held while code is loaded, and before the call that needs it
	sends    sync.WaitGroup // goroutines of sendAsync; increased under mu, and only before the end
	resident atomic.Int64   // bytes, as last reported by the supervisor
	refused  atomic.Bool    // a call has received the list of all rules
	tainted  atomic.Bool    // an earlier call left changes, so the executor must not be reused

	mu            sync.Mutex // guards the fields below
	calls         map[string]*call
	loaded        map[string]bool // content hashes of the code that was sent to the executor
	seq           uint64          // number of the last call
	served        int
	unknownFrames int
	pongs         []chan struct{} // closed when the executor answers a ping
	sentBusy      bool
	hasShared     bool
	lent          *call // call that uses the shared memory; nil: none
	idle          *time.Timer
	reader        frameReader
	leaving       bool    // it is closing: output until its end is not assigned to a call
	unread        error   // why no more frames can be read; nil: more frames may arrive
	servedAt      int     // value of served when run became the reader
	endCause      *ending // reason why the worker ends it; nil: the worker does not
	asked         *ending // why it was sent SIGTERM; used if it ends because of that
	ended         bool
	shutOnce      sync.Once
	forced        *time.Timer // after a kill, ends processes that the supervisor did not end
}

// launch starts an executor and waits until it accepts calls.
func launch(
	l *language, o Options, u *user, g *cgroup.Group, id, scratch string,
	onGrown func(), onEnd func(*executor, ending),
) (*executor, error) {
	ex := &executor{
		id: id, scratch: scratch, user: u, group: g, lang: l, born: time.Now(), patience: o.patience,
		onGrown: onGrown, onEnd: onEnd,
		ready: make(chan frame.Header, 1),
		shut:  make(chan struct{}), done: make(chan struct{}), counts: make(chan int, 1), runMayRead: make(chan struct{}, 1),
		calls: map[string]*call{}, loaded: map[string]bool{}, packs: l.installed(),
	}
	level := LevelProcess
	if l.rule != nil {
		level, ex.rules = LevelConfined, l.rule(scratch)
		by, _, _ := g.Limits()
		ex.rules.NoMemoryFiles = by == "" // a group counts memory files
		if ex.packs != "" {
			ex.rules.Read = append(ex.rules.Read, ex.packs)
		}
	}
	env := l.environment(o, scratch)
	if ex.packs != "" {
		env = append(env, "SOJOURN_PACKAGES="+ex.packs)
		if l.name == RuntimeNode {
			env = append(env, "NODE_PATH="+filepath.Join(ex.packs, "node_modules")) // for require
		}
	}
	if l.proxy != nil {
		ex.pass = l.proxy.Admit(id)
		env = append(env, proxyEnvironment(l.proxy, ex.pass)...)
	}
	threads := l.limits.Threads
	if _, by, _ := g.Limits(); by != "" {
		threads = 0 // the group refuses further threads instead of ending a process
	}
	var err error
	ex.proc, err = startProcess(supervisor.Config{
		Path: l.program, Args: l.args, Env: env, Dir: scratch,
		Memory: l.limits.Memory, Data: l.limits.Data, FileSize: l.limits.FileSize, Files: int64(l.limits.OpenFiles),
		Processes: l.limits.Processes, Threads: threads,
		ScratchBytes: l.limits.ScratchBytes, ScratchFiles: l.limits.ScratchFiles,
		Lockdown: ex.rules, User: u.number(), Group: g, Room: l.name != RuntimeNative,
	})
	if err != nil {
		ex.closeNetwork()
		g.Remove()
		supervisor.Wipe(scratch)
		u.release()
		return nil, err
	}
	ex.stdout = &output{file: ex.proc.stdout, line: func(text []byte) { ex.assignOutput("info", "stdout", text) }}
	ex.stderr = &output{file: ex.proc.stderr, line: func(text []byte) { ex.assignOutput("warn", "stderr", text) }}
	ex.frames, ex.interrupt = ex.reads.newFrames(ex.proc.control, ex.patience), ex.reads.interrupt
	ex.idle = time.AfterFunc(idleAfter, ex.orderIdle)
	go ex.run()
	if err := ex.send(frame.Frame{Header: frame.Header{
		T: frame.Init, Proto: frame.Proto, Level: string(
			level,
		), Scratch: scratch,
		MaxHeader: frame.DefaultLimits.Header, MaxBody: frame.DefaultLimits.Body,
	}}); err != nil {
		ex.kill(ending{cause: CauseCrash, kind: Unavailable, message: err.Error()})
	}
	boot := time.NewTimer(bootTime)
	defer boot.Stop()
	select {
	case ready := <-ex.ready:
		ex.mu.Lock()
		ex.hasShared = ex.supportsShared(ready)
		ex.mu.Unlock()
		return ex, nil
	case <-boot.C:
		ex.kill(ending{cause: CauseProtocolError, kind: Unavailable, message: fmt.Sprintf("the executor was not ready within %s", bootTime)})
		<-ex.done
	case <-ex.done:
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return nil, &Error{
		Type: Unavailable, Message: fmt.Sprintf("start %s executor: %s", l.name, ex.endCause.message),
		Stack:     ex.endCause.stack,
		Retryable: true,
	}
}

// run processes frames, facts and output of the process until each ends, and then determines the ending.
func (ex *executor) run() {
	var printing sync.WaitGroup
	printing.Go(ex.stdout.run)
	printing.Go(ex.stderr.run)
	last := make(chan supervisor.Fact, 1)
	go ex.follow(last)

	// The executor causes malformed frames; every other error is a consequence of the end of the process.
	if err := ex.readAll(); errors.Is(err, frame.ErrMalformed) {
		ex.kill(ending{cause: CauseProtocolError, kind: ProtocolError, message: err.Error()})
	}
	ex.proc.order(supervisor.OrderKill) // also if only the socket was closed
	var end supervisor.Fact
	patience := time.NewTimer(endTime)
	select {
	case end = <-last:
		patience.Stop()
	case <-patience.C:
		ex.endSupervisor()
		end = supervisor.EndUnreported
	}
	if end == supervisor.EndUnreported { // descendants that left its session were reparented
		ex.group.Kill()
		if k := ex.group.OutOfMemory(); k.Processes > 0 {
			memory, _, _ := ex.group.Limits()
			ex.setEndCause(outOfMemory(supervisor.Fact{Bytes: k.Peak, By: memory, Around: !k.Own}, ex.lang.limits.Memory))
		}
		supervisor.KillOrphans(ex.scratch, ex.user.number())
	}
	ex.closeNetwork()
	for _, f := range []*output{ex.stdout, ex.stderr} {
		// the deadline ends the read even if another process has the pipe open
		_ = f.file.SetReadDeadline(time.Now().Add(endTime))
	}
	printing.Wait()
	_ = ex.proc.cmd.Wait()
	ex.proc.release()
	ex.group.Remove()
	supervisor.Wipe(ex.scratch) // a supervisor that was not killed has already removed it
	ex.user.release()

	ex.mu.Lock()
	if ex.endCause == nil && ex.asked != nil && end.Signal == int(syscall.SIGTERM) {
		ex.endCause = ex.asked
	}
	if ex.endCause == nil {
		e := explain(end, ex.stderr.last())
		ex.endCause = &e
	}
	ex.ended = true
	ex.idle.Stop()
	if ex.forced != nil {
		ex.forced.Stop()
	}
	doom, calls := *ex.endCause, ex.calls
	ex.calls = map[string]*call{}
	ex.mu.Unlock()
	ex.sends.Wait()
	ex.onEnd(ex, doom)
	for c, err := range ex.judge(doom, calls) {
		c.finish(nil, nil, err)
	}
	if end == supervisor.EndUnreported {
		supervisor.ReapOrphans()
	}
	close(ex.done)
}

// closeNetwork revokes the executor's network access and closes its open connections.
func (ex *executor) closeNetwork() {
	if ex.pass != nil {
		ex.pass.Revoke()
	}
}

// follow reads the supervisor's facts until the supervisor closes its pipe, which also means that the executor has
// ended. follow then closes the control socket after endTime, even if a descendant of the executor still has it open.
func (ex *executor) follow(last chan<- supervisor.Fact) {
	defer func() {
		ex.expectEnd()
		time.AfterFunc(endTime, func() { _ = ex.proc.control.Close() })
	}()
	for late := false; ; {
		f, err := ex.proc.fact()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if late {
				ex.kill(ending{cause: CauseCrash, kind: Crashed, message: "the supervisor of the executor was stopped"})
			}
			// This process may have been paused, and the facts may already be readable. After a kill, the supervisor
			// reports the end. So read once more.
			late = true
			if err = ex.proc.line.SetReadDeadline(time.Now().Add(2 * endTime)); err == nil {
				continue
			}
		}
		late = false
		ex.expectFacts()
		if err != nil {
			last <- supervisor.EndUnreported
			return
		}
		switch f.T {
		case supervisor.FactStarted:
			ex.mu.Lock()
			ex.pid = f.PID
			ex.mu.Unlock()
		case supervisor.FactMemory:
			if ex.resident.Swap(f.Bytes) != f.Bytes {
				ex.onGrown()
			}
		case supervisor.FactCount:
			select {
			case ex.counts <- f.Count:
			default:
			}
		case supervisor.FactOOM:
			ex.setEndCause(outOfMemory(f, ex.lang.limits.Memory))
		case supervisor.FactQuota:
			ex.setEndCause(ending{cause: CauseQuota, kind: QuotaExceeded, message: f.Error})
		case supervisor.FactEnd:
			last <- f
			return
		}
	}
}

// handleFrame handles one frame of the executor. All of it is hostile input: an error ends the executor.
func (ex *executor) handleFrame(f *frame.Frame) error {
	var accepted bool
	switch f.T {
	case frame.Ready:
		select {
		case ex.ready <- f.Header:
			accepted = f.Proto == frame.Proto
		default:
		}
	case frame.Result, frame.Error:
		var err error
		if f.Body, err = ex.readShared(f); err != nil {
			return err
		}
		accepted = ex.endCall(f)
	case frame.Heartbeat:
		c := ex.call(f.ID)
		accepted = c != nil && c.heartbeat()
	case frame.Progress:
		c := ex.call(f.ID)
		accepted = c != nil && c.progress(f.Body)
	case frame.Log:
		c := ex.call(f.ID)
		accepted = c != nil && c.log(logLevel(f.Level), "log", f.Body[:min(len(f.Body), 4*maxLogLine)])
	case frame.Closed:
		ex.shutOnce.Do(func() { close(ex.shut); accepted = true })
	case frame.Pong:
		ex.pong()
		accepted = true
	}
	if accepted {
		return nil
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.unknownFrames++; ex.unknownFrames >= maxUnknownFrames {
		return fmt.Errorf("%d frames that do not belong to a call: %w", ex.unknownFrames, frame.ErrMalformed)
	}
	return nil
}

func logLevel(s string) string {
	switch s {
	case "debug", "warn", "error":
		return s
	}
	return "info"
}

// call returns the call in flight with that ID, or nil.
func (ex *executor) call(id string) *call {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.calls[id]
}

// endCall ends a call with its result or error. It first logs the output that was printed before.
func (ex *executor) endCall(f *frame.Frame) bool {
	c := ex.call(f.ID)
	if c == nil {
		return false
	}
	ex.stdout.catchUp()
	ex.stderr.catchUp()
	ex.mu.Lock()
	ex.endedCall(c)
	ex.served++
	ex.mu.Unlock()
	if f.T == frame.Result {
		return c.finish(f.Body, f.Usage, nil)
	}
	return c.finish(nil, f.Usage, ex.failed(f.Header))
}

// failed returns the error that an executor reported. Executors may report only error types that end a call, not those
// that end the executor.
func (ex *executor) failed(h frame.Header) error {
	e := &Error{Type: UserError, Class: h.Class, Message: h.Message, Stack: h.Stack, Retryable: h.Retryable == nil ||
		*h.Retryable, Details: h.Details}
	switch t := ErrorType(h.Type); t {
	case Cancelled, DeadlineExceeded, Unavailable, needCode:
		e.Type = t
	case OutOfMemory:
		e.Type = t
		e.Message += fmt.Sprintf(" (memory limit of %s executors: %d MiB)", ex.lang.name, ex.lang.limits.Memory>>20)
		ex.tainted.Store(true)
	case UserError:
		e.Message += ex.denial(h.Denied)
	case sessionLost:
		if s := ex.session.Load(); s != nil {
			cause := CauseDeclared
			if s.evicted.Load() {
				cause = CauseEvictedPressure
			}
			return &SessionLost{
				Session: s.id, EpochRequested: s.epoch, EpochNow: s.epoch, Cause: cause, When: time.Now(), Message: h.Message,
				Stack: h.Stack,
			}
		}
	}
	return e
}

// assignOutput assigns a line of output to the call that most likely wrote it: the latest call.
func (ex *executor) assignOutput(level, source string, text []byte) {
	ex.mu.Lock()
	var c *call
	for _, other := range ex.calls {
		if c == nil || other.seq > c.seq {
			c = other
		}
	}
	ex.mu.Unlock()
	if c != nil {
		c.log(level, source, text)
	}
}

// copiedBody is the maximum size in bytes of a body that is copied after its header, so that both are written at once.
// Larger bodies are written without a copy.
const copiedBody = 8 << 10

// send writes one frame. It times out if the executor does not read.
func (ex *executor) send(f frame.Frame) error { return ex.sendFrame(&f) }

// sendFrame is like send, for a frame that the caller has allocated: frame headers are too large to be copied.
func (ex *executor) sendFrame(f *frame.Frame) error {
	ex.out.Lock()
	defer ex.out.Unlock()
	buf, err := frame.AppendHead(ex.frameBuf[:0], f, frame.DefaultLimits)
	if err != nil {
		return err
	}
	body := f.Body
	if len(body) <= copiedBody {
		buf, body = append(buf, body...), nil
	}
	ex.frameBuf = buf
	_ = ex.proc.control.SetWriteDeadline(time.Now().Add(writeTime))
	if body == nil {
		_, err = ex.proc.control.Write(buf)
	} else {
		_, err = ex.proc.control.WriteBoth(buf, body)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		ex.kill(ending{cause: CauseProtocolError, kind: ProtocolError, message: "the executor does not read its calls"})
	}
	return err
}

// setEndCause records the reason for the end of the executor. Only the first reason is recorded.
func (ex *executor) setEndCause(why ending) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.endCause == nil {
		ex.endCause = &why
	}
}

// expectFacts sets the deadline for the next message of the supervisor, which sends one every second while a call runs.
func (ex *executor) expectFacts() {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	switch {
	case ex.endCause != nil:
	case ex.sentBusy:
		_ = ex.proc.line.SetReadDeadline(time.Now().Add(silenceTime))
	default:
		_ = ex.proc.line.SetReadDeadline(time.Time{})
	}
}

// kill ends the executor and its descendants without waiting; done is closed afterwards. The supervisor kills them. If
// the supervisor was stopped by the code it watches, the worker kills them.
func (ex *executor) kill(why ending) {
	ex.setEndCause(why)
	ex.proc.order(supervisor.OrderKill)
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.forced == nil && !ex.ended {
		ex.forced = time.AfterFunc(endTime, ex.endSupervisor)
		time.AfterFunc(stoppedTime, func() {
			if supervisor.Stopped(ex.proc.cmd.Process.Pid) {
				ex.endSupervisor()
			}
		})
	}
}

// endSupervisor kills an unresponsive supervisor and all its descendants.
func (ex *executor) endSupervisor() {
	select {
	case <-ex.done:
	default:
		supervisor.End(ex.proc.cmd.Process.Pid)
	}
}

// terminate orders the supervisor to end the process with SIGTERM.
func (ex *executor) terminate(why ending) {
	ex.mu.Lock()
	ex.asked = &why
	ex.mu.Unlock()
	ex.proc.order(supervisor.OrderTerm)
}

// sendAsync runs fn, which may have to wait for the executor to read, on its own goroutine.
func (ex *executor) sendAsync(fn func()) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if !ex.ended {
		ex.sends.Go(fn)
	}
}

// orderIdle makes the supervisor check limits less often, because the executor is idle.
func (ex *executor) orderIdle() {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if len(ex.calls) == 0 && ex.sentBusy && !ex.ended {
		ex.assignRun()
		ex.sentBusy = false
		ex.proc.order(supervisor.OrderIdle)
		if ex.hasShared {
			ex.proc.shared.empty()
		}
		_ = ex.proc.line.SetReadDeadline(time.Time{})
	}
}

// close ends the executor gracefully: its close hooks run, within ctx and five seconds. It returns when all processes
// have ended and all files are removed.
func (ex *executor) close(ctx context.Context, why ending) {
	ex.expectEnd()
	if s := ex.session.Load(); s != nil {
		if err := ex.send(frame.Frame{
			Header: frame.Header{T: frame.Close, Session: s.id, Reason: string(why.cause)},
		}); err == nil {
			hooks := time.NewTimer(closeTime)
			select {
			case <-ex.shut:
			case <-ex.done:
			case <-hooks.C:
			case <-ctx.Done():
			}
			hooks.Stop()
		}
	}
	ex.setEndCause(why)
	_ = ex.send(frame.Frame{Header: frame.Header{T: frame.Shutdown}})
	grace := time.NewTimer(100 * time.Millisecond)
	defer grace.Stop()
	select {
	case <-ex.done:
		return
	case <-grace.C:
	}
	ex.kill(why)
	<-ex.done
}

// hasNoDescendants reports whether the executor has no descendants.
func (ex *executor) hasNoDescendants() bool {
	select {
	case <-ex.counts: // response to an earlier count whose caller stopped waiting
	default:
	}
	ex.proc.order(supervisor.OrderCount)
	answer := time.NewTimer(time.Second)
	defer answer.Stop()
	select {
	case n := <-ex.counts:
		return n == 1
	case <-ex.done:
	case <-answer.C:
	}
	return false
}

func (ex *executor) info() ExecutorInfo {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	i := ExecutorInfo{
		SandboxID: ex.id, Busy: len(
			ex.calls,
		) > 0, Calls: ex.served, MemoryUsageBytes: ex.resident.Load(), Runtime: ex.lang.name,
		Level: LevelProcess, Since: ex.born, PID: ex.pid,
	}
	if ex.rules != nil {
		i.Level = LevelConfined
	}
	if s := ex.session.Load(); s != nil {
		i.SessionID, i.Epoch = s.id, s.epoch
	}
	return i
}
