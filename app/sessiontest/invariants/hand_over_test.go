package invariants

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/session"
)

// handOvers generates one random schedule of three workers that hand sessions over. The workers shut down, are drained
// by an operator, are killed and frozen while they hold or prepare sessions.
type handOvers struct {
	*harness
	seed uint64
	ns   string
	most int // maximum number of sessions that a worker holds or prepares
	// resources: the resources of the workers, and not their places, limit the sessions to the maximum.
	resources bool
	lease     time.Duration
	life      time.Duration
	start     time.Time
	// pace is the time from which the pauses of the operator and the life of a process are derived.
	pace time.Duration
	// waves: the sessions are idle between waves of activities, so that they may move for balance.
	waves bool

	mu     sync.Mutex // guards the fields below
	owners map[epochOf]string
	states []*handOverState
	errs   []error
	// acquired and discarded are the numbers of ended preparations, drained of the workers that shut down.
	acquired, discarded, drained int
}

// handOverState is the state of a session at one process.
type handOverState struct {
	state
	session  string
	prepared int64 // epoch for which it was prepared; 0: an attempt ran the set-up
	ready    atomic.Bool
}

const (
	handOverDefinition = "llama"
	handOverSessions   = 4
	slot               = "slot" // a resource, of which each session uses sessionSlots
	sessionSlots       = 2
)

func newHandOvers(w *harness, seed uint64) *handOvers {
	r := rand.New(rand.NewPCG(seed, 0))
	s := &handOvers{
		harness: w, seed: seed, ns: w.namespace(fmt.Sprintf("h%d", seed)), most: 2 + r.IntN(2),
		lease: time.Duration(200+r.IntN(400)) * time.Millisecond, life: 3 * time.Second, owners: map[epochOf]string{},
	}
	s.pace, s.resources = s.lease, seed%2 == 0
	return s
}

// newBalance returns a schedule in which the store's clock advances by minutes, so that sessions move to workers that
// registered half a minute ago. The leases outlast it.
func newBalance(w *harness, seed uint64) *handOvers {
	s := newHandOvers(w, seed)
	s.most, s.lease, s.life, s.waves = 4, time.Hour, 6*time.Second, true
	s.pace = 800 * time.Millisecond
	return s
}

func (s *handOvers) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.errs) < 5 {
		s.errs = append(s.errs, fmt.Errorf(format, args...))
	}
}

func (s *handOvers) hasEnded() bool { return time.Since(s.start) > s.life }

// inHandOverSession returns the command for an activity in a session whose definition has a hand-over.
func inHandOverSession(id string) protocol.Command {
	c := inSession(id)
	c.SessionDefinition = &protocol.SessionDefinition{Name: handOverDefinition}
	return c
}

// handOverWorker returns the registration of a worker with that definition.
func handOverWorker(ns, name, incarnation string, most int, lease time.Duration) protocol.RegisterRequest {
	return worker(
		ns, name, incarnation, most, lease,
		protocol.DefinitionCapability(handOverDefinition), protocol.PrepareCapability(handOverDefinition),
	)
}

// handOverRebuilt reports that the set-up of such a session has succeeded.
func handOverRebuilt() *protocol.Recovered {
	return &protocol.Recovered{SetUp: &protocol.SetUp{Definition: handOverDefinition, Outcome: protocol.Rebuilt}}
}

func (s *handOvers) app(r *rand.Rand) *broker.Broker { return s.apps[r.IntN(len(s.apps))].Broker() }

// run runs the schedule, and then waits until no worker prepares a session any more.
func (s *handOvers) run() error {
	rounds := 40
	if s.waves {
		rounds = 1
	}
	var commands []protocol.Command
	for range rounds {
		for i := range handOverSessions {
			commands = append(commands, inHandOverSession(fmt.Sprintf("s%d", i)))
		}
	}
	s.decide(s.ns, s.ns, commands...)
	s.start = time.Now()
	ended := make(chan struct{})
	var wait, watch sync.WaitGroup
	watch.Go(func() { s.watch(ended) })
	for i, name := range []string{"a", "b", "c"} {
		wait.Go(func() { s.worker(name, rand.New(rand.NewPCG(s.seed, uint64(i+1)))) })
	}
	wait.Go(func() { s.operator(rand.New(rand.NewPCG(s.seed, 9))) })
	for s.waves && !s.hasEnded() {
		time.Sleep(s.pace)
		s.shift.Add(int64(25 * time.Second))
		_, err := s.apps[0].Broker().Signal(context.Background(), protocol.SignalRequest{
			Target: protocol.Target{Namespace: s.ns, WorkflowID: s.ns}, SignalName: "wave",
		})
		if err != nil {
			s.fail("signal: %w", err)
			break
		}
		s.step(s.ns, s.ns, commands...)
	}
	wait.Wait()
	close(ended)
	watch.Wait()
	for _, st := range s.states {
		if !st.closed.Load() {
			s.fail("the state of session %s, prepared for epoch %d, was not torn down", st.session, st.prepared)
		}
	}
	return errors.Join(s.errs...)
}

