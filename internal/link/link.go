// Package link is the connection of a worker to its app: it dials, registers, reconnects, compares releases and sends
// heartbeats.
//
// A carrier ([Socket], [HTTP] or [Local]) makes connections with the verbs of [protocol.WorkerVerbs]. A [Link] offers
// the same verbs and adds reconnection, registration, the leases to renew, and the classification of errors.
package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/internal/release"
	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Carrier makes connections to the app.
type Carrier interface {
	// Dial connects and authenticates. The connection calls notices with messages from the app.
	Dial(ctx context.Context, hello protocol.ChannelAuth, notices protocol.WorkerNotices) (Conn, error)
}

// Conn is one connection. It does not reconnect.
type Conn interface {
	protocol.WorkerConnection
	Done() <-chan struct{} // closed when the connection has ended
	Err() error            // why the connection ended
	// Close ends the connection and waits for its goroutines.
	Close()
	String() string // the app's address, for logs
}

// quiet is implemented by connections over which the app cannot send notices, such as HTTP.
type quiet interface{ Quiet() bool }

// Holdings are the leases and sessions of the worker. The link calls Due before each heartbeat and Renewed after it.
type Holdings interface {
	// Due returns the leases and sessions that a heartbeat sent at now must renew, and when the next renewal is due
	// (zero: none).
	Due(now time.Time) (leases []protocol.HeartbeatRequest, sessions []protocol.SessionRenewal, next time.Time)
	// Leases returns all leases, due or not. The link sends them on connections over which the app cannot send a notice
	// that a lease has ended.
	Leases() []protocol.HeartbeatRequest
	// Renewed receives the response or the error of a heartbeat sent at sent, with the leases and sessions in it.
	Renewed(
		sent time.Time, leases []protocol.HeartbeatRequest, sessions []protocol.SessionRenewal,
		a protocol.WorkerHeartbeatResponse, err error,
	)
}

// Preparations are the sessions that a worker prepares while another worker owns them. Both methods must not block.
type Preparations interface {
	// Preparations returns what a heartbeat reports. A draining worker prepares nothing any more.
	Preparations(draining bool) []protocol.SessionPreparation
	// Prepared receives the response to a heartbeat sent at sent.
	Prepared(sent time.Time, a protocol.WorkerHeartbeatResponse)
}

// Options of a link. Carrier, WorkerID and Register are required.
type Options struct {
	Carrier     Carrier
	WorkerID    string
	Namespace   string
	Group       string
	Token       string
	Incarnation string
	Release     string
	Strict      bool

	// Register returns the registration; the link calls it at each connection.
	Register func() protocol.RegisterRequest
	// Machine returns information about the machine; it must not block. nil: only the release is sent.
	Machine  func() protocol.MachineInformation
	Holdings Holdings // nil: no leases
	// Preparations are the sessions of other workers that this one sets up; nil: the worker prepares no sessions.
	Preparations Preparations
	// HandsOver reports whether the worker holds sessions that may be handed over in a drain; nil: it holds none.
	HandsOver func() bool
	// OnCancel, OnSession, OnDrain, OnSettings and OnPause are called when a notice of the app arrives. They must not
	// block; any of them may be nil.
	OnCancel func(protocol.CancelNotice)
	// OnEnded is called with runs that ended while this process cached them. Kept returns the cached runs, which the
	// link sends to an app at its first connection. Both may be nil.
	OnEnded    func(runs []string)
	CachedRuns func() []protocol.CachedRun
	OnSession  func(protocol.SessionNotice)
	// OnYield is called when the worker must release a session. It may block: the notice is answered after it returns.
	// May be nil.
	OnYield    func(context.Context, protocol.SessionNotice)
	OnDrain    func()
	OnSettings func(protocol.WorkerSettings)
	// OnPause is called when an operator pauses or resumes this worker, with the operator's reason.
	OnPause func(paused bool, reason string)

	Heartbeat      time.Duration // interval of heartbeats: as the app specifies, or 10 s
	SettingsWait   time.Duration // timeout of the settings request: 10 s
	SettingsTries  int           // 3
	CallTimeout    time.Duration // timeout of a call without a deadline: 60 s
	BackoffMin     time.Duration // between tries to connect: 100 ms …
	BackoffMax     time.Duration // at most 5 s: a lease of 30 s must outlive an interruption and the reconnection
	MismatchPause  time.Duration // polls pause for so long while the releases differ: 10 s
	ConnectTimeout time.Duration // timeout of one connection attempt with its handshake: 10 s
	Log            zerolog.Logger
}

