package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/quota"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/clock"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/read"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// This is one implementation of the store for both databases. A store has one committer (committer.go): a goroutine
// that collects all waiting transactions, decides them on rows that it loads once, and writes the result in one
// database transaction. So group commit, order and locking are in one place, and callers only submit data and a
// function.

// Options configure a store. The zero value suffices for tools that only read.
type Options struct {
	App      string               // name of this process, unique on the database; default "app"
	Dispatch store.Dispatcher     // nil: no poll waits in this process
	Shift    func() time.Duration // tests only: time that is added to the store's clock
	Wall     func() time.Time     // tests only: the machine's clock, which a store of one app uses
	Memory   int64                // bytes that this process may use, including the store's caches; 0: no limit
	Pool     int                  // maximum number of connections to a shared database; 0: no limit
	// Waiting is called repeatedly, with the reason, while the store waits for an unreachable server; nil: no call.
	// SQLite never waits.
	Waiting func(error)
	// Outage is called once when the database becomes unavailable, and Recovered with the duration of the outage when
	// it is available again; nil: no call.
	Outage    func(error)
	Recovered func(time.Duration)
	// Refused is called when the server starts to refuse the credentials of this process; nil: no call.
	Refused func(error)
	// RefusedFor is how long the server may refuse the credentials before the store is unusable; 0: 5 min.
	RefusedFor time.Duration

	FewRuns int // tests only: maximum number of runs that a list reads completely and sorts; 0: the default
}

// Config is the configuration that a database package passes to its store.
type Config struct {
	Options
	Dialect db.Dialect
	Conn    db.Conn // connection of the committer
	Reads   *sql.DB // for View
	// Prepared executes the statements of Reads; nil if the driver prepares and caches them.
	Prepared *db.Prepared
	Gorm     gorm.Dialector
	// Notify is called after a commit, on the committer's goroutine, with notifications for other processes; nil if no
	// other process uses the database. Before the commit, other processes would read rows that do not exist yet.
	Notify func(Notice)
	// QueuesChanged returns the call that notifies other processes, in the commit's transaction, of changed settings of
	// a queue; nil if there are no other processes. They do not poll for settings, so this notification must not be
	// lost with the process, unlike those of Notify. A call per commit would be too expensive for ordinary steps.
	QueuesChanged func() *db.Call
	// ReceivesNotices reports whether notifications of other processes arrive; nil if there are no other processes.
	ReceivesNotices func() bool
	// Unclean means that the previous process did not close the database.
	Unclean bool
	// Room returns an error if the disk has too little space for the writes of a step; nil if this cannot be measured.
	Room  func() error
	Known int64 // newest schema that this binary knows
	// Unblock ends the transactions of other apps that hold locks and are paused; nil if there are no other apps.
	Unblock func(context.Context) error
	// Opened is called before the first batch with the number of the last committed batch. Committed is called with the
	// number of each batch after its commit and before its callers get their results; nil: batches are not counted.
	Opened    func(app string, batch int64) error
	Committed func(batch int64)
	// Release is called last by Close.
	Release func() error
}

// QueueKey identifies the tasks of one kind in one queue.
type QueueKey struct {
	Namespace, Queue string
	Kind             protocol.TaskKind
}

func (k QueueKey) compare(o QueueKey) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Queue, o.Queue), cmp.Compare(k.Kind, o.Kind))
}

// Notice informs other processes on the database of a commit: queues with new ready tasks, runs with new events. It may
// be lost, so no decision depends on it.
type Notice struct {
	Ended   []store.SessionMove // sessions whose ownership ended
	Expired []engine.WorkerKey  // workers whose leases expired, or that reconnected
	Queues  []QueueKey
	Runs    []store.RunChange
	// Superseded are processes whose registration was superseded or removed.
	Superseded   []store.Process
	DrainChanged []store.Process // processes that started or stopped draining
	// FairnessChanged: tasks of another queue have ranks from now on. Changed settings are notified by their commit.
	FairnessChanged bool
	// Answers are query tasks with a reply; they are sent alone.
	Answers []string
	Tokens  []string // tokens that were created, changed or deleted
}

// Store is a store.Store with one connection that writes and a pool that reads. Reads do not use the committer, so a
// long list delays no commit.
type Store struct {
	cfg           Config
	st            *statements
	reads         *read.Pool
	cache         *cache // used only by the committer's goroutine
	memory        *memory
	clock         clock.Clock
	health        health
	in            chan *pending
	back          chan *pending // transactions without a waiting caller
	quit          chan struct{}
	done          chan struct{}
	settling      bool // a jump of the clock is being handled; only the committer uses it
	jumps         chan store.ClockJump
	close         sync.Once
	ended         error // the error that Close returns; set before done is closed
	unusable      chan error
	outage        outage
	batch         int64 // number of the last batch that was started
	fairQueue     fairQueue
	evictionTimer *time.Timer // fires when unused cache entries must be evicted
	evicting      bool        // some unused entries were not evicted yet

	deferred      []*pending                 // used only by the committer's goroutine, like the fields below
	skippedQueues map[QueueKey]*skippedQueue // queues with ready tasks that other transactions have locked
	lastUnblock   time.Time                  // time of the last call of Unblock
	ending        sync.WaitGroup
	unblocking    atomic.Bool // Unblock is running

	statements, trips, commits, changes, rows, readings, candidates atomic.Int64
	routingKeys                                                     routingKeyCache
	isolated                                                        isolated
	// blamed are queues in which a blamed task waited for an idle process at the last claim; only the committer uses
	// it.
	blamed map[QueueKey]bool
	queues queues
	// pruned has the clocks at which tags were last deleted; only the committer uses it.
	pruned map[tagKey]int64
	ledger *quota.Ledger
}

