package broker

import (
	"context"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/presence"
)

// lookEvery is how often it is looked who fell silent. It costs no statement while everybody is heard.
func (b *Broker) lookEvery() time.Duration { return max(b.opt.Alive/20, 100*time.Millisecond) }

// untilLook is lookEvery, or less while there are workers whose app died: what is stored of them is older than what an
// app remembers of those that it hears itself.
func (b *Broker) untilLook() time.Duration {
	if b.workers.AnyLeft() {
		return max(b.lookEvery()/3, 100*time.Millisecond)
	}
	return b.lookEvery()
}

// Watch looks after the workers until ctx ends: when one this app used to hear falls silent, or one that a dead app
// heard, what it held is set free and its sessions are orphaned. It logs how sessions move, and keeps this app and the
// workers it hears known to the other apps.
func (b *Broker) Watch(ctx context.Context) error {
	paced := b.lookEvery()
	tick := time.NewTicker(paced)
	defer tick.Stop()
	var watching sync.WaitGroup
	watching.Go(func() { b.watchSessions(ctx) })
	watching.Go(func() { b.watchSuperseded(ctx) })
	watching.Go(func() { b.watchDrains(ctx) })
	defer watching.Wait()
	// by then all that live have come to this app, or their time is stored
	behind := presence.Orphans{Due: b.started.Add(b.opt.Alive)}
	var announced time.Time
	failed, closely := false, false
	tell := func() {
		fell := !behind.Gone.IsZero() && !time.Now().Before(behind.Gone) // an app is silent: it is looked at once
		every, close := b.opt.StoreAlive, b.workers.AnyClosely(b.opt.HTTPLease)
		if close {
			every /= 2
		}
		left := b.appLeft.Swap(false)
		due := announced.IsZero() || b.opt.Shared &&
			(time.Since(announced) >= every || fell || left || close && !closely)
		var heard []engine.WorkerKey
		if b.opt.Shared {
			heard = b.workers.Unheard(b.opt.StoreAlive, b.opt.HTTPLease, due)
		}
		if !due && len(heard) == 0 {
			return
		}
		self := due || time.Since(announced) >= every/2 // with the workers' it costs nothing
		if self {
			announced, closely = time.Now(), close
		}
		apps, err := b.announce(ctx, self, 2*every, heard)
		if failed = err != nil; failed && self {
			announced = announced.Add(-every / 2) // again before it is too late
		}
		switch {
		case failed && ctx.Err() == nil:
			b.log.Warn().Err(err).Msg("tell the other apps of this one and of its workers")
		case !failed && self:
			behind.Met(b.opt.App, apps)
			b.metApps(apps)
		}
	}
	for tell(); ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-b.unstored:
			if !failed { // the next look tries again, not each heartbeat
				tell()
			}
		case <-tick.C:
			tell()
			if !behind.Due.IsZero() && !time.Now().Before(behind.Due) {
				if err := b.takeUp(ctx); err == nil {
					behind.Due = time.Time{}
				} else if ctx.Err() == nil {
					b.log.Warn().Err(err).Msg("look for workers that an app left behind")
				}
			}
			for k, h := range b.workers.All("") {
				b.hush(k, h)
				if err := b.look(ctx, k, h); err != nil && ctx.Err() == nil {
					b.log.Error().Err(err).Str("worker_id", k.ID).Msg("look after a silent worker")
				}
			}
			if err := b.removeSilent(ctx, &behind); err != nil && ctx.Err() == nil {
				b.log.Warn().Err(err).Msg("remove workers that are silent for too long, trying again later")
			}
			if every := b.untilLook(); every != paced {
				paced = every
				tick.Reset(every)
			}
		}
	}
}

// hush ends the polls of a worker of ours that missed so many heartbeats that whatever it holds is lost by now: it may
// stand still, and would lose what it were given. One that lives asks again.
func (b *Broker) hush(k engine.WorkerKey, h presence.Heard) {
	lease := time.Duration(h.Worker.AttemptLease) * time.Microsecond
	if h.Hushed || h.At.IsZero() || !h.Worker.Explicit || !h.Missed() || time.Since(h.At) < lease {
		return
	}
	now := false
	b.workers.With(k, func(n *presence.Heard) {
		now = n.At.Equal(h.At) // not heard meanwhile
		n.Hushed = n.Hushed || now
	})
	if now {
		b.dispatch.LeaseExpired(k)
	}
}
