package invariants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/session"
)

// schedule generates one random history: the processes of two workers poll every app, run tasks, renew, release and
// close sessions, pause, die and start again, with wrong clocks.
type schedule struct {
	*harness
	seed     uint64
	ns       string
	sessions []string
	options  bool // session options create the sessions: leases in whole seconds, limited activities
	lease    time.Duration
	most     int // maximum number of sessions per worker
	limit    int // maximum number of concurrent activities per session; 0: no limit
	work     int // number of tasks per session
	life     time.Duration
	fallback time.Duration // how long tasks of the soft sessions wait for the holder
	// operators drain workers and groups, and route the queue between groups; each worker process has the release of
	// one of the apps or no release, so that the release gate separates it from the other apps
	operated bool
	// workers suspend the state of sessions whose leases have expired, and send resume requests
	resumes bool

	start   time.Time
	began   int64 // store time
	wait    sync.WaitGroup
	mu      sync.Mutex // guards the fields below
	history []porcupine.Operation
	ends    map[string]int64              // attempt → time at which its holder began to report its completion
	known   map[string]map[string][]grant // worker → session → its grants, newest last
	err     error
	drained []drained
	held    int // number of polls that the release gate blocked
	// returned is the number of tasks that a process returned because it had dropped the state of their epoch.
	returned int
}

// drained is the time in which a worker was drained: from an app's response until the request to resume it.
type drained struct {
	worker   string
	app      int
	from, to int64
}

type grant struct{ epoch, until int64 }

func newSchedule(w *harness, seed uint64) *schedule {
	r := rand.New(rand.NewPCG(seed, 0))
	s := &schedule{
		harness: w, seed: seed, ns: w.namespace(fmt.Sprintf("n%d", seed)), most: 1 + r.IntN(2), options: r.IntN(3) == 0,
		work:  6 + r.IntN(10),
		lease: time.Duration(50+r.IntN(151)) * time.Millisecond,
		ends:  map[string]int64{},
		known: map[string]map[string][]grant{"a": {}, "b": {}},
	}
	for i := range 1 + r.IntN(3) {
		s.sessions = append(s.sessions, fmt.Sprintf("s%d", i+1))
	}
	if s.options {
		s.lease, s.limit = time.Second, 1+r.IntN(2)
	}
	s.life = min(8*s.lease, 2*time.Second)
	if w.shift != nil {
		s.life = 20 * s.lease
	}
	if r.IntN(4) == 0 {
		// The fallback is shorter than ten seconds, the idle time after which a session may be evicted.
		s.fallback, s.life = time.Second, 6*time.Second
		s.work, s.lease = 20, max(s.lease, time.Duration(400+r.IntN(601))*time.Millisecond)
		if s.options {
			s.limit = 4 + r.IntN(4) // a task of a full session waits for a free place and not for the session's holder
		}
	}
	s.resumes = !s.options && r.IntN(2) == 0
	return s
}

func (s *schedule) String() string {
	return fmt.Sprintf(
		"seed %d: %d sessions of %d tasks, lease %s, at most %d per worker, %d activities each, fallback %s",
		s.seed, len(s.sessions), s.work, s.lease, s.most, s.limit, s.fallback,
	)
}

func (s *schedule) settings(id string) protocol.SessionOptions {
	o := protocol.SessionOptions{
		SessionID: id, Lease: protocol.Count(s.lease / time.Second), MaxActivities: protocol.Count(s.limit),
	}
	if s.fallback > 0 {
		o.Affinity, o.FallbackAfter = protocol.AffinitySoft, int64(s.fallback/time.Second)
	}
	return o
}

// run runs the schedule and returns its history.
func (s *schedule) run() ([]porcupine.Operation, error) {
	var commands []protocol.Command
	for range s.work {
		for _, id := range s.sessions {
			o := s.settings(id)
			if s.options {
				commands = append(commands, withOptions(o))
				continue
			}
			c := inSession(id)
			c.Affinity, c.FallbackAfter = o.Affinity, o.FallbackAfter
			commands = append(commands, c)
		}
	}
	s.decide(s.ns, s.ns, commands...)
	s.start, s.began = time.Now(), s.now()
	if s.operated {
		s.wait.Go(func() { s.operator(rand.New(rand.NewPCG(s.seed, 9))) })
	}
	for i, name := range []string{"a", "b"} {
		s.wait.Go(func() { s.worker(name, rand.New(rand.NewPCG(s.seed, uint64(i+1)))) })
	}
	s.wait.Wait()
	return s.history, s.err
}

