package store

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// DefaultNamespace is always there.
const DefaultNamespace = "default"

// DefaultRetentionDays is how long closed runs are kept where a namespace does not say it.
const DefaultRetentionDays = 30

// Namespace keeps ids, queues, sessions and listings apart.
type Namespace struct {
	Name          string       `json:"-"`
	Description   string       `json:"description,omitempty"`
	RetentionDays int          `json:"retention_days,omitempty"` // 0: the default
	UpdatedAt     history.Time `json:"updated_at,omitzero"`
	// SearchAttributes are the registered ones: names and types.
	SearchAttributes map[string]string `json:"search_attributes,omitempty"`
	Leaving          bool              `json:"leaving,omitempty"` // being removed: it can be named no more
	CreatedAt        history.Time      `json:"-"`
	// Own are the quotas that are not those of the settings.
	Own protocol.QuotaValues `json:"quotas,omitzero"`
	// Usage is what its runs and schedules take, as of the last exchange; CountedAt is when they were counted last.
	Usage     engine.Usage `json:"usage,omitzero"`
	CountedAt history.Time `json:"counted_at,omitzero"`
	// Unknown is what a later build stored in the row; it is written again as it is.
	Unknown map[string]json.RawMessage `json:"-"`
}

// Retention is how many days closed runs are kept.
func (n Namespace) Retention() int {
	if n.RetentionDays == 0 {
		return DefaultRetentionDays
	}
	return n.RetentionDays
}

// UsageCount is a count of the runs and schedules of a namespace in one snapshot.
type UsageCount struct {
	Counted engine.Usage // without Starts
	Known   engine.Usage // usage in the row, and of commits of this process that are not added to the row yet
	Stored  engine.Usage // usage that this process had added to the row since its start
	Row     Namespace
}

// Contents is a bounded look at what a namespace holds, for its removal.
type Contents struct {
	Runs      []string
	Sessions  []engine.SessionKey
	Workers   []engine.WorkerKey
	Schedules []engine.ScheduleKey
}

// Empty says that nothing was found.
func (c Contents) Empty() bool {
	return len(c.Runs)+len(c.Sessions)+len(c.Workers)+len(c.Schedules) == 0
}
