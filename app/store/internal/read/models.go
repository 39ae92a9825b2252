package read

import (
	"context"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/sojourn-run/sojourn/app/store/internal/record"
)

// Listings combine filters at run time with gorm, which is used for reads only. All other SQL is written by hand.

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
	BuildID     *string
	Suspect     *int64
	Held        *string
	Failing     *string
	Unserved    *string
	UnservedAt  *int64
	UnservedWhy *string
	Inbox       *string
	InboxFrom   *int64
}

// TableName returns the table of the model.
func (RunModel) TableName() string { return record.Runs.Name }

// SessionModel is a row of sessions.
type SessionModel struct {
	Namespace  string `gorm:"primaryKey"`
	SessionID  string `gorm:"primaryKey"`
	Origin     string `gorm:"column:door"`
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

	PrepareFor   *string
	PrepareUntil *int64
	Units        *string
	PrepareUnits *string
}

// TableName returns the table of the model.
func (SessionModel) TableName() string { return record.Sessions.Name }

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

// TableName returns the table of the model.
func (WorkerModel) TableName() string { return record.Workers.Name }

// gorm is used only for reads, so its statements need no transaction.
func gormConfig() *gorm.Config {
	return &gorm.Config{Logger: logger.Discard, SkipDefaultTransaction: true, DisableAutomaticPing: true}
}

// defaultLimit is the default page size.
const defaultLimit = 100

// Every page has a limit: without one, it could be as large as the table.
func (r *reader) list(ctx context.Context, limit int) *gorm.DB {
	r.count.Add(1)
	if limit <= 0 {
		limit = defaultLimit
	}
	return r.gorm.WithContext(ctx).Limit(limit)
}

// like returns a pattern for a substring, ignoring case.
func like(text string) string {
	return "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(strings.ToLower(text)) + "%"
}

// value returns the value that p points to, or nil if p is nil.
func value[V any](p *V) any {
	if p == nil {
		return nil
	}
	return *p
}

// Models returns the rows that listings read through gorm, by table, for the test that compares them with the schema.
func Models() map[string]any {
	return map[string]any{
		record.Runs.Name: RunModel{}, record.Sessions.Name: SessionModel{}, record.Workers.Name: WorkerModel{},
	}
}