// fall runs a fixed sequence that random schedules of soft sessions rarely contain: the owner's lease is valid, the
// owner polls no more, and the other worker polls until it acquires the session by the fallback.
func (s *schedule) fall() ([]porcupine.Operation, error) {
	s.sessions, s.work, s.most, s.limit, s.options = []string{"s1"}, 2, 1, 0, false
	s.lease, s.fallback = 10*time.Minute, time.Second
	c := inSession("s1")
	c.Affinity, c.FallbackAfter = protocol.AffinitySoft, 1
	s.decide(s.ns, s.ns, c, c)
	s.start, s.began = time.Now(), s.now()
	r := rand.New(rand.NewPCG(s.seed, 0))
	for _, name := range []string{"a", "b"} {
		p := &proc{schedule: s, name: name, incarnation: name + "1"}
		if err := s.register(name, p.incarnation, "", r); err != nil {
			return nil, err
		}
		for {
			task, err := p.takes(0, r)
			if err != nil {
				return nil, err
			}
			if task != nil {
				break
			}
			if time.Since(s.start) > time.Minute {
				return s.history, fmt.Errorf("nothing was given to worker %s", name)
			}
			s.pass(50 * time.Millisecond)
		}
	}
	return s.history, s.err
}

// resumeAfterCut is a fixed schedule, because random schedules rarely resume a session where commits are fast: the
// network of a worker is cut until its lease has expired, no other worker claims the session, and the worker resumes
// it.
func (s *schedule) resumeAfterCut() ([]porcupine.Operation, error) {
	s.sessions, s.work, s.most, s.limit, s.options, s.resumes = []string{"s1"}, 1, 1, 0, false, true
	s.lease, s.fallback = 200*time.Millisecond, 0
	s.decide(s.ns, s.ns, inSession("s1"))
	s.start, s.began = time.Now(), s.now()
	r := rand.New(rand.NewPCG(s.seed, 0))
	p := &proc{schedule: s, name: "a", incarnation: "a1"}
	if err := s.register(p.name, p.incarnation, "", r); err != nil {
		return nil, err
	}
	p.memory = newMemory(p, s.seed)
	sent := time.Now()
	task, err := p.takes(5, r)
	if err != nil || task == nil {
		return nil, fmt.Errorf("no task in 5 s, or: %w", err)
	}
	p.memory.enters(task, p.memory.confirmed(), sent, r)
	for until := task.Session.LeaseExpiresAt.Micros(); s.now() <= until; {
		time.Sleep(time.Millisecond)
	}
	resumed := func() bool {
		return slices.ContainsFunc(s.history, func(o porcupine.Operation) bool {
			return o.Input.(call).kind == resume && o.Output.(reply).ok
		})
	}
	for !resumed() && time.Since(s.start) < time.Minute && p.memory.heartbeat(r) {
		time.Sleep(time.Millisecond)
	}
	if !resumed() {
		return s.history, errors.New("the worker did not resume its session")
	}
	return s.history, s.err
}

// hasEnded reports whether the end of the schedule has passed, by the store's clock.
func (s *schedule) hasEnded() bool {
	if s.shift != nil {
		return s.now()-s.began > s.life.Microseconds() || time.Since(s.start) > 20*time.Second
	}
	return time.Since(s.start) > s.life
}

// worker runs one process after another under the same worker ID.
func (s *schedule) worker(name string, r *rand.Rand) {
	var stop func()
	for n := 1; !s.hasEnded(); n++ {
		incarnation, release := fmt.Sprintf("%s%d", name, n), ""
		if s.operated {
			release = releaseOf(1 + r.IntN(4)/3)
		}
		if err := s.register(name, incarnation, release, r); err != nil {
			s.fail(err)
			break
		}
		if stop != nil { // the previous process was still running, as if it had not noticed the new one
			former := stop
			lag := time.Duration(r.Int64N(int64(s.lease)))
			s.wait.Go(func() { s.pass(lag); former() })
		}
		p := &proc{
			schedule: s, name: name, incarnation: incarnation, release: release, skew: (r.Int64N(1200) - 600) * 1_000_000,
		}
		stop = p.begin(r)
		for !s.hasEnded() {
			s.stay(s.some(r, 1, s.rarer(4)))
			if s.resumes && r.IntN(5) == 0 {
				p.cut.Store(true)
				s.pass(s.some(r, 1, 6))
				p.cut.Store(false)
				continue
			}
			if what := r.IntN(10); what < 4 {
				p.pause(s.some(r, 1, 4))
			} else if what < 7 {
				stop()
				s.pass(s.some(r, 0, 4))
				stop = nil
				break
			} else if what < 9 {
				break
			}
		}
	}
	if stop != nil {
		stop()
	}
}