// watch compares the numbers of held and prepared sessions of each worker with the maximum, and the resources in use
// with these numbers.
func (s *handOvers) watch(ended <-chan struct{}) {
	for ctx := context.Background(); ; {
		select {
		case <-ended:
			return
		case <-time.After(3 * time.Millisecond):
		}
		err := s.apps[0].Store().View(ctx, func(r store.Reader) error {
			all, err := r.Holdings(ctx, s.ns)
			for worker, h := range all {
				if h.Sessions+h.Prepared > s.most {
					s.fail("worker %s holds %d sessions and prepares %d, maximum %d", worker, h.Sessions, h.Prepared, s.most)
				}
				if used := h.Used[slot]; s.resources && used != int64(h.Sessions+h.Prepared)*sessionSlots*1000 {
					s.fail("worker %s uses %dm slots, holds %d sessions and prepares %d", worker, used, h.Sessions, h.Prepared)
				}
			}
			return err
		})
		if err != nil {
			s.fail("holdings: %w", err)
		}
	}
}

// operator drains one worker after the other for a while.
func (s *handOvers) operator(r *rand.Rand) {
	pause := s.pace
	if s.waves {
		pause *= 4
	}
	for ctx := context.Background(); !s.hasEnded(); s.pass(time.Duration(r.Int64N(int64(pause)))) {
		target := protocol.FleetTarget{WorkerID: []string{"a", "b", "c"}[r.IntN(3)]}
		for _, verb := range []string{protocol.FleetDrain, protocol.FleetResume} {
			_, err := s.app(r).Fleet().OperateFleet(ctx, protocol.FleetRequest{Namespace: s.ns, FleetTarget: target, Verb: verb})
			if err != nil && protocol.ReasonOf(err) != protocol.ReasonWorkerNotFound {
				s.fail("%s: %w", verb, err)
			}
			s.pass(time.Duration(r.Int64N(2 * int64(s.pace))))
		}
	}
}

// worker runs one process after another under the same worker ID.
func (s *handOvers) worker(name string, r *rand.Rand) {
	for n := 1; !s.hasEnded(); n++ {
		p, err := s.process(name, fmt.Sprintf("%s%d", name, n), r)
		if err != nil {
			s.fail("register: %w", err)
			return
		}
		until := time.Now().Add(2*s.pace + time.Duration(r.Int64N(4*int64(s.pace))))
		for time.Now().Before(until) && !s.hasEnded() && p.step() {
			if r.IntN(150) == 0 {
				s.pass(s.pace + time.Duration(r.Int64N(int64(s.pace)))) // frozen
			}
		}
		if s.hasEnded() || r.IntN(3) > 0 {
			p.shutdown()
			continue
		}
		p.end("killed") // the process sends nothing any more
	}
}

// handOverPreparation is a preparation of a process.
type handOverPreparation struct {
	*session.Holding
	failed string
	runs   bool // the set-up has not ended
}

// end ends the set-up, as package runner does.
func (p *handOverPreparation) end(failed string) {
	switch {
	case !p.runs:
	case failed == "" && p.SetUp():
		p.State.(*handOverState).ready.Store(true)
	default:
		p.failed = "not set up"
		p.CloseState()
	}
	p.runs = false
}

// handOverAttempt is a running attempt of a process.
type handOverAttempt struct {
	holding  *session.Holding
	complete func()
}

// handOverProcess is one process of a worker. One goroutine runs its steps.
type handOverProcess struct {
	*handOvers
	name, incarnation string
	r                 *rand.Rand
	sessions          *session.Sessions
	prepared          map[string]*handOverPreparation
	running           []handOverAttempt
	draining          bool
	handsOver         bool
}

