// Package session tracks the sessions that a worker holds: their epochs, state and lease renewals.
package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// State is the state of a session in the worker's process.
type State interface{ Close() }

// Options are options of the sessions of a worker. The zero value works.
type Options struct {
	Lease  time.Duration // default lease of sessions that this worker acquires: 30 s
	Buffer time.Duration // a lease is renewed this long before its end: 5 s
	Idle   time.Duration // an implicit session that is idle for longer is no longer renewed: 5 min
	// NewState creates the state of a session in this process; nil: no state.
	NewState func() State
	// End closes the executors of a session; nil: no call. ctx bounds the session's close hooks.
	End func(ctx context.Context, id string, epoch int64, reason string)
	// Failed reports to the app that the state of a held session was lost, after the worker dropped it; nil: no report.
	Failed func(ctx context.Context, id string, epoch int64, cause, detail string)
	// GiveUp releases an epoch at the app; known is the highest epoch of the session that this worker has seen. With nil,
	// only heartbeats release epochs.
	GiveUp func(ctx context.Context, id string, epoch, known int64) error
	// Adopt makes the executors that were prepared for epoch from the executors of epoch to; nil: no call. It must not
	// block.
	Adopt func(id string, from, to int64)
	// Beat requests an early heartbeat; nil: no call. It is called when the worker acquires a session with a short
	// lease.
	Beat func()
	// Snapshots reports whether sessions of a definition are released with a snapshot; nil: none.
	Snapshots func(definition string) bool
	// TakeSnapshot stores a snapshot of a session at the app's request and releases the session; nil: no call. It must
	// not block.
	TakeSnapshot func(id string, epoch int64)
	// ReleaseIdle releases a session with snapshots that has been idle for longer than Idle; nil: its lease expires. It
	// must not block.
	ReleaseIdle func(id string, epoch int64)
	Log         zerolog.Logger
}

// heartbeatInterval is the regular interval of heartbeats.
const heartbeatInterval = 10 * time.Second

// endTime is the timeout for ending one session.
const endTime = 10 * time.Second

// short is a limit for leases: a shorter lease is renewed after half of its length.
const short = 15 * time.Second

// Interval returns the interval at which a lease is renewed.
func Interval(lease, buffer time.Duration) time.Duration {
	if lease < short || buffer >= lease {
		return lease / 2
	}
	return lease - buffer
}

// Sessions are the sessions that one worker holds. All methods may be called concurrently.
type Sessions struct {
	opt    Options
	log    zerolog.Logger
	ending sync.WaitGroup

	mu   sync.Mutex // guards the fields below, and the holdings in held
	held map[string]*Holding
	// prepared are the sessions whose state this worker prepares while another worker owns them.
	prepared map[string]*Holding
	// givenUp maps session IDs to epochs whose state this worker has dropped although the app may still lease the
	// session to it. Every heartbeat reports these epochs until an app has confirmed them.
	givenUp  map[string]int64
	reportAt time.Time // when the next heartbeat may report them, after a report that failed
	epochs   *epochs
}

// New returns an empty set. It rejects an idle time shorter than the interval of renewals: a session would end while
// its activity runs.
func New(o Options, attemptInterval time.Duration) (*Sessions, error) {
	or := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	or(&o.Lease, 30*time.Second)
	or(&o.Buffer, 5*time.Second)
	or(&o.Idle, 5*time.Minute)
	if least := max(attemptInterval, Interval(o.Lease, o.Buffer)); o.Idle <= least {
		return nil,
			fmt.Errorf("session idle time %g s must be longer than the time between renewals, %g s: a session would end while its activity runs",
				o.Idle.Seconds(), least.Seconds())
	}
	return &Sessions{
		opt: o, log: o.Log, held: map[string]*Holding{}, prepared: map[string]*Holding{}, givenUp: map[string]int64{},
		epochs: newEpochs(mostEpochs),
	}, nil
}

