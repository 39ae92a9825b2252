// Package sessiontest holds the acceptance cases of worker sessions, each under its name, run against the real parts.
package sessiontest

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/channel"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/app/sweep"
)

// release is that of apps and workers alike, unless a case says otherwise.
const release = "test"

// plane is a control plane without a port, so that it lives inside a bubble: what an app joins, joined the same way.
type plane struct {
	*broker.Broker
	t        testing.TB
	store    store.Store
	dispatch *dispatch.Dispatch
	channel  *channel.Channel
	sweeper  *sweep.Sweeper
	stop     context.CancelCauseFunc
	runs     sync.WaitGroup
	closing  sync.Once
}

// planeOptions change what open opens; the zero value is an app on a new SQLite file that never cleans up.
type planeOptions struct {
	Database string               // sqlite:PATH or postgres://…
	Shift    func() time.Duration // added to the store's clock
	Still    bool                 // nothing moves time forward but the test
	Cleanup  time.Duration        // 0: never
	Release  string
}

// open opens a control plane that ends with the test, or before by close.
func open(t testing.TB, o planeOptions) *plane {
	t.Helper()
	if o.Database == "" {
		o.Database = "sqlite:" + filepath.Join(t.TempDir(), "test.db")
	}
	if o.Release == "" {
		o.Release = release
	}
	path, file := strings.CutPrefix(o.Database, "sqlite:")
	p := &plane{t: t, dispatch: dispatch.New(dispatch.Options{Log: apptest.Log(t)})}
	so := sqldb.Options{App: ulid.Make().String(), Dispatch: p.dispatch, Shift: o.Shift}
	var err error
	if file {
		p.store, err = sqlite.Open(t.Context(), path, so)
	} else {
		p.store, err = postgres.Open(t.Context(), o.Database, so)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Broker = broker.New(p.store, p.dispatch, broker.Options{Release: o.Release, App: so.App, Shared: !file, Log: apptest.Log(t)})
	sweeps := sweep.Options{Shared: !file, Keep: 30 * 24 * time.Hour, Log: apptest.Log(t)}
	if o.Cleanup > 0 {
		sweeps.Cleanup, sweeps.Remove = o.Cleanup, p.CleanUp
	}
	p.sweeper = sweep.New(p.store, p.Due, sweeps)
	p.dispatch.Bind(p.Broker, func(tasks []store.Leased) {
		for _, l := range tasks {
			p.Return(l)
		}
	}, p.sweeper.Pulse)
	p.channel = channel.New(p.Broker, channel.Options{Hub: &p.dispatch.Hub, Log: apptest.Log(t)})
	work, stop := context.WithCancelCause(context.WithoutCancel(t.Context()))
	p.stop = stop
	if !o.Still {
		p.runs.Go(func() { p.sweeper.Run(work) })
		p.runs.Go(func() { p.tellSessions(work) })
	}
	p.runs.Go(func() {
		if err := p.Watch(work); err != nil && work.Err() == nil {
			t.Errorf("watch: %v", err)
		}
	})
	t.Cleanup(p.close)
	return p
}

func (p *plane) tellSessions(ctx context.Context) {
	w := p.dispatch.Watch(dispatch.TopicSessions)
	defer w.Close()
	for {
		select {
		case <-w.C:
			w.Take()
			p.sweeper.SessionsMoved()
		case <-ctx.Done():
			return
		}
	}
}

// close ends the plane in the order in which an app does; again it does nothing.
func (p *plane) close() {
	p.closing.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.t.Context()), 30*time.Second)
		defer cancel()
		p.Drain()
		err := errors.Join(p.channel.Close(ctx), p.dispatch.Close(ctx))
		p.stop(errors.New("plane closed"))
		p.Close()
		p.runs.Wait()
		if err = errors.Join(err, p.store.Close()); err != nil {
			p.t.Errorf("close: %v", err)
		}
	})
}