var _ store.Store = (*Store)(nil)

// batchAge is how long the row of an app that no longer writes is stored.
const batchAge = 30 * 24 * time.Hour

// New returns a store for an open and migrated database and starts its committer.
func New(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.App == "" {
		cfg.App = "app"
	}
	s := &Store{
		cfg: cfg, st: newStatements(cfg.Dialect), cache: newCache(historyBytes(cfg.Memory)), memory: newMemory(),
		in: make(chan *pending, 1024), back: make(chan *pending, 1024),
		quit: make(chan struct{}), done: make(chan struct{}), unusable: make(chan error, 1),
		jumps:  make(chan store.ClockJump, 16),
		ledger: quota.New(), outage: outage{onOutage: cfg.Outage, onRecovery: cfg.Recovered},
	}
	s.routingKeys.known = map[QueueKey]map[string]cachedRoutingKey{}
	s.queues.init()
	s.pruned, s.skippedQueues = map[tagKey]int64{}, map[QueueKey]*skippedQueue{}
	s.clock.Shift, s.clock.Wall = cfg.Shift, cfg.Wall
	var err error
	s.reads, err = read.New(
		cfg.Reads, cfg.Prepared, cfg.Gorm, cfg.Dialect, &s.clock, &s.readings, cfg.FewRuns,
	)
	if err != nil {
		return nil, err
	}
	var last sql.NullInt64
	if err := cfg.Reads.QueryRowContext(ctx, "SELECT max(at) FROM batches").Scan(&last); err != nil {
		return nil, fmt.Errorf("read the time of the last batch: %w", err)
	}
	var now time.Time
	if cfg.Dialect.Shared {
		if now, err = s.reads.Now(ctx); err != nil {
			return nil, err
		}
	}
	s.clock.Open(last.Int64, now)
	if err := cfg.Reads.QueryRowContext(ctx, "SELECT max(batch) FROM batches WHERE app = $1", cfg.App).
		Scan(&last); err != nil {
		return nil, fmt.Errorf("read the last batch of app %s: %w", cfg.App, err)
	}
	s.batch = last.Int64
	s.ledger.Committed(s.batch)
	if cfg.Opened != nil {
		if err := cfg.Opened(cfg.App, s.batch); err != nil {
			return nil, err
		}
	}
	if cfg.Dialect.Shared { // from now on there is a row to lock; see stored
		old := time.Now().Add(-batchAge).UnixMicro()
		if _, err := cfg.Reads.ExecContext(ctx, "DELETE FROM batches WHERE at < $1", old); err != nil {
			return nil, fmt.Errorf("delete the commit batch counters of ended apps: %w", err)
		}
		if _, err := cfg.Reads.ExecContext(ctx, "DELETE FROM questions WHERE until < $1", time.Now().Add(-time.Hour).
			UnixMicro()); err != nil {
			return nil, fmt.Errorf("questions of apps that ended: %w", err)
		}
		if _, err := cfg.Reads.ExecContext(
			ctx, "INSERT INTO batches (app, batch, at) VALUES ($1, 0, 0) ON CONFLICT DO NOTHING", cfg.App,
		); err != nil {
			return nil, fmt.Errorf("insert the commit batch counter of app %s: %w", cfg.App, err)
		}
	}
	if err := s.loadRoutingKeys(ctx); err != nil {
		return nil, err
	}
	if err := s.RefreshQueues(ctx); err != nil {
		return nil, err
	}
	go s.loop()
	return s, nil
}

// pending is a transaction or a claim on its way through a batch. The committer writes its outcome, and the caller
// reads it after done is closed.
type pending struct {
	transaction *store.Transaction
	lease       *store.LeaseRequest
	callerGone  <-chan struct{} // for a claim: closed when its caller no longer waits
	must        bool            // write the batch even if the transaction changes nothing
	done        chan struct{}   // closed when the fields below are final

	rank   int64 // position in the fair order of all classes
	ranked bool  // it has a rank from an earlier batch

	ready, readied int // range of the tasks that it made ready, in batch.ready

	deferredSince time.Time // when it was first deferred; zero: never
	retryAt       time.Time // time of the next try
	retries       int
	separately    bool // retry it alone, because the locked row is not known

	result any
	leased []store.Leased
	runs   []*run // runs of leased
	err    error
}