func (s *handOvers) process(name, incarnation string, r *rand.Rand) (*handOverProcess, error) {
	p := &handOverProcess{
		handOvers: s, name: name, incarnation: incarnation, r: r, prepared: map[string]*handOverPreparation{},
	}
	var err error
	p.sessions, err = session.New(session.Options{
		Lease: s.lease, Buffer: 5 * time.Millisecond, Idle: time.Hour,
		NewState: func() session.State {
			st := &handOverState{}
			s.mu.Lock()
			s.states = append(s.states, st)
			s.mu.Unlock()
			return st
		},
		GiveUp: func(ctx context.Context, id string, epoch, known int64) error {
			_, err := s.apps[0].Broker().ReleaseSession(ctx, protocol.SessionVerb{
				WorkerID: name, Namespace: s.ns, SessionID: id, Epoch: epoch, Known: known, Reason: protocol.ReasonGivenUp,
			})
			if protocol.ReasonOf(err) != "" {
				err = nil
			}
			return err
		},
	}, time.Second)
	if err != nil {
		return nil, err
	}
	in := handOverWorker(s.ns, name, incarnation, s.most, s.lease)
	if s.resources {
		more := s.most + 2
		in.MaxSessions = &more
		in.Resources = resources(s.t, fmt.Sprintf("%s=%d", slot, sessionSlots*s.most+1))
		in.SessionResources = map[string]protocol.Resources{
			handOverDefinition: resources(s.t, fmt.Sprintf("%s=%d", slot, sessionSlots)),
		}
	}
	_, err = s.app(r).Register(context.Background(), in)
	return p, err
}

// step runs one random action of the process. It returns false if another process has registered.
func (p *handOverProcess) step() bool {
	p.pass(time.Duration(p.r.Int64N(int64(p.pace) / 20)))
	switch what := p.r.IntN(10); {
	case what < 3:
		return p.heartbeat()
	case what < 6 && len(p.running) > 0:
		p.endOne()
	case !p.draining || p.handsOver:
		return p.poll()
	}
	return true
}

func (p *handOverProcess) endOne() {
	i := p.r.IntN(len(p.running))
	a := p.running[i]
	p.running = slices.Delete(p.running, i, i+1)
	a.holding.EndAttempt()
	a.complete()
}

// heartbeat renews the sessions, reports the preparations and applies the response, as package runner does.
func (p *handOverProcess) heartbeat() bool {
	in := protocol.WorkerHeartbeat{
		WorkerID: p.name, Namespace: p.ns, Incarnation: p.incarnation, Draining: p.draining,
	}
	sent := time.Now()
	in.Sessions, _ = p.sessions.Due(sent)
	for id, one := range p.prepared {
		if one.runs && p.r.IntN(3) > 0 {
			failed := ""
			if p.r.IntN(10) == 0 {
				failed = "no GPU here"
			}
			one.end(failed)
		}
		report := protocol.SessionPreparation{SessionID: id, Epoch: one.Epoch, Failed: one.failed}
		if report.Failed == "" {
			report.Failed = one.Discarded()
		}
		if report.Failed == "" && p.draining {
			report.Failed = "the worker drains"
		}
		report.Prepared = report.Failed == "" && !one.runs
		in.Preparations = append(in.Preparations, report)
	}
	a, err := p.app(p.r).WorkerHeartbeat(context.Background(), in)
	p.sessions.Renewed(sent, a.StoreTime.Time, in.Sessions, a.Sessions, err)
	if err != nil {
		if protocol.ReasonOf(err) == "" {
			p.fail("heartbeat: %w", err)
		}
		return false
	}
	p.handsOver = a.HandOvers > 0
	for _, s := range a.Preparations {
		p.apply(s, sent)
	}
	return true
}

// apply applies the state of one preparation in the response to a heartbeat.
func (p *handOverProcess) apply(s protocol.PreparationState, sent time.Time) {
	h := p.prepared[s.SessionID]
	known := h != nil && h.Epoch == s.Epoch
	switch {
	case s.State == protocol.PreparationPreparing && s.Session != nil && !known:
		p.discard(s.SessionID)
		h = &handOverPreparation{Holding: p.sessions.Prepare(s.Session, s.Epoch), runs: true}
		st := h.State.(*handOverState)
		st.session, st.prepared = s.SessionID, s.Epoch
		p.prepared[s.SessionID] = h
	case s.State == protocol.PreparationAcquired && s.Session != nil:
		p.owns(s.SessionID, s.Session.Epoch)
		p.sessions.Acquired(s.Session, s.Epoch, session.Lease{Sent: sent})
		delete(p.prepared, s.SessionID)
		p.count(&p.acquired)
	case s.State == protocol.PreparationDiscarded && known:
		p.discard(s.SessionID)
	}
}

func (p *handOverProcess) count(n *int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*n++
}