// Holding is one session that the worker holds under one epoch, or prepares.
type Holding struct {
	ID string
	// Affinity is the session as the app described it, without arguments and snapshot.
	Affinity protocol.SessionAffinity
	Epoch    int64 // of a preparation: the owner's epoch
	State    State // nil without NewState

	set      *Sessions
	lease    time.Duration
	interval time.Duration
	failFast bool          // its leases are short; renewals must not wait for those of other workers
	idle     time.Duration // idle time after which the lease is not renewed; 0: never

	// The fields below are guarded by Sessions.mu.
	active     int
	last       time.Time // time of the last activity
	until      time.Time // end of the lease as the worker knows it; never later than the end in the store
	suspends   bool      // the worker keeps the state after the lease has ended; see Suspended
	suspended  time.Time // time when the session was suspended; zero: its lease is valid
	notBefore  time.Time // no renewal before this time, after a failed renewal
	dropped    string    // why the session is no longer held; "" while it is held
	rebuilds   int
	died       string                    // why the executor ended unexpectedly; "" while it runs
	detail     string                    // readable detail of died
	diedAfter  int                       // number of rebuilds when the executor ended
	rebuilding *rebuild                  // the running rebuild; nil: none
	setUpArgs  string                    // encoded arguments of the session's definition
	snapshot   *protocol.SessionSnapshot // state of the previous epoch, to be restored after the set-up; nil: none
	snapshots  bool                      // the session is released with a snapshot
	// the snapshot could not be restored, or was restored: later tasks of the epoch may still carry it
	snapshotLost bool
	idleReleased time.Time     // last activity of the idle session whose release was started
	leaving      bool          // a snapshot is taken, or the idle session is released
	used         bool          // an attempt began after the snapshot
	requested    bool          // the app requested a snapshot while one was taken
	unused       chan struct{} // closed when no attempt runs; nil: no caller waits
	lossShown    bool          // a task has failed with the loss of the state of the previous epoch
	closed       chan struct{} // closed when the state of the session is closed
}

// DroppedError reports that an attempt was dispatched under an epoch whose state this worker has dropped. The worker
// first releases the epoch and then returns the task without starting it, so that the next acquisition has a higher
// epoch.
type DroppedError struct {
	Session string
	Epoch   int64
}

func (e *DroppedError) Error() string {
	return fmt.Sprintf("the state of session %s, epoch %d, was dropped", e.Session, e.Epoch)
}

// SupersededError reports that an attempt was dispatched for a session epoch that has ended.
type SupersededError struct {
	Session     string
	Epoch, Held int64
}

func (e *SupersededError) Error() string {
	return fmt.Sprintf("session %s is held under epoch %d; the task is for epoch %d", e.Session, e.Held, e.Epoch)
}

// Lease is the lease of a session according to a response of the app. Workflow and activity tasks of a session do not
// always extend its lease, so only the end in the response counts, not the time of the response.
type Lease struct {
	Sent  time.Time // when this worker sent the request, by its own clock; the app responded then or later
	Store time.Time // when the app created the response, by the store's clock
	End   time.Time // end of the lease, by the store's clock
}

// until returns a time of this worker's clock that is not later than the end of the lease. length is the length of a
// full lease: if the response contains no times, at least two thirds of the length remain.
func (l Lease) until(length time.Duration) time.Time {
	if l.Store.IsZero() || l.End.IsZero() {
		return l.Sent.Add(length * 2 / 3)
	}
	return l.Sent.Add(min(length, l.End.Sub(l.Store)))
}

