package view

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Sessions are counted at each scrape instead of incrementally: each app would have to maintain counts that agree after
// every crash. All statuses are exported, also with a count of 0, because a missing series is not a zero.

// SessionGauge returns the gauge sojourn_sessions, by status, which reads the store with one statement for each scrape.
func (v *View) SessionGauge() prometheus.Collector {
	desc := prometheus.NewDesc("sojourn_sessions", "Stored sessions, by status.", []string{"status"}, nil)
	return &storeGauge{v.store, desc, func(ctx context.Context, r store.Reader, set func(int, ...string)) error {
		counts, err := r.SessionCounts(ctx, "")
		for _, s := range sessionStatuses {
			set(counts[s], string(s))
		}
		return err
	}}
}

// sessionStatuses are the statuses that are counted, also when no session has them.
var sessionStatuses = []protocol.SessionStatus{
	protocol.SessionActive, protocol.SessionClosed, protocol.SessionExpired, protocol.SessionFailed,
	protocol.SessionOrphaned,
}
