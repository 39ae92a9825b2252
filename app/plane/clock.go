package plane

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/app/store"
)

// clockLook is how often the clock of this machine is compared with its monotonic clock, where the store goes by it.
// The clock of a shared database is compared whenever anything reads it, which the sweeper does at least twice a
// minute.
const clockLook = 5 * time.Second

// watchClock reports jumps of the store's clock, and has what was planned by the old time planned again.
func (p *Plane) watchClock(ctx context.Context) {
	tick := time.NewTicker(clockLook)
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

func (p *Plane) clockJumped(ctx context.Context, j store.ClockJump) {
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