// Enter counts an attempt as running in its session. If the worker does not hold the session yet, Enter adds it. The
// caller must call EndAttempt when the attempt has ended. A newer epoch ends the state of an older epoch; an attempt of
// an older epoch is refused with a *SupersededError. lease is the lease from the last response about the attempt.
func (s *Sessions) Enter(a *protocol.SessionAffinity, lease Lease) (*Holding, error) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[a.SessionID]
	switch highest, dropped := s.epochs.of(a.SessionID); {
	case highest > a.Epoch:
		return nil, &SupersededError{Session: a.SessionID, Epoch: a.Epoch, Held: highest}
	case highest == a.Epoch && dropped:
		return nil, &DroppedError{Session: a.SessionID, Epoch: a.Epoch}
	}
	if h != nil && h.Epoch < a.Epoch {
		s.remove(h, "superseded")
		h = nil
	}
	if p := s.prepared[a.SessionID]; h == nil && a.PreparedFor != 0 {
		if p == nil || p.Epoch != a.PreparedFor || p.rebuilds == 0 {
			s.epochs.saw(a.SessionID, a.Epoch)
			s.epochs.dropped(a.SessionID, a.Epoch)
			return nil, &DroppedError{Session: a.SessionID, Epoch: a.Epoch}
		}
		h = s.adopt(p, a)
	}
	if h == nil {
		s.dropPrepared(a.SessionID, "acquired without it")
		h = s.newHolding(a)
		if s.opt.NewState != nil {
			h.State = s.opt.NewState()
		}
		s.hold(h)
		s.log.Debug().Str("session_id", h.ID).Int64("epoch", h.Epoch).Bool("is_new_claim", a.IsNew).Msg("session acquired")
	}
	if a.Arguments.Blob != "" {
		h.setUpArgs = a.Arguments.Blob
	}
	if h.rebuilds == 0 && a.Snapshot != nil && !h.snapshotLost {
		h.snapshot = a.Snapshot
	}
	h.active++
	h.last, h.used = now, true
	// the app leased the attempt under this epoch, so no other process has acquired the session
	h.suspended = time.Time{}
	h.extend(lease.until(h.lease))
	return h, nil
}

// newHolding returns a holding without state. The caller must hold mu.
func (s *Sessions) newHolding(a *protocol.SessionAffinity) *Holding {
	h := &Holding{ID: a.SessionID, Epoch: a.Epoch, set: s, lease: s.opt.Lease, closed: make(chan struct{})}
	if a.Lease > 0 {
		h.lease = time.Duration(a.Lease) * time.Second
	}
	h.Affinity = protocol.SessionAffinity{
		SessionID: a.SessionID, Epoch: a.Epoch, Origin: a.Origin, Queue: a.Queue, Definition: a.Definition,
		Reacquire: a.Reacquire,
	}
	h.interval = Interval(h.lease, s.opt.Buffer)
	if a.Origin == "" || a.Origin == "implicit" {
		h.idle = s.opt.Idle
	}
	h.snapshots = s.opt.Snapshots != nil && a.Definition != "" && s.opt.Snapshots(a.Definition)
	h.interval, h.suspends = min(h.interval, heartbeatInterval), a.Origin != "worker"
	if h.failFast = a.FailFast; h.failFast {
		h.interval = min(h.interval, protocol.FailFastRenewal)
	}
	return h
}

// hold adds a holding to the held sessions. The caller must hold mu.
func (s *Sessions) hold(h *Holding) {
	s.held[h.ID] = h
	s.epochs.saw(h.ID, h.Epoch)
	delete(s.givenUp, h.ID)
	if h.interval < heartbeatInterval && s.opt.Beat != nil {
		s.opt.Beat()
	}
}

// SetUpArguments returns the encoded arguments of the session's definition, as the app delivered them with a task of
// this epoch.
func (h *Holding) SetUpArguments() string {
	h.set.mu.Lock()
	defer h.set.mu.Unlock()
	return h.setUpArgs
}

// ShowLoss returns true to its first caller in this epoch if the state does not exist yet. That caller must fail its
// task with the loss of the state of the previous epoch.
func (h *Holding) ShowLoss() bool {
	h.set.mu.Lock()
	defer h.set.mu.Unlock()
	if h.lossShown || h.rebuilds > 0 || h.rebuilding != nil {
		return false
	}
	h.lossShown = true
	return true
}

// Refused releases the epoch of a task that Enter refused with err. Call it before returning the task, so that the app
// does not deliver the task to this worker under that epoch again. If no app can be reached, the next heartbeat
// releases the epoch.
func (s *Sessions) Refused(ctx context.Context, a *protocol.SessionAffinity, err error) {
	known := a.Epoch
	var superseded *SupersededError
	if errors.As(err, &superseded) {
		known = superseded.Held
	}
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	failed := errors.New("no connection")
	if s.opt.GiveUp != nil {
		failed = s.opt.GiveUp(ctx, a.SessionID, a.Epoch, known)
	}
	s.log.Warn().Err(err).AnErr("release_error", failed).Str("session_id", a.SessionID).Int64("epoch", a.Epoch).
		Int64("known_epoch", known).Msg("returned a session task: this worker no longer holds the session under that epoch")
	if failed != nil {
		s.reportGivenUp(a.SessionID, a.Epoch)
	}
}