// discard ends a preparation. Its state must be torn down.
func (p *handOverProcess) discard(id string) {
	h := p.prepared[id]
	if h == nil {
		return
	}
	delete(p.prepared, id)
	p.sessions.Discard(id, h.Epoch, "discarded")
	h.end("discarded")
	p.count(&p.discarded)
}

// owns records that an app named this process as the owner of a session under an epoch.
func (p *handOverProcess) owns(id string, epoch int64) {
	p.mu.Lock()
	at := epochOf{id, epoch}
	former := p.owners[at]
	p.owners[at] = p.incarnation
	p.mu.Unlock()
	if former != "" && former != p.incarnation {
		p.fail("session %s has two owners under epoch %d: %s and %s", id, epoch, former, p.incarnation)
	}
}

// poll polls for one task and starts it.
func (p *handOverProcess) poll() bool {
	none, ctx := int64(0), context.Background()
	sent, b := time.Now(), p.app(p.r)
	a, err := ask(ctx, b, protocol.PollRequest{
		Namespace: p.ns, WorkerID: p.name, Incarnation: p.incarnation, Timeout: &none, HandOver: p.handsOver,
	})
	if err != nil {
		if protocol.ReasonOf(err) == "" {
			p.fail("poll: %w", err)
		}
		return false
	}
	if len(a.Tasks) == 0 {
		return true
	}
	task := a.Tasks[0].Activity
	s := task.Session
	p.owns(s.SessionID, s.Epoch)
	h, err := p.sessions.Enter(s, session.Lease{Sent: sent})
	if err != nil {
		p.sessions.Refused(ctx, s, err)
		finish(ctx, b, p.ns, task, func(item *protocol.CompleteItem) { item.Returned = "session_given_up" })
		return true
	}
	st := h.State.(*handOverState)
	var setUp *protocol.Recovered
	switch first := !st.ready.Load(); {
	case st.closed.Load():
		p.fail("session %s: an attempt under epoch %d runs in state that was torn down", s.SessionID, s.Epoch)
	case st.prepared != s.PreparedFor || st.prepared != 0 && (first || st.prepared >= s.Epoch):
		p.fail("session %s: an attempt under epoch %d runs in the state prepared for epoch %d", s.SessionID, s.Epoch, st.prepared)
	case first:
		st.session = s.SessionID
		st.ready.Store(true)
		setUp = handOverRebuilt()
	}
	p.running = append(p.running, handOverAttempt{h, func() {
		finish(ctx, b, p.ns, task, func(item *protocol.CompleteItem) { item.Recovered = setUp })
	}})
	return true
}

// shutdown drains the process: it waits for the hand-overs of its sessions, at most for some leases, and releases the
// others.
func (p *handOverProcess) shutdown() {
	p.draining, p.handsOver = true, false
	ok := p.heartbeat()
	for until := time.Now().Add(3 * p.pace); ok && time.Now().Before(until) && (p.handsOver || len(p.running) > 0); {
		ok = p.step()
	}
	for len(p.running) > 0 {
		p.endOne()
	}
	ctx, b := context.Background(), p.app(p.r)
	for _, s := range p.end("shutdown") {
		_, _ = b.ReleaseSession(ctx, protocol.SessionVerb{
			WorkerID: p.name, Namespace: p.ns, SessionID: s.SessionID, Epoch: s.Epoch, Reason: "shutdown",
		})
	}
	_, err := b.Deregister(ctx, protocol.DeregisterRequest{
		Namespace: p.ns, WorkerID: p.name, Incarnation: p.incarnation,
	})
	if err != nil && protocol.ReasonOf(err) == "" {
		p.fail("deregister: %w", err)
	}
	p.count(&p.drained)
}

// end ends the attempts and set-ups of the process and drops its sessions.
func (p *handOverProcess) end(reason string) []session.Info {
	for _, a := range p.running {
		a.holding.EndAttempt()
	}
	for _, one := range p.prepared {
		one.end(reason)
	}
	held := p.sessions.DropAll(reason)
	p.sessions.Wait(context.Background())
	return held
}

