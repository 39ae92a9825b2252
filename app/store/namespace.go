package store

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// DefaultNamespace is always there.
const DefaultNamespace = "default"

// DefaultRetentionDays is the retention of closed runs if a namespace sets none.
const DefaultRetentionDays = 30

// Namespace is a separate set of IDs, queues, sessions and listings.
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
	// Usage is the usage by its runs and schedules, as of the last exchange; CountedAt is the time of the last count.
	Usage     engine.Usage `json:"usage,omitzero"`
	CountedAt history.Time `json:"counted_at,omitzero"`
	// Unknown holds fields that a later build stored in the row; they are written back unchanged.
	Unknown map[string]json.RawMessage `json:"-"`
}

// Retention returns the number of days for which closed runs are stored.
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

// Contents is a limited part of the content of a namespace, for its removal.
type Contents struct {
	Runs      []string
	Sessions  []engine.SessionKey
	Workers   []engine.WorkerKey
	Schedules []engine.ScheduleKey
}

// Empty reports whether the namespace has no content.
func (c Contents) Empty() bool {
	return len(c.Runs)+len(c.Sessions)+len(c.Workers)+len(c.Schedules) == 0
}