// reportGivenUp makes the next heartbeat report that this worker has dropped the state of an epoch, unless the worker
// has acquired the session again.
func (s *Sessions) reportGivenUp(id string, epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[id] == nil {
		s.givenUp[id] = epoch
	}
}

// EndAttempt counts an attempt as ended.
func (h *Holding) EndAttempt() {
	s := h.set
	s.mu.Lock()
	defer s.mu.Unlock()
	h.active--
	h.last = time.Now()
	h.signalUnused()
	switch {
	case h.active > 0:
	case h.dropped != "":
		s.closeState(h)
	case h.died != "" && h.rebuilds == h.diedAfter:
		s.remove(h, h.died)
	}
}

// Died records that the executor of a session ended unexpectedly. The worker gives the session up as failed, unless a
// running attempt rebuilds its state.
func (s *Sessions) Died(id string, epoch int64, cause, detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.prepared[id]; p != nil && p.Epoch == epoch {
		s.dropPrepared(id, cause)
		return
	}
	h := s.held[id]
	if h == nil || h.Epoch != epoch {
		return
	}
	h.died, h.detail, h.diedAfter = cause, detail, h.rebuilds
	if h.active == 0 {
		s.remove(h, cause)
	}
}

// Evict gives an idle session up before its state is removed. It first calls release, which releases the session at the
// app. It returns false, and the state must stay, if an attempt runs in the session or release failed. It returns true
// for a session that is not held.
func (s *Sessions) Evict(id string, epoch int64, reason string, release func() error) bool {
	s.mu.Lock()
	if p := s.prepared[id]; p != nil && p.Epoch == epoch {
		s.dropPrepared(id, reason) // the next heartbeat reports it
		s.mu.Unlock()
		return true
	}
	h := s.held[id]
	here := h != nil && h.Epoch == epoch
	busy := here && h.active > 0
	if here && !busy && !h.suspended.IsZero() { // the lease has ended, so the app need not confirm
		s.giveUp(h, reason)
		here = false
	}
	s.mu.Unlock()
	if !here || busy {
		return !busy
	}
	if err := release(); err != nil {
		s.log.Warn().Err(err).Str("session_id", id).Int64("epoch", epoch).Str("reason", reason).
			Msg("failed to release a session")
		return false
	}
	s.Drop(id, epoch, reason)
	return true
}

// Yield releases an idle session so that the worker can hold another session. release releases it at the app. The
// worker keeps the session's state in memory until the app has confirmed the release. It closes the resource of a
// session with options before the release, because another worker may open the resource immediately afterwards. If the
// app rejects the release, the next heartbeat reports the epoch as dropped.
func (s *Sessions) Yield(id string, epoch int64, reason string, release func() error) {
	s.mu.Lock()
	h := s.held[id]
	if h == nil || h.Epoch != epoch || h.active > 0 || h.suspends {
		s.mu.Unlock()
		s.Evict(id, epoch, reason, release)
		return
	}
	s.remove(h, reason)
	s.mu.Unlock()
	<-h.closed
	if err := release(); err != nil {
		s.log.Warn().Err(err).Str("session_id", id).Int64("epoch", epoch).Str("reason", reason).
			Msg("failed to release a session to make room for another; the next heartbeat gives its epoch up")
		s.reportGivenUp(id, epoch)
	}
}

// Held reports whether, as far as this worker knows, it still holds the session under this epoch.
func (h *Holding) Held() bool {
	h.set.mu.Lock()
	defer h.set.mu.Unlock()
	return h.dropped == ""
}

// extend records that the lease lasts at least until a time.
func (h *Holding) extend(until time.Time) {
	if until.After(h.until) {
		h.until = until
	}
}

