package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// channel is the LISTEN/NOTIFY channel of the apps of one database.
const channel = "sojourn"

// noticeInterval is the minimum time between two notifications; everything that happens in between is sent in one.
const noticeInterval = 10 * time.Millisecond

// finalNoticesTimeout limits the time for sending the remaining notifications when a process ends.
const finalNoticesTimeout = time.Second

// maxReconnectDelay is the longest time between two attempts to connect.
const maxReconnectDelay = 5 * time.Second

// maxEndedNotices is the maximum number of ended session holdings that wait to be notified. The other holders notice
// the end at their next renewal.
const maxEndedNotices = 1000

// maxPayload keeps one notification below PostgreSQL's limit of 8000 bytes.
const maxPayload = 7000

// bus notifies the other apps on the database of commits (NOTIFY) and receives their notifications (LISTEN). It uses
// separate connections, so that no commit waits for it. If one of them breaks, notifications are lost, and the bus
// reports the loss: the listener to its dispatcher, the sender to the other apps. Waiting polls then claim again.
type bus struct {
	server        *server
	app           string
	dispatch      store.Dispatcher
	stop          context.CancelFunc
	ctx           context.Context // ends with the bus
	running       sync.WaitGroup
	wake          chan struct{}
	queuesChanged chan struct{} // another app changed the settings of a queue
	migrated      chan struct{} // another process migrated the database

	mu                   sync.Mutex
	queues               map[sqldb.QueueKey]bool    // queues with pending notices; guarded by mu
	queuesChangedPending bool                       // a notice of changed settings of queues is pending; guarded by mu
	runs                 map[string]store.RunChange // guarded by mu
	ended                []ended                    // guarded by mu
	expired              map[engine.WorkerKey]bool  // guarded by mu
	deregistered         map[store.Process]bool     // deregistered or superseded; guarded by mu
	// processes that reported the start or end of a drain; guarded by mu
	drainChanged map[store.Process]bool

	answers   []string    // guarded by mu
	tokens    []string    // guarded by mu
	connected atomic.Bool // the listener is connected
}

// message is one notification.
type message struct {
	App    string `json:"app"`
	Missed bool   `json:"m,omitempty"` // other messages were lost
	// Migrated: the schema was migrated. The message has no other content, since the sender may not serve the schema.
	Migrated      bool              `json:"s,omitempty"`
	QueuesChanged bool              `json:"d,omitempty"` // settings of a queue changed
	Expired       []worker          `json:"w,omitempty"` // workers whose lease expired
	Deregistered  []worker          `json:"g,omitempty"` // deregistered or superseded
	DrainChanged  []worker          `json:"v,omitempty"` // processes that reported the start or end of a drain
	Queues        []sqldb.QueueKey  `json:"q,omitempty"`
	Runs          []store.RunChange `json:"r,omitempty"`
	Ended         []ended           `json:"e,omitempty"`
	Answers       []string          `json:"a,omitempty"` // query tasks that were answered
	Tokens        []string          `json:"t,omitempty"` // tokens that were created, changed or deleted
}

// worker names a worker in a notice: its lease expired, the registration of one of its processes ended, or it started
// or stopped draining.
type worker struct {
	Namespace   string `json:"ns"`
	ID          string `json:"id"`
	Incarnation string `json:"i,omitempty"` // missing in older releases
}

func workerOf(p store.Process) worker { return worker{p.Worker.Namespace, p.Worker.ID, p.Incarnation} }

func (w worker) process() store.Process {
	return store.Process{Worker: w.key(), Incarnation: w.Incarnation}
}

func (w worker) key() engine.WorkerKey { return engine.WorkerKey{Namespace: w.Namespace, ID: w.ID} }

// ended is the end of a worker's holding of a session, with the details that the previous owner receives.
type ended struct {
	Namespace string `json:"ns"`
	Session   string `json:"s"`
	What      string `json:"w"`
	Worker    string `json:"o"`
	Epoch     int64  `json:"p"`
	Why       string `json:"y,omitempty"`
}

