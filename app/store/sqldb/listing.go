package sqldb

import (
	"context"
	"slices"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// Listings are filters put together at run time, which is what gorm is for here: it reads, and never writes.

// RunModel is a row of runs as listings read it. A test compares the models with the migrated tables.
type RunModel struct {
	RunID       string `gorm:"primaryKey"`
	Namespace   string
	WorkflowID  string
	Type        string
	Number      int64
	Status      string
	Queue       string
	StartedAt   int64
	ClosedAt    *int64
	LastSeq     int64
	DueAt       *int64
	Owner       *string
	BusinessKey *string
	State       string
}

// TableName is the table behind the model.
func (RunModel) TableName() string { return runsTable.name }

// SessionModel is a row of sessions.
type SessionModel struct {
	Namespace  string `gorm:"primaryKey"`
	SessionID  string `gorm:"primaryKey"`
	Door       string
	WorkflowID *string
	Status     string
	Owner      *string
	Epoch      int64
	LeaseUntil *int64
	DueAt      *int64
	UpdatedAt  int64 `gorm:"autoUpdateTime:false"`
	Queue      string
	Claimed    int64
	Terminal   int64
	Word       string
	Body       string
	Behind     *string
}

// TableName is the table behind the model.
func (SessionModel) TableName() string { return sessionsTable.name }

// WorkerModel is a row of workers.
type WorkerModel struct {
	Namespace   string `gorm:"primaryKey"`
	WorkerID    string `gorm:"primaryKey"`
	Incarnation string
	Status      string
	AliveUntil  int64
	UpdatedAt   int64 `gorm:"autoUpdateTime:false"`
	Body        string
}

// TableName is the table behind the model.
func (WorkerModel) TableName() string { return workersTable.name }

// It only reads, so none of its statements needs a transaction of its own.
func gormConfig() *gorm.Config {
	return &gorm.Config{Logger: logger.Discard, SkipDefaultTransaction: true, DisableAutomaticPing: true}
}

// defaultLimit is the size of a page when none is asked for.
const defaultLimit = 100

// Without a limit a page would be as large as the table, so there is none without.
func (r *reader) list(ctx context.Context, limit int) *gorm.DB {
	r.count.Add(1)
	if limit <= 0 {
		limit = defaultLimit
	}
	return r.gorm.WithContext(ctx).Limit(limit)
}

// like is a pattern for a substring, whatever its case.
func like(text string) string {
	return "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(strings.ToLower(text)) + "%"
}

// Sessions lists what was moved last first.
func (r *reader) Sessions(ctx context.Context, q store.SessionQuery) ([]engine.Session, error) {
	db := r.list(ctx, q.Limit).Order("updated_at DESC, session_id DESC").Where("(claimed = 1 OR door = 'workflow')")
	for column, v := range map[string]string{
		"namespace": q.Namespace, "owner": q.Owner, "queue": q.Queue, "workflow_id": q.Workflow,
	} {
		if v != "" {
			db = db.Where(column+" = ?", v)
		}
	}
	// By what is shown and not by the column: a session whose holder is gone is shown as expired.
	if len(q.Statuses) > 0 {
		db = db.Where(shownStatus+" IN ?", q.Statuses)
	}
	if q.Text != "" {
		db = db.Where(`lower(session_id) LIKE ? ESCAPE '\'`, like(q.Text))
	}
	// By position and not by number: what moves while somebody turns pages makes no row come twice or get lost.
	if q.AfterID != "" {
		at := q.AfterUpdated.Micros()
		db = db.Where("(updated_at < ? OR (updated_at = ? AND session_id < ?))", at, at, q.AfterID)
	}
	var rows []SessionModel
	if err := db.Find(&rows).Error; err != nil {
		return nil, wrap(err, "sessions")
	}
	list := make([]engine.Session, len(rows))
	for i, m := range rows {
		s, _, _, err := readSession([]any{
			m.Namespace, m.SessionID, m.Door, value(m.WorkflowID), m.Status, value(
				m.Owner,
			), m.Epoch, value(m.LeaseUntil),
			value(m.DueAt), m.UpdatedAt, m.Queue, m.Claimed, m.Terminal, m.Word, m.Body,
		})
		if err != nil {
			return nil, err
		}
		list[i] = s
	}
	return list, r.tally(ctx, list)
}

// shownStatus is engine.Session.Shown in SQL.
const shownStatus = "CASE WHEN status = 'active' AND owner IS NULL AND claimed = 1 THEN 'expired' ELSE status END"

// hasSomething is true of a worker with a leased task or a session. The indexes on owners hold no other rows.
const hasSomething = "(EXISTS (SELECT 1 FROM tasks WHERE tasks.namespace = workers.namespace AND tasks.owner = workers.worker_id)" +
	" OR EXISTS (SELECT 1 FROM runs WHERE runs.namespace = workers.namespace AND runs.owner = workers.worker_id)" +
	" OR EXISTS (SELECT 1 FROM sessions WHERE sessions.namespace = workers.namespace AND sessions.owner = workers.worker_id AND sessions.status = 'active'))"

// Workers lists by id. Queues are in the document, so that filter is applied to the pages as they come.
func (r *reader) Workers(ctx context.Context, q store.WorkerQuery) ([]engine.Worker, error) {
	if q.Limit <= 0 {
		q.Limit = defaultLimit
	}
	var list []engine.Worker
	for after := q.AfterID; ; {
		db := r.list(ctx, q.Limit).Order("worker_id, namespace").Where("worker_id > ?", after)
		if q.Namespace != "" {
			db = db.Where("namespace = ?", q.Namespace)
		}
		if q.Holding {
			db = db.Where(hasSomething)
		}
		var rows []WorkerModel
		if err := db.Find(&rows).Error; err != nil {
			return nil, wrap(err, "workers")
		}
		for _, m := range rows {
			w, err := readWorker([]any{m.Namespace, m.WorkerID, m.Incarnation, m.Status, m.AliveUntil, m.UpdatedAt, m.Body})
			if err != nil {
				return nil, err
			}
			if q.Queue == "" || slices.Contains(w.Queues, q.Queue) {
				list = append(list, w)
			}
			if len(list) == q.Limit {
				return list, nil
			}
			after = w.ID
		}
		if len(rows) < q.Limit {
			return list, nil
		}
	}
}

// value is what p points to, nil when it points to nothing.
func value[V any](p *V) any {
	if p == nil {
		return nil
	}
	return *p
}
