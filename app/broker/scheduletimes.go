package broker

import (
	"context"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// ScheduleTimes lists the next times at which a spec fires, at most count: what a schedule would do, before there is one. Jitter is left out.
func (b *Broker) ScheduleTimes(ctx context.Context, spec protocol.ScheduleSpec, count int) ([]history.Time, error) {
	calendar, err := engine.ParseCalendar(spec)
	if err != nil {
		return nil, err
	}
	now, err := b.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	times := []history.Time{}
	for at := calendar.Next(now); !at.IsZero() && len(times) < count; at = calendar.Next(at) {
		times = append(times, history.At(at))
	}
	return times, nil
}
