package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/membership"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The settings of a fleet are one row with a revision. An operator sends the revision that the change is based on, so
// of two concurrent changes one is rejected. A worker reports the revision that it runs with, which shows outdated
// workers.

// FleetWide returns the settings of a namespace's workers as this app knows them, with their revision.
func (f *Fleet) FleetWide(ns string) (protocol.FleetSettings, int64) {
	set := f.store.Queue(engine.QueueKey{Namespace: transaction.NamespaceOrDefault(ns)}).Fleet()
	return set.FleetSettings, set.Revision
}

// SetFleet replaces the settings of a namespace's workers; for an omitted setting each worker uses its own value again.
func (f *Fleet) SetFleet(ctx context.Context, in protocol.FleetSettingsRequest) (protocol.FleetSettingsState, error) {
	if err := protocol.CheckLimits(in); err != nil {
		return protocol.FleetSettingsState{}, err
	}
	key := engine.QueueKey{Namespace: transaction.NamespaceOrDefault(in.Namespace)}
	_, err := transaction.Commit[engine.Queue](ctx, f.store, store.Transaction{
		Needs: store.Keys{Queues: []engine.QueueKey{key}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			change := engine.SetFleet{Settings: in.FleetSettings, By: in.Identity, Saw: in.Revision}
			next, err := engine.DecideQueue(rows.Queue(key), key, change, now)
			if err != nil || next.Fleet().Revision == rows.Queue(key).Fleet().Revision {
				return store.Writes{Answer: next}, err // the settings do not change
			}
			return store.Writes{Queues: []engine.Queue{next}, Answer: next, Audit: []store.Audit{{
				At: history.At(now), Identity: in.Identity, Action: "fleet.settings", Namespace: key.Namespace,
				Target: key.Namespace, Detail: settingsText(next.Settings),
			}}}, nil
		},
	})
	if err != nil {
		return protocol.FleetSettingsState{}, err
	}
	f.CheckDrains()
	return f.view.FleetSettings(ctx, in.Namespace)
}

// settingsText describes the settings for the audit entry.
func settingsText(s *engine.FleetWide) string {
	text := fmt.Sprintf("revision %d:", s.Revision)
	if s.LogLevel != "" {
		text += " log_level " + s.LogLevel
	}
	if s.Concurrency > 0 {
		text += fmt.Sprintf(" worker_concurrency %d", s.Concurrency)
	}
	if s.IsolationMin != "" {
		text += " isolation_min_level " + s.IsolationMin
	}
	if s.Fresh {
		text += " fresh"
	}
	if s.Rebalance != "" {
		text += " rebalance " + s.Rebalance
	}
	if s.FleetSettings == (protocol.FleetSettings{}) {
		text += " each worker's own"
	}
	return text
}

// pushSettings asks workers to fetch their settings in namespaces where the revision has changed since the last call.
func (f *Fleet) pushSettings(pushed map[string]int64, known map[engine.WorkerKey]membership.TrackedWorker) {
	notices := f.notices.Load()
	for k := range known {
		_, is := f.FleetWide(k.Namespace)
		if is == pushed[k.Namespace] {
			continue
		}
		pushed[k.Namespace] = is
		if notices != nil {
			(*notices).SettingsChanged(k.Namespace)
		}
	}
}