// some returns a random time between two numbers of half leases.
func (s *schedule) some(r *rand.Rand, from, to int64) time.Duration {
	half := int64(s.lease) / 2
	return time.Duration(from*half + r.Int64N((to-from)*half))
}

// stay advances the time in steps in which owners of soft sessions can renew them.
func (s *schedule) stay(d time.Duration) {
	if s.fallback == 0 || s.shift == nil {
		s.pass(d)
		return
	}
	for step := s.lease / 4; d > 0 && !s.hasEnded(); d -= step {
		s.pass(min(d, step))
		time.Sleep(2 * time.Millisecond)
	}
}

// rarer returns n, or more for soft sessions: their tasks need time to wait between calls that change the owner.
func (s *schedule) rarer(n int64) int64 {
	if s.fallback > 0 {
		return 4 * n
	}
	return n
}

func (s *schedule) app(r *rand.Rand) (int, *broker.Broker) {
	i := r.IntN(len(s.apps))
	return i + 1, s.apps[i].Broker()
}

func (s *schedule) register(name, incarnation, release string, r *rand.Rand) error {
	i, b := s.app(r)
	c := call{kind: register, worker: name, incarnation: incarnation, app: i, before: s.now()}
	at := s.at()
	ctx := context.Background()
	if s.operated {
		ctx = auth.With(ctx, &auth.Principal{TokenID: name, Name: name, Roles: []auth.Role{auth.Worker}, Group: "g" + name})
	}
	in := worker(s.ns, name, incarnation, s.most, s.lease)
	in.Gated, in.Release = release != "", release
	in.Session.Resumes = s.resumes
	_, err := b.Register(ctx, in)
	s.record(c, reply{ok: err == nil, after: s.now()}, at)
	return err
}

// operator drains a worker, or its group, for a while, or routes the queue to a group for a while, repeatedly.
func (s *schedule) operator(r *rand.Rand) {
	for ctx := context.Background(); !s.hasEnded(); s.pass(s.some(r, 0, 3)) {
		name := []string{"a", "b"}[r.IntN(2)]
		if r.IntN(3) == 0 {
			_, b := s.app(r)
			for _, group := range []string{"g" + name, ""} {
				if _, err := b.Route(ctx, protocol.RouteRequest{Namespace: s.ns, Queue: "default", Group: group}); err != nil {
					s.fail(fmt.Errorf("route: %w", err))
				}
				s.pass(s.some(r, 0, 3))
			}
			continue
		}
		target := protocol.FleetTarget{WorkerID: name}
		if r.IntN(2) == 0 {
			target = protocol.FleetTarget{Group: "g" + name}
		}
		i, _ := s.app(r)
		at, before, d := s.at(), s.now(), drained{worker: name, app: i}
		for _, verb := range []string{protocol.FleetDrain, protocol.FleetResume} {
			if d.to = s.at(); verb == protocol.FleetResume {
				i, _ = s.app(r)
			}
			_, err := s.apps[i-1].Broker().Fleet().OperateFleet(ctx, protocol.FleetRequest{
				Namespace: s.ns, FleetTarget: target, Verb: verb,
			})
			switch {
			case err != nil && protocol.ReasonOf(err) != protocol.ReasonWorkerNotFound:
				s.fail(fmt.Errorf("%s: %w", verb, err))
			case err == nil && verb == protocol.FleetResume && d.from > 0:
				s.mu.Lock()
				s.drained = append(s.drained, d)
				s.mu.Unlock()
			case err == nil:
				d.from = s.at()
			}
			s.pass(s.some(r, 0, 4))
		}
		for _, id := range s.sessions {
			for range 2 { // a poll that the other app accepted may have acquired the session again
				s.record(call{kind: drain, worker: name, session: id, before: before}, reply{ok: true, after: s.now()}, at)
			}
		}
	}
}

