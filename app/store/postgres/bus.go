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

// apart is the minimum time between two notifications; everything that happens in between is sent in one.
const apart = 10 * time.Millisecond

// lastWords limits the time for sending the remaining notifications when a process ends.
const lastWords = time.Second

// longest is the longest time between two attempts to connect.
const longest = 5 * time.Second

// mostEnded is the maximum number of ended session holdings that wait to be notified. The other holders notice the end
// at their next renewal.
const mostEnded = 1000

// mostPayload keeps one notification below PostgreSQL's limit of 8000 bytes.
const mostPayload = 7000

// bus notifies the other apps on the database of commits (NOTIFY) and receives their notifications (LISTEN). It uses
// separate connections, so that no commit waits for it. If one of them breaks, notifications are lost, and the bus
// reports the loss: the listener to its dispatcher, the sender to the other apps. Waiting polls then claim again.
type bus struct {
	server   *server
	app      string
	dispatch store.Dispatcher
	stop     context.CancelFunc
	ctx      context.Context // ends with the bus
	running  sync.WaitGroup
	wake     chan struct{}
	decided  chan struct{} // another app changed the settings of a queue
	migrated chan struct{} // another process migrated the database

	mu     sync.Mutex
	queues map[sqldb.QueueKey]bool    // with pending notices; guarded by mu
	decide bool                       // a notice of changed settings of queues is pending; guarded by mu
	runs   map[string]store.RunChange // guarded by mu
	ended  []ended                    // guarded by mu
	silent map[engine.WorkerKey]bool  // guarded by mu
	gone   map[store.Process]bool     // deregistered or superseded; guarded by mu
	said   map[store.Process]bool     // reported that they drain, or no longer drain; guarded by mu

	answers []string    // guarded by mu
	tokens  []string    // guarded by mu
	hears   atomic.Bool // the listener is connected
}

// message is one notification.
type message struct {
	App    string `json:"app"`
	Missed bool   `json:"m,omitempty"` // other messages were lost
	// Migrated: the schema was migrated. The message has no other content, since the sender may not serve the schema.
	Migrated bool              `json:"s,omitempty"`
	Decided  bool              `json:"d,omitempty"` // settings of a queue changed
	Silent   []worker          `json:"w,omitempty"` // whose lease expired
	Gone     []worker          `json:"g,omitempty"` // deregistered or superseded
	Said     []worker          `json:"v,omitempty"` // reported that they drain, or no longer drain
	Queues   []sqldb.QueueKey  `json:"q,omitempty"`
	Runs     []store.RunChange `json:"r,omitempty"`
	Ended    []ended           `json:"e,omitempty"`
	Answers  []string          `json:"a,omitempty"` // questions that were answered
	Tokens   []string          `json:"t,omitempty"` // that were made, changed or dropped
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

// ended is the end of a session's holding, with what its holder wants to know of it.
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
		decided: make(chan struct{}, 1), migrated: make(chan struct{}, 1),
		queues: map[sqldb.QueueKey]bool{}, runs: map[string]store.RunChange{}, silent: map[engine.WorkerKey]bool{},
		gone: map[store.Process]bool{}, said: map[store.Process]bool{},
	}
}

// start starts sending notices, and receiving them on a connection that listen made.
func (b *bus) start(s *sqldb.Store, c *pgx.Conn) {
	b.running.Go(b.tell)
	b.running.Go(func() { b.listening(c, s) })
	b.running.Go(func() { b.refresh(s) })
}

func (b *bus) close() error {
	b.stop()
	b.running.Wait()
	return nil
}