// background reports whether no caller waits for the transaction, so that others may be committed first.
func (p *pending) background() bool { return p.transaction != nil && p.transaction.Background }

// Commit runs one transaction in the next batch; a background transaction may run in a later one.
func (s *Store) Commit(ctx context.Context, c store.Transaction) (any, error) {
	p := &pending{transaction: &c, done: make(chan struct{})}
	if err := s.submit(ctx, p); err != nil {
		return nil, err
	}
	return p.result, p.err
}

// LeaseTasks leases waiting tasks, unless ctx ends before its batch begins.
func (s *Store) LeaseTasks(ctx context.Context, r store.LeaseRequest) ([]store.Leased, error) {
	p := &pending{lease: &r, callerGone: ctx.Done(), done: make(chan struct{})}
	if err := s.submit(ctx, p); err != nil {
		return nil, err
	}
	return p.leased, p.err
}

// submit passes p to the committer and waits for its outcome. If the caller's context ends, the transaction may still
// be committed, so its outcome is unknown to that caller.
func (s *Store) submit(ctx context.Context, p *pending) error {
	select {
	case <-s.quit:
		return store.ErrClosed
	default:
	}
	if err := s.health.permanentError(); err != nil {
		return err
	}
	in := s.in
	if p.background() {
		in = s.back
	}
	select {
	case in <- p:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.quit:
		return store.ErrClosed
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.done:
	}
	select {
	case <-p.done: // p was part of the last batch
		return nil
	default:
		return store.ErrClosed
	}
}

// Now returns the store's time. After a jump it returns once the leases are adjusted, so that a caller does not mistake
// a valid lease for an expired one.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	now, err := s.reads.Now(ctx)
	if err == nil && s.clock.Pending() {
		nothing := func(store.Rows, time.Time) (w store.Writes, err error) { return w, nil }
		_, err = s.Commit(ctx, store.Transaction{Decide: nothing})
	}
	return now, s.checkOutage(err)
}

// View reads on a separate connection, so that it never delays a commit.
func (s *Store) View(_ context.Context, fn func(store.Reader) error) error {
	select {
	case <-s.quit:
		return store.ErrClosed
	default:
	}
	return s.checkOutage(s.reads.View(fn))
}

// Reads returns the pool with which this store reads, so that tests can inspect its statements.
func (s *Store) Reads() *read.Pool { return s.reads }

// About returns an estimate of Now without a query, for callers that call it often and need no exact time.
func (s *Store) About() time.Time {
	if !s.cfg.Dialect.Shared {
		return s.clock.Now()
	}
	return s.clock.About()
}

// Stats returns counts of what was sent since the store was opened.
func (s *Store) Stats() store.Stats {
	stats := store.Stats{
		Statements: s.statements.Load(), RoundTrips: s.trips.Load(), Commits: s.commits.Load(), Changes: s.changes.Load(),
		Rows: s.rows.Load(), Reads: s.readings.Load(), Candidates: s.candidates.Load(),
	}
	if s.cfg.Prepared != nil {
		stats.Prepared = s.cfg.Prepared.Made()
	}
	return stats
}

// ReceivesNotices reports whether this process receives notifications of other processes' commits; true if there are no
// others.
func (s *Store) ReceivesNotices() bool {
	return s.cfg.ReceivesNotices == nil || s.cfg.ReceivesNotices()
}

// Unusable returns a channel that receives one error when the store must stop: another process migrated the database to
// a schema that this binary does not support, the database is corrupt, or the server refuses the credentials of this
// process.
func (s *Store) Unusable() <-chan error { return s.unusable }

// Fail stops a store whose database is corrupt: it refuses writes, and Unusable receives the first error.
func (s *Store) Fail(err error) {
	if s.health.broken.CompareAndSwap(nil, &err) {
		s.stop(err)
	}
}

// GiveUp reports through Unusable that this process must stop because it can no longer connect to its database.
func (s *Store) GiveUp(err error) { s.stop(err) }

func (s *Store) stop(err error) {
	select {
	case s.unusable <- err:
	default: // an error was already reported
	}
}

// CheckSchema checks whether this binary still supports the database, after a notification that another process
// migrated it. Unusable receives the result. CheckSchema returns an error only if it cannot read the version.
func (s *Store) CheckSchema(ctx context.Context) error {
	err := CheckSchema(ctx, s.cfg.Reads, s.cfg.Known)
	if !errors.Is(err, store.ErrSchema) {
		return err
	}
	s.stop(err)
	return nil
}

// Waiting returns the number of transactions and claims that wait for the next batch.
func (s *Store) Waiting() int { return len(s.in) + len(s.back) }

// Close commits what was submitted, then closes the connections. Later writes return store.ErrClosed.
func (s *Store) Close() error {
	s.close.Do(func() { close(s.quit) })
	<-s.done
	return s.ended
}