func (s *schedule) at() int64 { return int64(time.Since(s.start)) }

func (s *schedule) record(c call, r reply, at int64) {
	back := s.at()
	s.mu.Lock()
	defer s.mu.Unlock()
	c.fallback = s.fallback.Microseconds()
	s.history = append(s.history, porcupine.Operation{Input: c, Call: at, Output: r, Return: back})
	if r.ok && (c.kind == claim || c.kind == fetch) {
		s.known[c.worker][c.session] = append(s.known[c.worker][c.session], grant{r.epoch, r.until})
	}
	renews := r.ok && (c.kind == renew || c.kind == resume)
	if g := s.known[c.worker][c.session]; renews && len(g) > 0 && g[len(g)-1].epoch == r.epoch {
		g[len(g)-1].until = r.until
	}
}

func (s *schedule) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

func (s *schedule) count(in func(*schedule)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in(s)
}

// granted returns the reply to an acquisition or renewal.
func (s *schedule) granted(epoch int64, until history.Time) reply {
	return reply{
		ok: true, epoch: epoch, until: until.Micros(), at: until.Micros() - s.lease.Microseconds(), after: s.now(),
	}
}

// proc is one process of a worker. Its clock is wrong by skew, in microseconds.
type proc struct {
	*schedule
	name, incarnation string
	release           string // empty: the worker sends none, and the gate does not apply
	skew              int64
	memory            *memory      // nil: the worker does not resume sessions
	mu                sync.RWMutex // held for writing while the process is paused
	cut               atomic.Bool  // the network is cut: the process makes no calls
}

// begin starts the process and returns a function that kills it: after kill returns, the process starts no calls.
func (p *proc) begin(r *rand.Rand) (kill func()) {
	ctx, cancel := context.WithCancel(context.Background())
	seed := r.Uint64()
	if p.resumes {
		p.memory = newMemory(p, seed)
		p.wait.Go(func() { p.memory.beats(ctx, rand.New(rand.NewPCG(seed, 5))) })
	}
	p.wait.Go(func() { p.polls(ctx, rand.New(rand.NewPCG(seed, 1))) })
	p.wait.Go(func() { p.keeps(ctx, rand.New(rand.NewPCG(seed, 2))) })
	return cancel
}

func (p *proc) pause(d time.Duration) {
	p.mu.Lock()
	p.pass(d)
	p.mu.Unlock()
}

// resume waits while the process is paused, and reports whether it is alive.
func (p *proc) resume(ctx context.Context) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return ctx.Err() == nil && !p.hasEnded()
}

func (p *proc) polls(ctx context.Context, r *rand.Rand) {
	for p.resume(ctx) {
		if p.cut.Load() {
			time.Sleep(time.Millisecond)
			continue
		}
		wait := int64(0)
		if r.IntN(8) == 0 && p.shift == nil {
			wait = 1
		}
		var released map[string]int64
		if p.memory != nil {
			released = p.memory.confirmed()
		}
		sent := time.Now()
		task, err := p.takes(wait, r)
		switch {
		case protocol.ReasonOf(err) == protocol.ReasonStaleRegistration:
			return
		case err != nil:
			p.fail(fmt.Errorf("poll: %w", err))
			return
		case task == nil:
			time.Sleep(time.Duration(2+r.IntN(12)) * time.Millisecond)
			continue
		}
		leave := func() {}
		if p.memory != nil {
			h := p.memory.enters(task, released, sent, r)
			if h == nil {
				continue
			}
			leave = h.EndAttempt
		}
		seed := r.Uint64()
		p.wait.Go(func() {
			defer leave()
			p.works(ctx, task, rand.New(rand.NewPCG(seed, 3)))
		})
		time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
		if s := p.schedule; s.fallback > 0 && r.IntN(3) == 0 {
			// Poll for no more tasks for a while, but keep the sessions.
			p.stay(time.Duration(r.Int64N(2 * int64(s.fallback))))
		}
	}
}