// Workers drain, are drained, killed and frozen while sessions are handed over: an epoch has one owner, an attempt runs
// in prepared state only under the epoch after that for which it was prepared, a worker never holds and prepares more
// sessions than its maximum, and the state of each discarded preparation is torn down.
func TestHandOversKeepTheInvariants(t *testing.T) {
	onSQLite := func() func() *harness { return func() *harness { return onSQLite(t) } }
	var allAcquired, allDiscarded int
	for name, in := range map[string]struct {
		open    func() func() *harness
		balance bool
	}{
		"postgres":        {func() func() *harness { w := onPostgres(t, 2); return func() *harness { return w } }, false},
		"sqlite":          {onSQLite, false},
		"sqlite, balance": {onSQLite, true},
	} {
		t.Run(name, func(t *testing.T) {
			w, n, first := in.open(), schedules(t, 12), seed(t)
			t.Logf("seeds from %d", first)
			var acquired, discarded, drained, rebalanced int
			var mu sync.Mutex
			var wait sync.WaitGroup
			slots := make(chan struct{}, 4)
			// On a busy machine no hand-over may end before its lease expires, so further schedules follow until all cases
			// occurred.
			missing := func() bool {
				mu.Lock()
				defer mu.Unlock()
				return acquired == 0 || discarded == 0 || in.balance && rebalanced == 0
			}
			for i := 0; i < n || i < 5*n && !t.Failed() && missing(); i++ {
				slots <- struct{}{}
				wait.Go(func() {
					defer func() { <-slots }()
					create := newHandOvers
					if in.balance {
						create = newBalance
					}
					s := create(w(), first+uint64(i))
					if err := s.run(); err != nil {
						t.Errorf("seed %d, lease %s, at most %d sessions:\n%v", s.seed, s.lease, s.most, err)
					}
					mu.Lock()
					defer mu.Unlock()
					acquired, discarded, drained = acquired+s.acquired, discarded+s.discarded, drained+s.drained
					rebalanced += s.rebalanced(s.ns, handOverSessions)
				})
			}
			wait.Wait()
			t.Logf("%d schedules: %d workers shut down, %d hand-overs, %d discarded preparations, %d for balance",
				n, drained, acquired, discarded, rebalanced)
			if in.balance && rebalanced == 0 {
				t.Error("no session was chosen to move for balance")
			}
			allAcquired, allDiscarded = allAcquired+acquired, allDiscarded+discarded
		})
	}
	// On a busy machine, a schedule with short leases may hand over no session: the leases expire first.
	if allAcquired == 0 || allDiscarded == 0 {
		t.Error("no session was handed over, or no preparation was discarded")
	}
}

// A task is ready before the drain of its session's owner begins: the commit of the preparation wakes the owner's poll,
// and the heartbeat that reports the drain does not end it. The poll may wait at another app than the one that receives
// the heartbeat.
func TestAPreparationWakesTheOwnersPoll(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { preparationWakesPoll(t, onSQLite(t), 0) })
	t.Run("postgres, another app", func(t *testing.T) { preparationWakesPoll(t, onPostgres(t, 2), 1) })
}

// preparationWakesPoll checks that a preparation that app 0 chooses wakes the owner's poll at an app.
func preparationWakesPoll(t *testing.T, w *harness, polled int) {
	ns, b, ctx := w.namespace("wake"), w.apps[0].Broker(), t.Context()
	for _, name := range []string{"a", "b"} {
		must[protocol.RegisterResponse](t)(b.Register(ctx, handOverWorker(ns, name, name+"1", 1, time.Hour)))
		must[protocol.WorkerHeartbeatResponse](t)(b.WorkerHeartbeat(ctx, protocol.WorkerHeartbeat{
			Namespace: ns, WorkerID: name, Incarnation: name + "1",
		}))
	}
	c := inHandOverSession("s")
	w.decide(ns, "wf", c, c)
	first := must[*protocol.ActivityTask](t)(poll(ctx, b, ns, "a", "a1", 30))
	finish(ctx, b, ns, first, func(item *protocol.CompleteItem) {
		item.Recovered = handOverRebuilt()
	})
	wait, got := int64(20), make(chan protocol.PollResponse, 1)
	go func() {
		a, err := ask(ctx, w.apps[polled].Broker(), protocol.PollRequest{
			Namespace: ns, WorkerID: "a", Incarnation: "a1", Timeout: &wait, HandOver: true,
		})
		if err != nil {
			t.Error(err)
		}
		got <- a
	}()
	key := engine.WorkerKey{Namespace: ns, ID: "a"}
	for len(w.apps[polled].Dispatch().Polls(key, protocol.KindActivity)) == 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // the claim of the poll finds nothing
	a := must[protocol.WorkerHeartbeatResponse](t)(b.WorkerHeartbeat(ctx, protocol.WorkerHeartbeat{
		Namespace: ns, WorkerID: "a", Incarnation: "a1", Draining: true,
	}))
	if a.HandOvers != 1 {
		t.Errorf("%d sessions are prepared, want 1", a.HandOvers)
	}
	if p := <-got; len(p.Tasks) != 1 {
		t.Errorf("the poll of the owner returned %q and %d tasks", p.Status, len(p.Tasks))
	}
}