func newBus(server *server, app string, d store.Dispatcher) *bus {
	ctx, stop := context.WithCancel(context.Background())
	return &bus{
		server: server, app: app, dispatch: d, ctx: ctx, stop: stop, wake: make(chan struct{}, 1),
		queuesChanged: make(chan struct{}, 1), migrated: make(chan struct{}, 1),
		queues: map[sqldb.QueueKey]bool{}, runs: map[string]store.RunChange{}, expired: map[engine.WorkerKey]bool{},
		deregistered: map[store.Process]bool{}, drainChanged: map[store.Process]bool{},
	}
}

// start starts to send notices, and to receive them on a connection that listen returns.
func (b *bus) start(s *sqldb.Store, c *pgx.Conn) {
	b.running.Go(b.sendNotices)
	b.running.Go(func() { b.listenLoop(c, s) })
	b.running.Go(func() { b.refresh(s) })
}

func (b *bus) close() error {
	b.stop()
	b.running.Wait()
	return nil
}

// notify records the notices of a commit. The committer calls it, so it does not block.
func (b *bus) notify(n sqldb.Notice) {
	b.mu.Lock()
	for _, q := range n.Queues {
		b.queues[q] = true
	}
	b.queuesChangedPending = b.queuesChangedPending || n.FairnessChanged
	for _, r := range n.Runs {
		if old, pending := b.runs[r.RunID]; pending {
			r.Cancelled, r.OnlyRenewed = append(old.Cancelled, r.Cancelled...), r.OnlyRenewed && old.OnlyRenewed
		}
		r.Closing = nil // other apps do not need it, and it may be large
		b.runs[r.RunID] = r
	}
	b.answers = append(b.answers, n.Answers...)
	b.tokens = append(b.tokens, n.Tokens...)
	for _, k := range n.Expired {
		b.expired[k] = true
	}
	for _, k := range n.Superseded {
		b.deregistered[k] = true
	}
	for _, k := range n.DrainChanged {
		b.drainChanged[k] = true
	}
	for _, m := range n.Ended {
		if len(b.ended) < maxEndedNotices {
			b.ended = append(
				b.ended, ended{m.Session.Namespace, m.Session.ID, m.What, m.Worker, m.Epoch, m.Why[:min(len(m.Why), 200)]},
			)
		}
	}
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// notifyStmt sends a notification within a transaction. Other apps receive it if and only if the transaction is
// committed.
var notifyStmt = &db.Stmt{SQL: "SELECT pg_notify($1, $2)"}

// queuesChangedCall returns the call that notifies the other apps, in the committer's transaction, of changed settings
// of a queue.
func (b *bus) queuesChangedCall() *db.Call {
	return &db.Call{
		Stmt: notifyStmt, Args: []any{channel, encode(message{App: b.app, QueuesChanged: true})},
		Row: func([]any) error { return nil },
	}
}

// drainNotices returns the pending notices as notifications of at most maxPayload bytes.
func (b *bus) drainNotices() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	m, size := message{App: b.app}, 0
	cut := func(more int) {
		if size += more; size > maxPayload {
			out = append(out, encode(m))
			m, size = message{App: b.app}, more
		}
	}
	m.QueuesChanged = b.queuesChangedPending
	for k := range b.expired { // expired workers first: the tasks that they lost are in the queues
		cut(len(k.Namespace) + len(k.ID) + 32)
		m.Expired = append(m.Expired, worker{Namespace: k.Namespace, ID: k.ID})
	}
	for p := range b.deregistered {
		cut(len(p.Worker.Namespace) + len(p.Worker.ID) + len(p.Incarnation) + 40)
		m.Deregistered = append(m.Deregistered, workerOf(p))
	}
	for p := range b.drainChanged {
		cut(len(p.Worker.Namespace) + len(p.Worker.ID) + len(p.Incarnation) + 40)
		m.DrainChanged = append(m.DrainChanged, workerOf(p))
	}
	for q := range b.queues {
		cut(len(q.Namespace) + len(q.Queue) + 64)
		m.Queues = append(m.Queues, q)
	}
	for _, r := range b.runs {
		if len(r.Cancelled) > 8 { // the others are notified at their next renewal
			r.Cancelled = r.Cancelled[:8]
		}
		cut(len(r.Namespace) + len(r.WorkflowID) + len(r.ContinuedTo) + 180 + 160*len(r.Cancelled))
		m.Runs = append(m.Runs, r)
	}
	for _, e := range b.ended {
		cut(2*(len(e.Namespace)+len(e.Session)+len(e.Worker)+len(e.Why)) + 120)
		m.Ended = append(m.Ended, e)
	}
	for _, id := range b.tokens {
		cut(len(id) + 8)
		m.Tokens = append(m.Tokens, id)
	}
	for _, id := range b.answers {
		cut(len(id) + 8)
		m.Answers = append(m.Answers, id)
	}
	if m.QueuesChanged || len(m.Expired)+len(m.Queues) > 0 || m.hasChanges() {
		out = append(out, encode(m))
	}
	clear(b.queues)
	clear(b.runs)
	clear(b.expired)
	clear(b.deregistered)
	clear(b.drainChanged)
	b.ended, b.answers, b.tokens, b.queuesChangedPending = nil, nil, nil, false
	return out
}

