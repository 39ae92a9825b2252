package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// Reads go beside the committer, over connections of their own, and lock nothing: however long a listing takes, no
// commit waits for it. What they see is committed, and may be older than an answer that was just given elsewhere.

// Pool reads a database over connections of its own, and counts its reads.
type Pool struct {
	db      *sql.DB
	gorm    *gorm.DB
	dialect Dialect
	clock   *clock
	count   *atomic.Int64
	few     int // runs that a listing reads whole and sorts
	st      readStatements
}

// NewPool makes a pool of an open database; few says how many runs a listing reads whole and sorts, 0: as many as pays.
func NewPool(
	db *sql.DB, through gorm.Dialector, dialect Dialect, clock *clock, count *atomic.Int64, few int,
) (*Pool, error) {
	if few <= 0 {
		few = fewRuns
	}
	p := &Pool{db: db, dialect: dialect, clock: clock, count: count, few: few, st: newReadStatements(dialect)}
	var err error
	if p.gorm, err = gorm.Open(through, gormConfig()); err != nil {
		return nil, fmt.Errorf("listings: %w", err)
	}
	return p, nil
}

// View has fn read. An error of a database that is not there is marked with store.ErrUnavailable.
func (p *Pool) View(fn func(store.Reader) error) error { return p.dialect.Away(fn(p.reader())) }

func (p *Pool) reader() *reader { return &reader{p, p.db} }

// Now is the store's clock, of which a shared database is asked.
func (p *Pool) Now(ctx context.Context) (time.Time, error) {
	if !p.dialect.Shared {
		return p.clock.now(), nil
	}
	p.count.Add(1)
	var at int64
	err := p.db.QueryRowContext(ctx, "SELECT "+clockSQL).Scan(&at)
	if err != nil {
		return time.Time{}, fmt.Errorf("store's clock: %w", p.dialect.Away(err))
	}
	return p.clock.at(at), nil
}

// readStatements are those that are put together, once.
type readStatements struct {
	opens, heads string // open rows of runs; runs that are open
	arguments    string // rows of events
	tasksIn      string // what sessions leave to their tasks
	listIn       string // what is open in one session, without the number of rows
	behind       string // what ended in a session, by the rows that lead to it
}

func newReadStatements(d Dialect) readStatements {
	return readStatements{
		opens: openRows(d),
		heads: d.probe(
			runsTable.key(), "t."+strings.Join(runsTable.names(), ", t."), "runs", "t.status = 'running'", "",
		),
		arguments: rowsOf(d),
		tasksIn:   tallies(d, true),
		listIn: "SELECT run_id, seq, body FROM (" +
			openIn(d, "t.run_id, t.seq, t.body, t.owner, t.priority, t.ready_at") +
			") AS t ORDER BY CASE WHEN owner IS NULL THEN 1 ELSE 0 END, priority, ready_at, run_id, seq LIMIT ",
		behind: behind(d),
	}
}

// querier is a pool or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// It has the pool, or one transaction of it where several rows have to be of one moment.
type reader struct {
	*Pool
	q querier
}

var _ store.Reader = (*reader)(nil)