// notify records the notices of a commit; the committer calls it, so it never blocks.
func (b *bus) notify(n sqldb.Notice) {
	b.mu.Lock()
	for _, q := range n.Queues {
		b.queues[q] = true
	}
	b.decide = b.decide || n.FairnessChanged
	for _, r := range n.Runs {
		if old, told := b.runs[r.RunID]; told {
			r.Cancelled, r.Still = append(old.Cancelled, r.Cancelled...), r.Still && old.Still
		}
		r.Closing = nil // it is not sent, and it may be large
		b.runs[r.RunID] = r
	}
	b.answers = append(b.answers, n.Answers...)
	b.tokens = append(b.tokens, n.Tokens...)
	for _, k := range n.Expired {
		b.silent[k] = true
	}
	for _, k := range n.Superseded {
		b.gone[k] = true
	}
	for _, k := range n.Said {
		b.said[k] = true
	}
	for _, m := range n.Ended {
		if len(b.ended) < mostEnded {
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

// notifyStmt is a notification within a transaction: others have it when, and only when, that is committed.
var notifyStmt = &db.Stmt{SQL: "SELECT pg_notify($1, $2)"}

// decidedCall returns the call that notifies the other apps, in the committer's transaction, of changed settings of a
// queue.
func (b *bus) decidedCall() *db.Call {
	return &db.Call{
		Stmt: notifyStmt, Args: []any{channel, encode(message{App: b.app, Decided: true})},
		Row: func([]any) error { return nil },
	}
}

// takeNotices returns the pending notices as notifications of at most mostPayload bytes.
func (b *bus) takeNotices() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	m, size := message{App: b.app}, 0
	cut := func(more int) {
		if size += more; size > mostPayload {
			out = append(out, encode(m))
			m, size = message{App: b.app}, more
		}
	}
	m.Decided = b.decide
	for k := range b.silent { // first: the tasks that they lost are in the queues
		cut(len(k.Namespace) + len(k.ID) + 32)
		m.Silent = append(m.Silent, worker{Namespace: k.Namespace, ID: k.ID})
	}
	for p := range b.gone {
		cut(len(p.Worker.Namespace) + len(p.Worker.ID) + len(p.Incarnation) + 40)
		m.Gone = append(m.Gone, workerOf(p))
	}
	for p := range b.said {
		cut(len(p.Worker.Namespace) + len(p.Worker.ID) + len(p.Incarnation) + 40)
		m.Said = append(m.Said, workerOf(p))
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
	if m.Decided || len(m.Silent)+len(m.Queues) > 0 || m.tells() {
		out = append(out, encode(m))
	}
	clear(b.queues)
	clear(b.runs)
	clear(b.silent)
	clear(b.gone)
	clear(b.said)
	b.ended, b.answers, b.tokens, b.decide = nil, nil, nil, false
	return out
}

// tells reports whether the message concerns subscribers of changes.
func (m message) tells() bool {
	return len(m.Runs)+len(m.Ended)+len(m.Gone)+len(m.Said)+len(m.Answers)+len(m.Tokens) > 0
}

// changed converts the message to the form in which this process notifies its own dispatcher.
func (m message) changed() store.Changed {
	c := store.Changed{Runs: m.Runs, Answers: m.Answers, Tokens: m.Tokens, Remote: true}
	for _, k := range m.Gone {
		c.Superseded = append(c.Superseded, k.process())
	}
	for _, k := range m.Said {
		c.Said = append(c.Said, k.process())
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
	raw, _ := json.Marshal(m) // strings and numbers: it cannot fail
	return string(raw)
}

// tell sends the recorded notices at a minimum interval. It drops notices that it could not send, and sends a message
// that some were lost. When the bus ends, it sends all notices that are recorded or being sent: the last notice of an
// app that leaves is its end.
func (b *bus) tell() {
	var c *pgx.Conn
	defer func() { hangUp(c) }()
	ctx, stop := context.WithCancel(context.WithoutCancel(b.ctx))
	defer stop()
	defer context.AfterFunc(b.ctx, func() { time.AfterFunc(lastWords, stop) })()
	lost := false
	for wait := apart; ; {
		if !lost {
			select {
			case <-b.wake:
			case <-b.ctx.Done():
			}
		}
		over := b.ctx.Err() != nil
		list := b.takeNotices()
		if lost {
			list = []string{encode(message{App: b.app, Missed: true})}
		}
		var err error
		c, err = b.send(ctx, c, list)
		switch {
		case over:
			return
		case err != nil:
			hangUp(c)
			c, lost, wait = nil, true, min(2*wait, longest)
		default:
			lost, wait = false, apart
		}
		b.pause(wait)
	}
}

// send sends notifications on a connection, made when there is none, and returns it.
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

func hangUp(c *pgx.Conn) {
	if c != nil {
		_ = c.Close(context.Background())
	}
}

// listen connects and listens: after it returns, no notice is missed until the connection breaks.
func (b *bus) listen(ctx context.Context) (*pgx.Conn, error) {
	c, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = c.Exec(ctx, "LISTEN "+channel); err != nil {
		hangUp(c)
		return nil, fmt.Errorf("listen: %w", err)
	}
	return c, nil
}

// listening receives notices of other apps, and reconnects if necessary.
func (b *bus) listening(c *pgx.Conn, s *sqldb.Store) {
	for wait := apart; ; {
		if c != nil {
			b.hears.Store(true)
			b.hear(c, s)
			b.hears.Store(false)
			hangUp(c)
			wait = apart
		}
		if !b.pause(wait) {
			return
		}
		var err error
		if c, err = b.listen(b.ctx); err != nil {
			wait = min(2*wait, longest)
			continue
		}
		b.missed(s)
	}
}

// missed says that anything may have been committed elsewhere.
func (b *bus) missed(s *sqldb.Store) {
	look(b.migrated)
	look(b.decided)
	s.InvalidateRoutingKeys()
	if b.dispatch != nil {
		b.dispatch.Missed()
	}
}

func (b *bus) hear(c *pgx.Conn, s *sqldb.Store) {
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
			b.missed(s)
		}
		if m.Migrated {
			look(b.migrated)
		}
		if slices.ContainsFunc(m.Queues, func(q sqldb.QueueKey) bool { return !q.Kind.Asked() }) {
			s.InvalidateRoutingKeys()
		}
		if m.Decided {
			look(b.decided)
		}
		s.MarkStale(m.Runs)
		if b.dispatch == nil {
			continue
		}
		for _, k := range m.Silent {
			b.dispatch.LeaseExpired(k.key())
		}
		for _, k := range m.Gone {
			if k.Incarnation != "" {
				b.dispatch.Gone(k.process())
			}
		}
		for _, q := range m.Queues {
			b.dispatch.Backlog(q.Namespace, q.Queue, q.Kind)
		}
		if m.tells() {
			b.dispatch.Changed(m.changed())
		}
	}
}

// look requests another read.
func look(at chan struct{}) {
	select {
	case at <- struct{}{}:
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
		case <-b.decided:
			at, err = b.decided, s.RefreshQueues(b.ctx)
		case <-b.migrated:
			at, err = b.migrated, s.CheckSchema(b.ctx)
		case <-b.ctx.Done():
			return
		}
		if err != nil {
			look(at)
			if !b.pause(longest) {
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
