package postgres

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// channel is what the apps of one database notify each other on.
const channel = "sojourn"

// apart is the least time between two notifications; what comes in between is told together.
const apart = 10 * time.Millisecond

// mostEnded is the most ends of holdings that wait to be told; holders learn of the others when they renew.
const mostEnded = 1000

// mostPayload keeps one notification below the 8000 bytes that PostgreSQL takes.
const mostPayload = 7000

// bus tells the other apps on the database what was committed, and hears it from them. It has connections of its own, so that no commit waits for it.
// What is lost costs time: pollers ask again and sweepers look by themselves.
type bus struct {
	cfg      *pgx.ConnConfig
	app      string
	dispatch store.Dispatcher
	stop     context.CancelFunc
	ctx      context.Context // ends with the bus
	running  sync.WaitGroup
	wake     chan struct{}

	mu     sync.Mutex
	queues map[sqldb.QueueKey]bool    // to be told; guarded by mu
	runs   map[string]store.RunChange // guarded by mu
	ended  []ended                    // guarded by mu
}

// message is one notification.
type message struct {
	App    string            `json:"app"`
	Queues []sqldb.QueueKey  `json:"q,omitempty"`
	Runs   []store.RunChange `json:"r,omitempty"`
	Ended  []ended           `json:"e,omitempty"`
}

// ended is the end of a session's holding, with what its holder wants to know of it.
type ended struct {
	Namespace string `json:"ns"`
	Session   string `json:"s"`
	What      string `json:"w"`
	Worker    string `json:"o"`
	Epoch     int64  `json:"p"`
	Why       string `json:"y,omitempty"`
}

func newBus(cfg *pgx.ConnConfig, app string, d store.Dispatcher) *bus {
	ctx, stop := context.WithCancel(context.Background())
	quiet := cfg.Copy()
	quiet.RuntimeParams["application_name"] = "sojourn bus"
	return &bus{
		cfg: quiet, app: app, dispatch: d, ctx: ctx, stop: stop, wake: make(chan struct{}, 1),
		queues: map[sqldb.QueueKey]bool{}, runs: map[string]store.RunChange{},
	}
}

// start begins to tell and to listen.
func (b *bus) start(s *sqldb.Store) {
	b.running.Go(b.tell)
	b.running.Go(func() { b.listen(s) })
}

func (b *bus) close() error {
	b.stop()
	b.running.Wait()
	return nil
}

// notify notes what a commit means for others; the committer calls it, so it never waits.
func (b *bus) notify(n sqldb.Notice) {
	b.mu.Lock()
	for _, q := range n.Queues {
		b.queues[q] = true
	}
	for _, r := range n.Runs {
		r.Cancelled = append(b.runs[r.RunID].Cancelled, r.Cancelled...)
		b.runs[r.RunID] = r
	}
	for _, m := range n.Ended {
		if len(b.ended) < mostEnded {
			b.ended = append(b.ended, ended{m.Session.Namespace, m.Session.ID, m.What, m.Worker, m.Epoch, m.Why[:min(len(m.Why), 200)]})
		}
	}
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take returns what is to be told next, in notifications that are not too long.
func (b *bus) take() []string {
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
	for q := range b.queues {
		cut(len(q.Namespace) + len(q.Queue) + 64)
		m.Queues = append(m.Queues, q)
	}
	for _, r := range b.runs {
		if len(r.Cancelled) > 8 { // the others are told when they renew
			r.Cancelled = r.Cancelled[:8]
		}
		cut(len(r.Namespace) + len(r.WorkflowID) + 160 + 160*len(r.Cancelled))
		m.Runs = append(m.Runs, r)
	}
	for _, e := range b.ended {
		cut(2*(len(e.Namespace)+len(e.Session)+len(e.Worker)+len(e.Why)) + 120)
		m.Ended = append(m.Ended, e)
	}
	if len(m.Queues)+len(m.Runs)+len(m.Ended) > 0 {
		out = append(out, encode(m))
	}
	clear(b.queues)
	clear(b.runs)
	b.ended = nil
	return out
}

// changed is the message as this process's own hints are told.
func (m message) changed() store.Changed {
	c := store.Changed{Runs: m.Runs}
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

// tell sends what was noted, at most once in a while.
func (b *bus) tell() {
	var c *pgx.Conn
	defer func() {
		if c != nil {
			_ = c.Close(context.Background())
		}
	}()
	for {
		select {
		case <-b.wake:
		case <-b.ctx.Done():
			return
		}
		for _, payload := range b.take() {
			if c == nil || c.IsClosed() {
				var err error
				if c, err = pgx.ConnectConfig(b.ctx, b.cfg); err != nil {
					c = nil
					break // lost: a hint only
				}
			}
			_, _ = c.Exec(b.ctx, "SELECT pg_notify($1, $2)", channel, payload)
		}
		if !b.pause(apart) {
			return
		}
	}
}

// listen hears the others, and connects again when it has to.
func (b *bus) listen(s *sqldb.Store) {
	for wait := apart; b.ctx.Err() == nil; wait = min(2*wait, 5*time.Second) {
		if c, err := pgx.ConnectConfig(b.ctx, b.cfg); err == nil {
			if _, err = c.Exec(b.ctx, "LISTEN "+channel); err == nil {
				wait = apart
				s.StaleLanes()
				b.hear(c, s)
			}
			_ = c.Close(context.Background())
		}
		if !b.pause(wait) {
			return
		}
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
		if len(m.Queues) > 0 {
			s.StaleLanes()
		}
		if b.dispatch == nil {
			continue
		}
		for _, q := range m.Queues {
			b.dispatch.Backlog(q.Namespace, q.Queue, protocol.TaskKind(q.Kind))
		}
		if len(m.Runs)+len(m.Ended) > 0 {
			b.dispatch.Changed(m.changed())
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