// query runs one statement and calls row for each row; its error ends it early.
func (r *reader) query(ctx context.Context, query string, args []any, row func(v []any) error) error {
	r.count.Add(1)
	rows, err := r.q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	v := make([]any, len(columns))
	into := make([]any, len(columns))
	for i := range v {
		into[i] = &v[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if err := row(v); err != nil {
			return err
		}
	}
	return rows.Err()
}

// one runs a statement that returns at most one row, and ErrNotFound when it returns none.
func (r *reader) one(ctx context.Context, query string, args []any, row func(v []any) error) error {
	found := false
	err := r.query(ctx, query, args, func(v []any) error {
		found = true
		return row(v)
	})
	if err == nil && !found {
		return store.ErrNotFound
	}
	return err
}

// selects is "SELECT all columns FROM table".
func selects(t *table) string { return "SELECT " + strings.Join(t.names(), ", ") + " FROM " + t.name }

func (r *reader) Workflow(ctx context.Context, k engine.WorkflowKey) (f engine.Workflow, err error) {
	err = r.one(ctx, selects(workflowsTable)+" WHERE namespace = $1 AND workflow_id = $2", []any{
		k.Namespace, k.ID,
	}, func(v []any) error {
		f = readWorkflow(v)
		return nil
	})
	return f, wrap(err, "workflow %s", k.ID)
}

// Run reads the head and the open rows as of one moment.
func (r *reader) Run(ctx context.Context, id string) (*engine.Run, error) {
	const opens = "SELECT run_id, kind, seq, body FROM tasks WHERE run_id = $1 AND seq > 0" +
		" UNION ALL SELECT run_id, kind, seq, body FROM items WHERE run_id = $1"
	return r.runWith(ctx, id, opens, id)
}

// Step is the run with one open activity.
func (r *reader) Step(ctx context.Context, id string, seq int64) (*engine.Run, error) {
	if seq == 0 {
		h, err := r.head(ctx, id)
		if err != nil {
			return nil, err
		}
		return &engine.Run{Head: h}, nil
	}
	return r.runWith(ctx, id, "SELECT run_id, kind, seq, body FROM tasks WHERE run_id = $1 AND seq = $2", id, seq)
}

// runWith reads the head and some of the open rows as of one moment.
func (r *reader) runWith(ctx context.Context, id, opens string, args ...any) (*engine.Run, error) {
	var run *engine.Run
	err := r.atOnce(ctx, func(in *reader) error {
		h, err := in.head(ctx, id)
		if err != nil {
			return err
		}
		run = &engine.Run{Head: h}
		err = in.query(ctx, opens, args, func(v []any) error { return readOpen(run, v) })
		return wrap(err, "open rows of run %s", id)
	})
	return run, err
}

// Heads and open rows are of one moment: a row that came later would belong to a step of which its head does not
// know.
func (r *reader) OpenRuns(ctx context.Context, ids []string) (map[string]*engine.Run, error) {
	runs := make(map[string]*engine.Run, len(ids))
	if len(ids) == 0 {
		return runs, nil
	}
	keys := newRowset(runsTable.key())
	for _, id := range ids {
		keys.s(id)
	}
	args := r.dialect.keys(keys)
	err := r.atOnce(ctx, func(in *reader) error {
		err := in.query(ctx, r.st.heads, args, func(v []any) error {
			h, err := readHead(v)
			runs[h.ID] = &engine.Run{Head: h}
			return err
		})
		if err != nil {
			return wrap(err, "open runs")
		}
		return wrap(in.query(ctx, r.st.opens, args, func(v []any) error {
			if run := runs[str(v[0])]; run != nil {
				return readOpen(run, v)
			}
			return nil
		}), "open rows of runs")
	})
	return runs, err
}

// atOnce reads as of one moment.
func (r *reader) atOnce(ctx context.Context, read func(*reader) error) error {
	tx, err := r.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: r.snapshot()})
	if err != nil {
		return wrap(err, "begin to read")
	}
	defer func() { _ = tx.Rollback() }()
	return read(&reader{r.Pool, tx})
}

// snapshot is the isolation under which two reads see the same.
func (p *Pool) snapshot() sql.IsolationLevel {
	if p.dialect.Shared {
		return sql.LevelRepeatableRead
	}
	return sql.LevelDefault // a read transaction of SQLite is one already
}

func (r *reader) head(ctx context.Context, id string) (h engine.Head, err error) {
	err = r.one(ctx, selects(runsTable)+" WHERE run_id = $1", []any{id}, func(v []any) (err error) {
		h, err = readHead(v)
		return err
	})
	return h, wrap(err, "run %s", id)
}

// errEnough ends a query whose reader has what it wants.
var errEnough = errors.New("enough")