func (o Options) defaults() Options {
	or := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	or(&o.SettingsWait, 10*time.Second)
	or(&o.CallTimeout, 60*time.Second)
	or(&o.BackoffMin, 100*time.Millisecond)
	or(&o.BackoffMax, 5*time.Second)
	or(&o.MismatchPause, 10*time.Second)
	or(&o.ConnectTimeout, 10*time.Second)
	if o.SettingsTries <= 0 {
		o.SettingsTries = 3
	}
	if o.Namespace == "" {
		o.Namespace = "default"
	}
	return o
}

// Link keeps one connection to the app alive. All methods may be called from any goroutine; Run once.
type Link struct {
	opt  Options
	log  zerolog.Logger
	kick chan struct{} // a value requests a heartbeat now

	refreshing sync.Mutex // held while the settings are fetched again

	mu              sync.Mutex // guards the fields below
	live            *live
	generation      uint64        // number of the connection; incremented at every disconnect
	changed         chan struct{} // closed and replaced by notifyChanged
	fatal           error
	draining        bool
	handOver        *handOver      // nil: no session of this worker is handed over
	handOverBegins  chan struct{}  // closed and replaced when handOver is set
	handedOver      bool           // the draining worker has no session left that a successor prepares
	deregistering   bool           // Deregister has begun: calls that fail from now on are expected to
	deregistered    bool           // Deregister was sent and may have arrived: the link must not register again
	verdict         string         // last result of the release check, so that each change is logged once
	gated           string         // why the release check blocks dispatch; empty: it does not
	unproven        bool           // the app dispatches although neither release could be determined
	foreignReleases int            // connections in a row to apps of other releases
	paused          chan struct{}  // closed when an operator resumes this worker; nil: it is not paused
	held            held           // has a separate lock
	unreported      unreportedRuns // used by the heartbeat only
	prepares        bool           // used by the heartbeat only: the worker prepares sessions
}

// live is a connection that is registered.
type live struct {
	conn       Conn
	generation uint64
	ctx        context.Context // ends with the connection
	end        context.CancelCauseFunc
	settings   protocol.WorkerSettings

	registering sync.Mutex // held while the worker registers again
}

// ErrNotConnected is wrapped by the error of a call that found no connection before its context ended.
var ErrNotConnected = errors.New("not connected to the app")

// ErrConnectionEnded is wrapped by the errors of calls whose connection ended while they ran. The link logs the end
// itself.
var ErrConnectionEnded = errors.New("the connection ended")

// ErrSuperseded reports that another process registered under this worker ID, or that the worker was removed. This
// process must stop.
var ErrSuperseded = errors.New("this process is no longer registered")

// ErrLeft is the error of calls after Deregister.
var ErrLeft = errors.New("the worker has deregistered")

// New returns a link; Run connects it.
func New(o Options) (*Link, error) {
	if o.Carrier == nil || o.WorkerID == "" || o.Register == nil {
		return nil, errors.New("link: carrier, worker id and registration are required")
	}
	o = o.defaults()
	return &Link{
		opt: o, log: o.Log.With().Str("worker_id", o.WorkerID).Logger(), kick: make(chan struct{}, 1),
		changed: make(chan struct{}), handOverBegins: make(chan struct{}),
	}, nil
}

// Run connects, and reconnects whenever the connection is lost, until ctx ends. Then it closes the connection and
// returns nil. It returns ErrSuperseded or a permanent refusal of the app.
func (l *Link) Run(ctx context.Context) error {
	back := retry.Backoff{Min: l.opt.BackoffMin, Max: l.opt.BackoffMax}
	beats := make(chan struct{})
	beatCtx, stop := context.WithCancel(ctx)
	go func() { defer close(beats); l.heartbeatLoop(beatCtx) }()
	defer func() { stop(); <-beats }()
	last := ""
	for ctx.Err() == nil {
		began := time.Now()
		err := l.runConnection(ctx)
		if fatal := l.failure(); fatal != nil {
			return fatal
		}
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, errReturns) {
			l.log.Info().Msg("worker returns to the app that it prefers")
			back.Reset()
			continue
		}
		if time.Since(began) > l.opt.BackoffMax {
			back.Reset() // the connection was usable
		}
		wait := back.Next()
		if text := err.Error(); text != last {
			l.log.Warn().Err(err).Msg("connection to the app lost; reconnecting")
			last = text
		} else {
			l.log.Debug().Err(err).Dur("wait", wait).Msg("failed to connect to the app; retrying")
		}
		sleep(ctx, wait)
	}
	return nil
}

