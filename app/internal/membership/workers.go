package membership

import (
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store"
)

// Workers is the registry of the workers of one app, with the requests that store their registrations. It records
// registrations, heartbeats, expiry and deregistration, and releases the leases and sessions of workers that left or
// died. It changes tasks and sessions only through package transaction.
type Workers struct {
	*Registry
	store    store.Store
	dispatch *dispatch.Dispatch
	opt      Options
	log      zerolog.Logger
	started  time.Time

	unstored       chan struct{} // wakes Watch to store overdue heartbeats
	appLeft        atomic.Bool   // another app announced its shutdown
	appEndedAt     atomic.Int64  // when this app last detected a dead app, or started; Unix ns
	otherAppsUntil atomic.Int64  // until when another app may hold the response of a poll; Unix ns; 0: unknown

	// Only Watch uses these fields; they are times of the store's clock.
	aliveUntil time.Time // when the other apps treat this one as dead unless it announces itself again
	lastEnded  time.Time // the latest time that was passed to Options.AppEnded

	expiry time.Time // when the next silent worker may expire, for Watch only; zero: no worker is silent
}

// Open returns the workers of an app over its store. All methods are safe for concurrent use.
func Open(s store.Store, d *dispatch.Dispatch, o Options) *Workers {
	o.Settings = s.Queue
	ws := &Workers{
		Registry: New(o), store: s, dispatch: d, opt: o, log: o.Log, started: time.Now(), unstored: make(chan struct{}, 1),
	}
	ws.appEndedAt.Store(ws.started.UnixNano())
	d.OnProcessEnded(ws.RemoveProcess)
	return ws
}