// takes polls an app for one activity, and records the lease of its session.
func (p *proc) takes(wait int64, r *rand.Rand) (*protocol.ActivityTask, error) {
	i, b := p.app(r)
	c := call{
		kind: fetch, worker: p.name, incarnation: p.incarnation, app: i, before: p.now(), lease: p.lease.Microseconds(),
		resumes: p.resumes,
	}
	at := p.at()
	task, err := p.poll(i, b, wait)
	if p.resumes && protocol.ReasonOf(err) == protocol.ReasonStaleRegistration {
		for _, id := range p.sessions { // the poll may have resumed any of them
			c.kind, c.session = overtaken, id
			p.record(c, reply{ok: true, after: p.now()}, at)
		}
	}
	if task == nil || err != nil {
		return nil, err
	}
	c.session, c.task = task.Session.SessionID, task.AttemptID
	if task.Session.IsNew {
		c.kind = claim
	}
	p.record(c, p.granted(task.Session.Epoch, task.Session.LeaseExpiresAt), at)
	return task, nil
}

// poll polls for one activity, and expects that the release gate blocks a poll from a process of another release.
func (p *proc) poll(app int, b *broker.Broker, wait int64) (*protocol.ActivityTask, error) {
	a, err := ask(context.Background(), b, protocol.PollRequest{
		Namespace: p.ns, WorkerID: p.name, Incarnation: p.incarnation, Timeout: &wait, Gated: p.release != "",
		Release: p.release,
	})
	other := p.release != "" && p.release != releaseOf(app)
	switch {
	case err != nil:
		return nil, err
	case other != (a.Status == protocol.PollMismatch) || other && len(a.Tasks) > 0:
		return nil, fmt.Errorf("%s of %s is told %q and given %d tasks by the app of %s",
			p.incarnation, p.release, a.Status, len(a.Tasks), releaseOf(app))
	case other:
		p.schedule.mu.Lock()
		p.held++
		p.schedule.mu.Unlock()
	}
	if len(a.Tasks) == 0 {
		return nil, nil
	}
	return a.Tasks[0].Activity, nil
}

// works processes one task: it completes it, returns it, or never reports an outcome.
func (p *proc) works(ctx context.Context, task *protocol.ActivityTask, r *rand.Rand) {
	what := r.IntN(10)
	if what == 0 {
		return
	}
	for range r.IntN(3) {
		p.pass(p.some(r, 0, 2))
		if !p.resume(ctx) {
			return
		}
		i, b := p.app(r)
		c, at := p.reports(task, i)
		sent := time.Now()
		a, err := b.HeartbeatTask(context.Background(), protocol.HeartbeatRequest{
			Namespace: p.ns, TaskID: task.TaskID, AttemptID: task.AttemptID, Owner: p.name, Epoch: task.Session.Epoch,
		})
		if err == nil && a.Renewed {
			p.record(c, reply{ok: true, after: p.now()}, at)
			if p.memory != nil {
				p.memory.sessions.Touched(task.Session.SessionID, task.Session.Epoch, session.Lease{Sent: sent})
			}
		}
	}
	p.pass(p.some(r, 0, 1))
	if !p.resume(ctx) {
		return
	}
	i, b := p.app(r)
	c, at := p.reports(task, i)
	p.schedule.mu.Lock()
	p.ends[task.AttemptID] = at
	p.schedule.mu.Unlock()
	a := finish(context.Background(), b, p.ns, task, func(item *protocol.CompleteItem) {
		if what == 1 {
			item.Returned = "returned"
		}
	})
	if what != 1 && a.Recorded {
		p.record(c, reply{ok: true, after: p.now()}, at)
	}
}

func (p *proc) reports(task *protocol.ActivityTask, app int) (call, int64) {
	return call{
		kind: report, worker: p.name, incarnation: p.incarnation, session: task.Session.SessionID, epoch: task.Session.Epoch,
		app:    app,
		before: p.now(), lease: p.lease.Microseconds(),
	}, p.at()
}