// runConnection handles one connection from its start to its end.
func (l *Link) runConnection(ctx context.Context) error {
	dial, cancel := context.WithTimeout(ctx, l.opt.ConnectTimeout)
	conn, err := l.opt.Carrier.Dial(dial, protocol.ChannelAuth{
		Token: l.opt.Token, WorkerID: l.opt.WorkerID, GroupID: l.opt.Group, Protocol: protocol.ChannelVersion,
		Namespace: l.opt.Namespace,
	}, notices{l})
	cancel()
	if err != nil {
		return err
	}
	defer conn.Close()
	connCtx, end := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-conn.Done():
			end(conn.Err())
		case <-connCtx.Done():
		}
	})
	defer watch.Wait()
	defer end(nil)
	settings, err := l.fetch(connCtx, conn)
	if err != nil {
		return fmt.Errorf("fetch settings from %s: %w", conn, err)
	}
	lv := &live{conn: conn, ctx: connCtx, end: end, settings: settings}
	if l.opt.OnSettings != nil {
		l.opt.OnSettings(settings)
	}
	if l.isDeregistered() {
		return ErrLeft
	}
	if err := l.register(connCtx, lv, l.held.keys(time.Now())); err != nil {
		return fmt.Errorf("register at %s: %w", conn, err)
	}
	l.publish(lv)
	defer l.publish(nil)
	l.judge(settings.Release, settings.Strict)
	line := l.log.Info()
	if l.alternatesApps() {
		line = l.log.Debug()
	}
	line.Str("app", conn.String()).Str("app_release", settings.Release).Msg("connected to the app")
	l.Beat()
	return l.stay(connCtx, conn)
}

// errOtherRelease ends a connection to an app that dispatches nothing to this worker because their releases differ.
var errOtherRelease = errors.New("the app has another release; trying the next app")

// stay waits for the end of a connection. With several apps it also ends the connection itself:
//
//   - The app has another release: at once until the worker has tried every app, then every MismatchPause/2.
//   - The app is not the preferred one and the preferred app is ready.
//
// The leases and sessions of the worker survive, because the apps share one database.
func (l *Link) stay(ctx context.Context, conn Conn) error {
	many, ok := l.opt.Carrier.(interface{ Apps() int })
	if !ok || many.Apps() < 2 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if l.countForeignRelease() && l.foreignReleases%many.Apps() != 0 {
		return errOtherRelease
	}
	releaseCheck := time.NewTicker(max(l.opt.MismatchPause/2, time.Millisecond))
	defer releaseCheck.Stop()
	back := l.newComeback(conn)
	defer back.timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-releaseCheck.C:
			l.mu.Lock()
			gated := l.gated != "" && !l.draining
			l.mu.Unlock()
			if gated {
				return errOtherRelease
			}
		case <-back.timer.C:
			if back.due(ctx) {
				return errReturns
			}
		}
	}
}

// Gated returns why the app dispatches nothing to this worker because of its release; empty: the app dispatches.
func (l *Link) Gated() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gated
}

// Unproven reports whether the app dispatches to this worker although neither release could be read.
func (l *Link) Unproven() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unproven
}

// Leaving reports whether the worker drains or has deregistered.
func (l *Link) Leaving() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.draining || l.deregistering
}

// countForeignRelease counts consecutive connections to apps of another release. It reports whether this connection is
// one and the worker does not drain.
func (l *Link) countForeignRelease() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gated == "" {
		l.foreignReleases = 0
		return false
	}
	l.foreignReleases++
	return !l.draining
}

// alternatesApps reports whether the worker alternates between apps of other releases. Its connections are then logged
// at debug level only.
func (l *Link) alternatesApps() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gated != "" && l.foreignReleases > 1
}

// fetch requests the settings, with SettingsTries attempts, because the response of an app under load may time out.
func (l *Link) fetch(ctx context.Context, conn Conn) (s protocol.WorkerSettings, err error) {
	for range l.opt.SettingsTries {
		attempt, cancel := context.WithTimeout(ctx, l.opt.SettingsWait)
		s, err = conn.Settings(attempt, l.machine())
		cancel()
		if err == nil || ctx.Err() != nil {
			return s, err
		}
	}
	return s, err
}