// hasChanges reports whether the message contains changes for subscribers.
func (m message) hasChanges() bool {
	return len(m.Runs)+len(m.Ended)+len(m.Deregistered)+len(m.DrainChanged)+len(m.Answers)+len(m.Tokens) > 0
}

// changed converts the message to the notice that this process passes to its own dispatcher.
func (m message) changed() store.Changed {
	c := store.Changed{Runs: m.Runs, Answers: m.Answers, Tokens: m.Tokens, Remote: true}
	for _, k := range m.Deregistered {
		c.Superseded = append(c.Superseded, k.process())
	}
	for _, k := range m.DrainChanged {
		c.DrainChanged = append(c.DrainChanged, k.process())
	}
	for _, e := range m.Ended {
		k := engine.SessionKey{Namespace: e.Namespace, ID: e.Session}
		c.Sessions = append(c.Sessions, k)
		c.Moves = append(c.Moves, store.SessionMove{Session: k, Remote: true, SessionEvent: protocol.SessionEvent{
			What: e.What, Worker: e.Worker, Epoch: e.Epoch, Why: e.Why,
		}})
	}
	return c
}

func encode(m message) string {
	raw, _ := json.Marshal(m) // only strings and numbers: it cannot fail
	return string(raw)
}

// sendNotices sends the recorded notices at a minimum interval. It drops notices that it could not send, and sends a
// message that some were lost. When the bus ends, it first sends all recorded notices: the last notice of an app that
// stops is its own end.
func (b *bus) sendNotices() {
	var c *pgx.Conn
	defer func() { closeConn(c) }()
	ctx, stop := context.WithCancel(context.WithoutCancel(b.ctx))
	defer stop()
	defer context.AfterFunc(b.ctx, func() { time.AfterFunc(finalNoticesTimeout, stop) })()
	lost := false
	for wait := noticeInterval; ; {
		if !lost {
			select {
			case <-b.wake:
			case <-b.ctx.Done():
			}
		}
		ending := b.ctx.Err() != nil
		list := b.drainNotices()
		if lost {
			list = []string{encode(message{App: b.app, Missed: true})}
		}
		var err error
		c, err = b.send(ctx, c, list)
		switch {
		case ending:
			return
		case err != nil:
			closeConn(c)
			c, lost, wait = nil, true, min(2*wait, maxReconnectDelay)
		default:
			lost, wait = false, noticeInterval
		}
		b.pause(wait)
	}
}

