package presence

import (
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store"
)

// Workers are the workers of an app: the memory of who is heard, and the verbs that store it. A process registers, is
// heard, falls silent or leaves; what it held then continues. What a task or a session is, is no business of this room:
// it ends deliveries and steps sessions by what app/change has for that.
type Workers struct {
	*Registry
	store    store.Store
	dispatch *dispatch.Dispatch
	opt      Options
	log      zerolog.Logger
	started  time.Time

	unstored chan struct{} // a sign of life should be stored soon
	appLeft  atomic.Bool   // another app said that it leaves
	fell     atomic.Int64  // when an app was found gone last, or this one was started; Unix ns
	company  atomic.Int64  // until when what a poll was given may stand at another app, in Unix ns; 0: not known

	// These are used by Watch alone, and are times of the store.
	aliveUntil time.Time // when the other apps believe this one to be dead, unless it announces itself again
	lastEnded  time.Time // the latest time that was passed to Options.AppEnded

	expiry time.Time // when a silent worker may be past its time, for Watch alone; zero: nobody is silent
}

// Open makes the workers of an app over its store. All methods may be called from any goroutine.
func Open(s store.Store, d *dispatch.Dispatch, o Options) *Workers {
	o.Settings = s.Queue
	ws := &Workers{
		Registry: New(o), store: s, dispatch: d, opt: o, log: o.Log, started: time.Now(), unstored: make(chan struct{}, 1),
	}
	ws.fell.Store(ws.started.UnixNano())
	d.OnGone(ws.Gone)
	return ws
}
