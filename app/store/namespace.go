package store

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// DefaultNamespace is the namespace that always exists.
const DefaultNamespace = "default"

// DefaultRetentionDays is the retention of closed runs in a namespace without its own retention.
const DefaultRetentionDays = 30

// Namespace is a separate set of IDs, queues, sessions and listings.
type Namespace struct {
	Name          string       `json:"-"`
	Description   string       `json:"description,omitempty"`
	RetentionDays int          `json:"retention_days,omitempty"` // 0: DefaultRetentionDays
	UpdatedAt     history.Time `json:"updated_at,omitzero"`
	// SearchAttributes are the registered search attributes: types by name.
	SearchAttributes map[string]string `json:"search_attributes,omitempty"`
	// the namespace is being deleted, and requests for it are refused
	Leaving   bool         `json:"leaving,omitempty"`
	CreatedAt history.Time `json:"-"`
	// Own are the quotas that the namespace sets itself.
	Own protocol.QuotaValues `json:"quotas,omitzero"`
	// CodecEndpoint is the URL of the service that decodes payloads for viewers; empty: none.
	CodecEndpoint string `json:"codec_endpoint,omitempty"`
	// Usage is the usage by the runs and schedules of the namespace at the last exchange; CountedAt is the time of the
	// last recount.
	Usage         engine.Usage `json:"usage,omitzero"`
	CountedAt     history.Time `json:"counted_at,omitzero"`
	OpenBatchJobs int          `json:"open_batch_jobs,omitempty"` // number of open batch jobs
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
	Known   engine.Usage // usage in the row, plus that of this process's commits that are not added to the row yet
	Stored  engine.Usage // usage that this process has added to the row since its start
	Row     Namespace
}

// Contents is a limited part of the contents of a namespace, to be deleted.
type Contents struct {
	Runs      []string
	Sessions  []engine.SessionKey
	Workers   []engine.WorkerKey
	Schedules []engine.ScheduleKey
}

// Empty reports whether there is nothing to delete.
func (c Contents) Empty() bool {
	return len(c.Runs)+len(c.Sessions)+len(c.Workers)+len(c.Schedules) == 0
}
