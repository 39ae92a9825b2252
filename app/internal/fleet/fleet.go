// Package fleet applies operators' requests to workers (drain, resume, shutdown, settings) and hands sessions over from
// draining workers and to new ones. Each request is stored and sent to the connected workers, and sent again until they
// have reached the requested state.
package fleet

import (
	"context"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/internal/membership"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Fleet manages operators' decisions about the workers of an app. All methods may be called from any goroutine.
type Fleet struct {
	store    store.Store
	dispatch *dispatch.Dispatch
	workers  *membership.Workers
	view     *view.View
	log      zerolog.Logger

	changed chan struct{} // operators may have changed their decisions
	pools   chan struct{} // a change may concern pools of sessions
	notices atomic.Pointer[Notices]
}

// Notices sends operators' intents to connected workers. A worker that is not connected receives the intent with its
// next poll or heartbeat.
type Notices interface {
	// SendIntent notifies one worker, and reports whether the worker is connected.
	SendIntent(namespace, worker string, i protocol.Intent, n protocol.PauseNotice) bool
	// SettingsChanged asks the workers of a namespace to fetch their settings again.
	SettingsChanged(namespace string)
}

// SetNotices sets the implementation that sends notices to workers.
func (f *Fleet) SetNotices(n Notices) { f.notices.Store(&n) }

// New returns the fleet of an app with its workers.
func New(
	s store.Store, d *dispatch.Dispatch, w *membership.Workers, v *view.View, log zerolog.Logger,
) *Fleet {
	f := &Fleet{store: s, dispatch: d, workers: w, view: v, log: log, changed: make(chan struct{}, 1)}
	f.pools = make(chan struct{}, 1)
	d.OnDecided(f.CheckDrains)
	return f
}

// RemoveWorker deregisters a worker for an operator.
func (f *Fleet) RemoveWorker(ctx context.Context, ns, id string) (protocol.DeregisterResponse, error) {
	return f.workers.RemoveWorker(ctx, ns, id)
}