func (l *Link) machine() protocol.MachineInformation {
	var m protocol.MachineInformation
	if l.opt.Machine != nil {
		m = l.opt.Machine()
	}
	m.WorkerID = l.opt.WorkerID
	if m.Props == nil {
		m.Props = &protocol.WorkerProps{}
	}
	m.Props.Version = l.opt.Release
	return m
}

// register registers this process. Registering the same incarnation again updates the registration. On a new connection
// held has the keys of the tasks that this process received, so that the app can requeue tasks lost with the old
// connection. On an existing connection held is nil, because tasks may be in flight.
func (l *Link) register(ctx context.Context, lv *live, held *[]string) error {
	in := l.opt.Register()
	in.Held = held
	in.HeartbeatSecs = new(min(max(int64(l.beatInterval(lv)/time.Second), 1), 3600))
	in.WorkerID, in.Namespace, in.Incarnation, in.Release = l.opt.WorkerID, l.opt.Namespace, l.opt.Incarnation,
		l.opt.Release
	_, err := call(ctx, l, lv.conn, "register", protocol.WorkerVerbs.Register, in)
	return err
}

// publish makes lv the connection that calls use; nil: there is no connection.
func (l *Link) publish(lv *live) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lv == nil {
		l.generation++
	} else {
		lv.generation = l.generation
	}
	l.live = lv
	l.notifyChanged()
}

// Generation counts disconnects. A task that started under an older generation does not poll for more tasks.
func (l *Link) Generation() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.generation
}

// Changed returns a channel that is closed at the next disconnect or connect, or when an operator resumes this worker.
func (l *Link) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Connected reports whether the worker has a registered connection.
func (l *Link) Connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live != nil
}

// EverRegistered reports whether an app has ever registered this process, so that deregistering may be necessary.
func (l *Link) EverRegistered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live != nil || l.generation > 0
}

// Settings returns the settings of the current connection, or the zero value.
func (l *Link) Settings() protocol.WorkerSettings {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live == nil {
		return protocol.WorkerSettings{}
	}
	return l.live.settings
}

// Ready waits until there is a connection.
func (l *Link) Ready(ctx context.Context) error {
	_, err := l.wait(ctx)
	return err
}

func (l *Link) wait(ctx context.Context) (*live, error) {
	for {
		l.mu.Lock()
		lv, changed, fatal, deregistered := l.live, l.changed, l.fatal, l.deregistered
		l.mu.Unlock()
		switch {
		case deregistered:
			return nil, ErrLeft
		case fatal != nil:
			return nil, fatal
		case lv != nil && lv.ctx.Err() == nil:
			return lv, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrNotConnected, context.Cause(ctx))
		}
		if lv != nil {
			continue // the connection was about to be closed
		}
	}
}

// notifyChanged wakes the callers that wait for the channel of Changed. The caller must hold mu.
func (l *Link) notifyChanged() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// fail ends the link permanently.
func (l *Link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal != nil {
		return
	}
	l.fatal = err
	if l.live != nil {
		l.live.end(err)
	}
	l.notifyChanged()
}

// setDeregistered records whether the worker has sent its deregistration.
func (l *Link) setDeregistered(deregistered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deregistering, l.deregistered = true, deregistered
}

func (l *Link) isDeregistered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deregistered
}

func (l *Link) isDeregistering() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deregistering
}

func (l *Link) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

// gate compares the release of an app with that of the worker.
func (l *Link) gate(app string, strict bool) release.Verdict {
	return release.Gate(app, l.opt.Release, strict || l.opt.Strict)
}

// judge compares the app's release with the worker's and logs each change of the result.
func (l *Link) judge(app string, strict bool) release.Verdict {
	v := l.gate(app, strict)
	l.mu.Lock()
	changed := l.verdict != v.Reason+v.Message
	l.verdict, l.gated, l.unproven = v.Reason+v.Message, "", v.Unreadable && v.Allowed
	if !v.Allowed {
		l.gated = v.Message
	}
	l.mu.Unlock()
	switch {
	case !changed:
	case !v.Allowed:
		l.log.Warn().Str("reason", v.Reason).Msg(v.Message)
	case v.Unreadable:
		l.log.Error().Msg(v.Message)
	default:
		l.log.Info().Str("release", app).Msg("app and worker releases match; dispatch enabled")
	}
	return v
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