// keeps renews, releases and closes sessions that the worker has acquired at any time, including sessions that it may
// have lost.
func (p *proc) keeps(ctx context.Context, r *rand.Rand) {
	for p.resume(ctx) {
		p.pass(p.some(r, 0, 1) / 2)
		time.Sleep(time.Duration(1+r.IntN(4)) * time.Millisecond)
		if !p.resume(ctx) {
			return
		}
		if p.cut.Load() {
			continue
		}
		id := p.sessions[r.IntN(len(p.sessions))]
		if p.options && r.IntN(6) == 0 {
			p.creates(id, r)
			continue
		}
		name := p.name
		if r.IntN(20) == 0 {
			name = map[string]string{"a": "b", "b": "a"}[name] // a request with the epoch of the other worker
		}
		p.schedule.mu.Lock()
		g := append([]grant(nil), p.known[name][id]...)
		p.schedule.mu.Unlock()
		if len(g) == 0 {
			continue
		}
		which := g[len(g)-1]
		if r.IntN(8) == 0 {
			which = g[r.IntN(len(g))]
		}
		if believed := p.now() + p.skew; believed > which.until && r.IntN(3) > 0 {
			continue // by the process's own clock, the lease has expired
		}
		p.verb(id, which.epoch, r)
	}
}

func (p *proc) verb(id string, epoch int64, r *rand.Rand) {
	i, b := p.app(r)
	if r.IntN(6) == 0 {
		epoch = 0
	}
	c := call{
		kind: renew, worker: p.name, incarnation: p.incarnation, session: id, epoch: epoch, app: i, before: p.now(),
		lease: p.lease.Microseconds(),
	}
	in := protocol.SessionVerb{WorkerID: p.name, Namespace: p.ns, SessionID: id, Epoch: epoch}
	at := p.at()
	ctx := context.Background()
	var a protocol.SessionResponse
	var err error
	switch what := r.Int64N(p.rarer(40)); {
	case what == 0:
		c.kind = closing
		a, err = b.CloseSession(ctx, in)
	case what < 5:
		c.kind = release
		a, err = b.ReleaseSession(ctx, in)
	case what%4 == 3:
		p.beat(c, b, at)
		return
	default:
		a, err = b.HeartbeatSession(ctx, in)
	}
	reason := protocol.ReasonOf(err)
	switch {
	case err != nil && reason == "":
		p.fail(fmt.Errorf("%s: %w", c.kind, err))
	case err != nil:
		p.record(c, reply{reason: string(reason), after: p.now()}, at)
	case c.kind == renew:
		p.record(c, p.granted(a.Session.Epoch, a.Session.LeaseExpiresAt), at)
	default:
		already := a.Outcome == "already_closed"
		if c.kind == closing && !already && a.Session.Origin != "worker" {
			c.kind = release // a close by the holder ends only sessions with options; others are released
		}
		p.record(c, reply{ok: true, already: already, after: p.now()}, at)
	}
}

// beat renews a session with a heartbeat of the worker.
func (p *proc) beat(c call, b *broker.Broker, at int64) {
	process, _ := json.Marshal(map[string]any{"now": time.UnixMicro(p.now() + p.skew)})
	a, err := b.WorkerHeartbeat(context.Background(), protocol.WorkerHeartbeat{
		WorkerID: p.name, Namespace: p.ns, Incarnation: p.incarnation, Process: process,
		Sessions: []protocol.SessionRenewal{{SessionID: c.session, Epoch: c.epoch}},
	})
	switch {
	case protocol.ReasonOf(err) == protocol.ReasonStaleRegistration:
	case err != nil:
		p.fail(fmt.Errorf("heartbeat: %w", err))
	case a.Sessions[0].Held:
		p.record(c, p.granted(a.Sessions[0].Epoch, a.Sessions[0].LeaseExpiresAt), at)
	default:
		p.record(c, reply{reason: a.Sessions[0].Reason, after: p.now()}, at)
	}
}

func (p *proc) creates(id string, r *rand.Rand) {
	i, b := p.app(r)
	c := call{
		kind: claim, worker: p.name, incarnation: p.incarnation, session: id, app: i, before: p.now(),
		lease: p.lease.Microseconds(),
	}
	at := p.at()
	a, err := b.CreateSession(context.Background(), protocol.SessionCreate{
		WorkerID: p.name, Namespace: p.ns, Incarnation: p.incarnation, SessionOptions: p.settings(id),
	})
	switch reason := protocol.ReasonOf(err); {
	case err != nil && reason == "" || reason == protocol.ReasonInvalidSession:
		p.fail(fmt.Errorf("create: %w", err))
	case err != nil: // a refused request acquires nothing
	default:
		if a.Outcome == "reused" {
			c.kind = fetch
		}
		p.record(c, p.granted(a.Session.Epoch, a.Session.LeaseExpiresAt), at)
	}
}
