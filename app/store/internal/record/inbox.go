package record

import (
	"fmt"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/shared/history"
)

// The events of all inherited signals of a run are one row of the table events. In this row, the column heads contains
// an object with the inbox and the numbers of the signals; in other rows it contains a list.

// Inherited identifies the signals of such a row, in the order of their events.
type Inherited struct {
	Inbox  string         `json:"inbox"`
	Ranges []engine.Range `json:"ranges"`
}

func (i *Inherited) count() (n int64) {
	for _, r := range i.Ranges {
		n += r[1] - r[0] + 1
	}
	return n
}

// AddInherited adds the row of a run's inherited signals to events, and to inbox the signals that no earlier run has
// put there.
func AddInherited(events, inbox *db.Rowset, run string, at history.Time, s *engine.InheritedSignals) error {
	heads, err := Document(Inherited{s.Inbox, s.Ranges})
	if err != nil {
		return fmt.Errorf("inherited signals of run %s: %w", run, err)
	}
	events.S(run).I(s.First).I(at.Micros()).S((&history.SignalReceived{}).Type()).S("").I(0)
	events.S("").S("").I(s.Last).I(0).S(heads).I(0)
	for _, e := range s.Added {
		inbox.S(s.Inbox).I(e.Number).S(string(e.Body)).I(e.Bytes)
	}
	return nil
}

// InheritedRange is a range of numbers in an inbox, with the event of the first one.
type InheritedRange struct {
	From, Through int64
	Event         int64
}

// Span returns the numbers of the signals whose events are between first and last.
func (p *Packed) Span(first, last int64) (list []InheritedRange) {
	at := p.First
	for _, r := range p.Inherited.Ranges {
		n := r[1] - r[0] + 1
		if from, to := max(first, at), min(last, at+n-1); from <= to {
			list = append(list, InheritedRange{From: r[0] + from - at, Through: r[0] + to - at, Event: from})
		}
		at += n
	}
	return list
}

// Signal returns the row that an inherited signal would have if it were stored as an ordinary event.
func (p *Packed) Signal(event int64, body string) Packed {
	name := (&history.SignalReceived{}).Type()
	return Packed{Run: p.Run, First: event, heads: []head{{Type: name, At: p.at, Bytes: len(body)}}, payload: body}
}