// renewal returns the time of the next renewal: as long before the expiry of the lease as for a new lease, but not
// before notBefore.
func (h *Holding) renewal() time.Time {
	if at := h.until.Add(h.interval - h.lease); at.After(h.notBefore) {
		return at
	}
	return h.notBefore
}

// Until returns when the lease of a held session ends, as far as this worker knows; zero if the session is not held.
func (s *Sessions) Until(id string, epoch int64) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[id]; h != nil && h.Epoch == epoch {
		return h.until
	}
	return time.Time{}
}

// Touched records that the renewal of an attempt's lease counts as activity in its session, and extends the session's
// lease.
func (s *Sessions) Touched(id string, epoch int64, lease Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[id]; h != nil && h.Epoch == epoch {
		h.suspended, h.last = time.Time{}, lease.Sent
		h.extend(lease.until(h.lease))
	}
}

// Drop removes a session whose lease the worker has lost. It closes the state when no attempt runs in the session.
// Epoch 0 means the current epoch.
func (s *Sessions) Drop(id string, epoch int64, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[id]; h != nil && (epoch == 0 || h.Epoch == epoch) {
		s.remove(h, reason)
	}
}

// Notified handles a notice of the app that the worker's lease of a session has ended. If the lease expired and the
// session can be resumed, Notified suspends the session; otherwise it drops it.
func (s *Sessions) Notified(n protocol.SessionNotice) {
	if n.Reason != protocol.EndedLeaseExpired && n.Reason != protocol.EndedHeartbeatStale {
		s.Drop(n.SessionID, n.Epoch, n.Reason)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h, now := s.held[n.SessionID], time.Now()
	if h == nil || h.Epoch != n.Epoch {
		return
	}
	if !h.suspends {
		s.remove(h, n.Reason)
		return
	}
	if h.until.After(now) {
		h.until = now
	}
	if s.suspend(h, now) && s.opt.Beat != nil {
		defer s.opt.Beat()
	}
}

// DropAll removes all sessions and prepared state, and returns the sessions.
func (s *Sessions) DropAll(reason string) []Info {
	s.dropAllPrepared(reason)
	all := s.List()
	for _, i := range all {
		s.Drop(i.SessionID, i.Epoch, reason)
	}
	return all
}

// remove removes h from the held sessions and records the reason. The caller must hold mu.
func (s *Sessions) remove(h *Holding, reason string) {
	if h.dropped != "" {
		return
	}
	h.dropped = reason
	s.epochs.dropped(h.ID, h.Epoch)
	if s.held[h.ID] == h {
		delete(s.held, h.ID)
	}
	s.log.Debug().Str("session_id", h.ID).Int64("epoch", h.Epoch).Str("reason", reason).Int("active", h.active).
		Float64("idle_duration", time.Since(h.last).Seconds()).Msg("session state dropped")
	if h.active == 0 {
		s.closeState(h)
	}
}

// closeState closes the state of h in the background. The caller must hold mu.
func (s *Sessions) closeState(h *Holding) {
	reason := h.dropped
	failed, detail := h.died != "" && reason == h.died, h.detail
	s.ending.Go(func() {
		defer close(h.closed)
		ctx, cancel := context.WithTimeout(context.Background(), endTime)
		defer cancel()
		if failed && s.opt.Failed != nil {
			s.opt.Failed(ctx, h.ID, h.Epoch, reason, detail)
		}
		if s.opt.End != nil {
			s.opt.End(ctx, h.ID, h.Epoch, reason)
		}
		if h.State != nil {
			h.State.Close()
		}
	})
}

// Wait waits until the state of all dropped sessions is closed, or until ctx ends.
func (s *Sessions) Wait(ctx context.Context) {
	done := make(chan struct{})
	go func() { s.ending.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Info describes a held session.
type Info struct {
	SessionID    string
	Epoch        int64
	Active       int
	LastActivity time.Time
}

// List returns the held sessions.
func (s *Sessions) List() []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Info, 0, len(s.held))
	for _, h := range s.held {
		all = append(all, Info{SessionID: h.ID, Epoch: h.Epoch, Active: h.active, LastActivity: h.last})
	}
	return all
}