// send sends notifications on a connection, connects if there is none, and returns the connection.
func (b *bus) send(ctx context.Context, c *pgx.Conn, list []string) (_ *pgx.Conn, err error) {
	if c == nil && len(list) > 0 {
		if c, err = b.connect(ctx); err != nil {
			return nil, err
		}
	}
	for _, payload := range list {
		if _, err = c.Exec(ctx, "SELECT pg_notify($1, $2)", channel, payload); err != nil {
			break
		}
	}
	return c, err
}

func (b *bus) connect(ctx context.Context) (*pgx.Conn, error) {
	return b.server.connect(ctx, func(cfg *pgx.ConnConfig) { cfg.RuntimeParams["application_name"] = "sojourn bus" })
}

func closeConn(c *pgx.Conn) {
	if c != nil {
		_ = c.Close(context.Background())
	}
}

// listen connects and executes LISTEN. After it returns, no notice is missed until the connection breaks.
func (b *bus) listen(ctx context.Context) (*pgx.Conn, error) {
	c, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = c.Exec(ctx, "LISTEN "+channel); err != nil {
		closeConn(c)
		return nil, fmt.Errorf("LISTEN on channel %s: %w", channel, err)
	}
	return c, nil
}

// listenLoop receives notices of other apps, and reconnects if necessary.
func (b *bus) listenLoop(c *pgx.Conn, s *sqldb.Store) {
	for wait := noticeInterval; ; {
		if c != nil {
			b.connected.Store(true)
			b.receive(c, s)
			b.connected.Store(false)
			closeConn(c)
			wait = noticeInterval
		}
		if !b.pause(wait) {
			return
		}
		var err error
		if c, err = b.listen(b.ctx); err != nil {
			wait = min(2*wait, maxReconnectDelay)
			continue
		}
		b.noticesLost(s)
	}
}

// noticesLost reports that any commit of other apps may have been missed.
func (b *bus) noticesLost(s *sqldb.Store) {
	requestRead(b.migrated)
	requestRead(b.queuesChanged)
	s.InvalidateRoutingKeys()
	if b.dispatch != nil {
		b.dispatch.Missed()
	}
}

func (b *bus) receive(c *pgx.Conn, s *sqldb.Store) {
	for {
		n, err := c.WaitForNotification(b.ctx)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal([]byte(n.Payload), &m) != nil || m.App == b.app {
			continue
		}
		if m.Missed {
			b.noticesLost(s)
		}
		if m.Migrated {
			requestRead(b.migrated)
		}
		if slices.ContainsFunc(m.Queues, func(q sqldb.QueueKey) bool { return !q.Kind.Asked() }) {
			s.InvalidateRoutingKeys()
		}
		if m.QueuesChanged {
			requestRead(b.queuesChanged)
		}
		s.MarkStale(m.Runs)
		if b.dispatch == nil {
			continue
		}
		for _, k := range m.Expired {
			b.dispatch.LeaseExpired(k.key())
		}
		for _, k := range m.Deregistered {
			if k.Incarnation != "" {
				b.dispatch.Deregistered(k.process())
			}
		}
		for _, q := range m.Queues {
			b.dispatch.Backlog(q.Namespace, q.Queue, q.Kind)
		}
		if m.hasChanges() {
			b.dispatch.Changed(m.changed())
		}
	}
}

// requestRead requests another read by the goroutine that receives from ch.
func requestRead(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// refresh reads the settings of queues whenever another app changed them. When another process migrated the schema, it
// reads which binaries may serve it. It repeats a failed read.
func (b *bus) refresh(s *sqldb.Store) {
	for {
		var err error
		var at chan struct{}
		select {
		case <-b.queuesChanged:
			at, err = b.queuesChanged, s.RefreshQueues(b.ctx)
		case <-b.migrated:
			at, err = b.migrated, s.CheckSchema(b.ctx)
		case <-b.ctx.Done():
			return
		}
		if err != nil {
			requestRead(at)
			if !b.pause(maxReconnectDelay) {
				return
			}
		}
	}
}

func (b *bus) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-b.ctx.Done():
		return false
	}
}
