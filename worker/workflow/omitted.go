package workflow

import (
	"fmt"
	"slices"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// A run may inherit thousands of signals, of which its code receives only some before it continues as new. The first
// task then omits most of them, and the machine fetches them in order when the code looks for a signal. The code
// behaves as if the task contained all signals: before it reads a channel, the machine fetches all signals that could
// be the next one of that name.

// The number of signals per fetch doubles with each fetch, so that code which looks for a rare name needs few fetches.
const (
	firstFetch = 64
	mostFetch  = 1000
)

// needsOmitted reports whether the next signal of this name may be an omitted signal.
func (s *SignalChannel) needsOmitted() bool {
	o := s.m.omitted
	return o.First <= o.Last && (len(s.values) == 0 || s.values[0].event > o.Last)
}

// awaitSignals blocks the branch until the machine has fetched some omitted signals.
func (m *machine) awaitSignals() {
	co := m.current
	if m.fetch == nil || m.forQueries {
		m.atLocalStep = true
		co.halt()
	}
	m.fetching = true
	co.park()
}

// fetchSignals fetches omitted signals while the branch that needs them is parked.
func (m *machine) fetchSignals() {
	m.fetching = false
	m.watch.Stop()
	defer func() { m.watch.Reset(m.patience) }()
	o := &m.omitted
	m.fetched = min(max(firstFetch, 2*m.fetched), mostFetch)
	most := int(min(int64(m.fetched), o.Last-o.First+1))
	events, err := m.fetch(o.First-1, most)
	if err != nil {
		m.fault = err
		return
	}
	for i := range events {
		e := &events[i]
		d, ok := e.Data.(*history.SignalReceived)
		if !ok || e.Seq != o.First || e.Seq > o.Last {
			m.fault = fmt.Errorf("%w: run %s: want signal %d, got event %d, %s", replay.ErrGap, m.info.RunID, o.First, e.Seq, e.Type())
			return
		}
		o.First++
		// Signals that arrived later may already be in the queue.
		s := m.signal(d.SignalName)
		at := slices.IndexFunc(s.values, func(r received) bool { return r.event > e.Seq })
		if at < 0 {
			at = len(s.values)
		}
		s.values = slices.Insert(s.values, at, received{payload.Payload{Blob: d.Value}, d.Headers, e.Seq})
	}
	if len(events) == 0 {
		m.fault = fmt.Errorf("%w: run %s: signal %d is missing", replay.ErrGap, m.info.RunID, o.First)
	}
}
