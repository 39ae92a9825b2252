package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/app/store"
)

// clockCheckInterval is the interval at which an app with its own database compares the machine's clock with the
// monotonic clock. The clock of a shared database is compared at each read, and the sweeper reads it at least twice a
// minute.
const clockCheckInterval = 5 * time.Second

// watchClock reports jumps of the store's clock and recomputes the times that were planned before them.
func (p *Server) watchClock(ctx context.Context) {
	tick := time.NewTicker(clockCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if !p.opt.Shared {
				p.store.About() // reads the clock of this machine
			}
		case j := <-p.store.ClockJumps():
			p.clockJumped(ctx, j)
		}
	}
}

func (p *Server) clockJumped(ctx context.Context, j store.ClockJump) {
	way, by := j.Direction()
	p.jumps.WithLabelValues(way).Inc()
	p.log.Warn().Err(j.Err).Str("direction", way).Str("by", by.Round(time.Second).String()).Time("now", j.At).
		Int("rows", j.Moved).Msg("clock of the database jumped; leases and schedules follow it, timers and timeouts of runs do not")
	p.view.ClockJumped(j)
	p.sweeper.ClockJumped()
	p.broker.ClockJumped(ctx)
}

// newClockJumps returns the counter of jumps, with an entry for each direction.
func newClockJumps() *prometheus.CounterVec {
	jumps := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sojourn_clock_jumps_total",
		Help: "Jumps of the database's clock of more than a minute that this app found, by direction.",
	}, []string{"direction"})
	for _, way := range []string{"forward", "back"} {
		jumps.WithLabelValues(way)
	}
	return jumps
}