// A page may begin in the midst of a row of several events, so it is read from the row that holds its first one.
func (r *reader) Events(
	ctx context.Context, run string, after, through int64, limit, maxBytes int,
) ([]history.Event, error) {
	if last := after + int64(limit); through == 0 || through > last { // events are numbered without gaps
		through = last
	}
	var list []history.Event
	bytes := 0
	query := "SELECT " + eventColumns + " FROM events AS t WHERE t.run_id = $1 AND t.seq >= coalesce(" +
		rowOf("$1", "$2") + ", 0) AND t.seq <= $3 ORDER BY t.seq"
	err := r.query(ctx, query, []any{run, after + 1, through}, func(v []any) error {
		p, err := readRow(v)
		if err != nil {
			return err
		}
		return p.each(after, through, func(e history.Event, size int, _ bool) error {
			// One event at least, however large, or a page that is too small for it would never get past it.
			if bytes > 0 && bytes >= maxBytes && maxBytes > 0 {
				return errEnough
			}
			bytes += size
			list = append(list, e)
			return nil
		})
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return list, wrap(err, "history of run %s", run)
}

// One statement for all of them, since many tasks are handed out at once; and of a row that holds several it is
// read once.
func (r *reader) Arguments(ctx context.Context, at []store.EventKey) (map[store.EventKey]string, error) {
	found := make(map[store.EventKey]string, len(at))
	if len(at) == 0 {
		return found, nil
	}
	keys, wanted := newRowset(eventsTable.key()), make(map[store.EventKey]bool, len(at))
	for _, k := range at {
		keys.s(k.Run).i(k.Seq)
		wanted[k] = true
	}
	args := r.dialect.keys(keys)
	err := r.query(ctx, r.st.arguments, args, func(v []any) error {
		p, err := readRow(v)
		if err != nil {
			return err
		}
		for seq := p.first; seq <= p.last(); seq++ {
			k := store.EventKey{Run: p.run, Seq: seq}
			if !wanted[k] {
				continue
			}
			err := p.each(seq-1, seq, func(e history.Event, _ int, _ bool) error {
				switch d := e.Data.(type) {
				case *history.ActivityScheduled:
					found[k] = d.Arguments
				case *history.WorkflowStarted:
					found[k] = d.Arguments
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return found, wrap(err, "arguments")
}

// backwards reads rows of a run's history from the end, those that begin before an event.
const backwards = "SELECT " + eventColumns + " FROM events AS t WHERE t.run_id = $1 AND t.seq < $2 ORDER BY t.seq DESC LIMIT $3"

// From the end: it is asked for a report that comes again, and that was first heard a moment ago.
func (r *reader) Completion(ctx context.Context, run string, seq int64) (found history.Event, err error) {
	before := int64(1) << 62
	for {
		const page = 32
		rows := 0
		err := r.query(ctx, backwards, []any{run, before, int64(page)}, func(v []any) error {
			p, err := readRow(v)
			if err != nil {
				return err
			}
			rows++
			before = p.first
			events, err := p.all()
			if err != nil {
				return err
			}
			for _, e := range slices.Backward(events) {
				if terminalOf(e.Data) == seq {
					found = e
					return errEnough
				}
			}
			return nil
		})
		switch {
		case errors.Is(err, errEnough):
			return found, nil
		case err != nil:
			return found, wrap(err, "history of run %s", run)
		case rows < page:
			return found, fmt.Errorf("outcome of %s: %w", engine.StepID(run, seq), store.ErrNotFound)
		}
	}
}

// terminalOf is the activity whose end an event is, else 0.
func terminalOf(d history.Data) int64 {
	switch d := d.(type) {
	case *history.ActivityCompleted:
		return d.Sequence
	case *history.ActivityFailed:
		return d.Sequence
	case *history.ActivityTimedOut:
		return d.Sequence
	case *history.ActivityCancelled:
		return d.Sequence
	}
	return 0
}

// The last row may hold several, of which the last one is meant.
func (r *reader) LastEvent(ctx context.Context, run string) (last history.Event, err error) {
	err = r.one(ctx, backwards, []any{run, int64(1) << 62, int64(1)}, func(v []any) error {
		p, err := readRow(v)
		if err != nil {
			return err
		}
		return p.each(p.last()-1, p.last(), func(e history.Event, _ int, _ bool) error {
			last = e
			return nil
		})
	})
	return last, wrap(err, "last event of run %s", run)
}

// By number and not by time: a chain that was imported has runs that were written in another order.
func (r *reader) RunsOf(ctx context.Context, k engine.WorkflowKey) ([]engine.Head, error) {
	var list []engine.Head
	query := selects(runsTable) + " WHERE namespace = $1 AND workflow_id = $2 ORDER BY number"
	err := r.query(ctx, query, []any{k.Namespace, k.ID}, func(v []any) error {
		h, err := readHead(v)
		list = append(list, h)
		return err
	})
	return list, wrap(err, "runs of workflow %s", k.ID)
}

// What its tasks are at stands in their rows and not in its own, so it is counted behind the row.
func (r *reader) Session(ctx context.Context, k engine.SessionKey) (s engine.Session, err error) {
	err = r.one(ctx, selects(sessionsTable)+" WHERE namespace = $1 AND session_id = $2", []any{
		k.Namespace, k.ID,
	}, func(v []any) (err error) {
		s, _, _, err = readSession(v)
		return err
	})
	if err != nil {
		return s, wrap(err, "session %s", k.ID)
	}
	one := []engine.Session{s}
	err = r.tally(ctx, one)
	return one[0], wrap(err, "tasks of session %s", k.ID)
}

func (r *reader) Worker(ctx context.Context, k engine.WorkerKey) (w engine.Worker, err error) {
	err = r.one(ctx, selects(workersTable)+" WHERE namespace = $1 AND worker_id = $2", []any{
		k.Namespace, k.ID,
	}, func(v []any) (err error) {
		w, err = readWorker(v)
		return err
	})
	return w, wrap(err, "worker %s", k.ID)
}

func (r *reader) Token(ctx context.Context, id string) (t store.Token, err error) {
	err = r.one(ctx, selects(tokensTable)+" WHERE token_id = $1", []any{id}, func(v []any) (err error) {
		t, err = readToken(v)
		return err
	})
	return t, wrap(err, "token %s", id)
}

func (r *reader) Tokens(ctx context.Context) ([]store.Token, error) {
	var list []store.Token
	err := r.query(ctx, selects(tokensTable)+" ORDER BY created_at, token_id", nil, func(v []any) error {
		t, err := readToken(v)
		list = append(list, t)
		return err
	})
	return list, wrap(err, "tokens")
}

// Audits returns the newest actions first.
func (r *reader) Audits(ctx context.Context, namespace string, limit int) ([]store.Audit, error) {
	var list []store.Audit
	query := selects(auditTable) + " WHERE namespace = $1 OR $1 = '' ORDER BY id DESC LIMIT $2"
	err := r.query(ctx, query, []any{namespace, int64(limit)}, func(v []any) error {
		list = append(list, store.Audit{
			At: history.Micros(integer(v[0])), Identity: str(v[1]), Action: str(v[2]), Namespace: str(v[3]), Target: str(v[4]),
			Detail: str(v[5]),
		})
		return nil
	})
	return list, wrap(err, "audit")
}

// A statement and not a ping of the driver: it goes the way that every read goes.
func (r *reader) Ping(ctx context.Context) error {
	return r.one(ctx, "SELECT 1", nil, func([]any) error { return nil })
}

// wrap says what was read when err happened; nil stays nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(slices.Clip(args), err)...)
}

func micros(t time.Time) int64 { return history.At(t).Micros() }
