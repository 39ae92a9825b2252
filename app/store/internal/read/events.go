package read

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/history"
)

// Rows of histories contain several events (see record.Packing), and are read by event: from the row that contains the
// first one, or from the end.

// A page may begin within a row of several events, so reading starts at the row that contains its first event.
func (r *reader) Events(
	ctx context.Context, run string, after, through int64, limit, maxBytes int,
) ([]history.Event, error) {
	through = lastOf(after, through, limit)
	var list []history.Event
	bytes := 0
	add := func(e history.Event, size int, _ bool) error {
		// A page has at least one event, regardless of its size: otherwise a page that is too small for an event would make
		// no progress.
		if bytes += size + engine.EventBytes; len(list) > 0 && bytes > maxBytes && maxBytes > 0 {
			return errEnough
		}
		list = append(list, e)
		return nil
	}
	err := r.eventRows(ctx, run, after, through, record.EventColumns, func(v []any) (record.Packed, error) {
		p, err := record.ReadEvents(v)
		if err != nil {
			return p, err
		}
		return p, p.Each(after, through, add)
	}, func(signal *record.Packed) error { return signal.Each(after, through, add) })
	return list, wrapRead(err, "history of run %s", run)
}

// eventRows calls row for the rows of the events after the given one, up to through. For each signal in a row of
// inherited signals it calls signal. It stops at an error of these functions; errEnough ends it without an error.
func (r *reader) eventRows(
	ctx context.Context, run string, after, through int64, columns string, row func(v []any) (record.Packed, error),
	signal func(*record.Packed) error,
) error {
	for {
		var inherited *record.Packed
		err := r.query(ctx, pageQuery(columns), []any{run, after + 1, through}, func(v []any) error {
			p, err := row(v)
			if err == nil && p.Inherited != nil && p.Last() > after {
				inherited, err = &p, errEnough
			}
			return err
		})
		if inherited != nil {
			if err = r.inherited(ctx, inherited, after, through, signal); err == nil && inherited.Last() < through {
				after = inherited.Last()
				continue
			}
		}
		if errors.Is(err, errEnough) {
			return nil
		}
		return err
	}
}

// inboxSignals is the query that reads signals of an inbox.
const inboxSignals = "SELECT number, body, bytes FROM signal_inbox WHERE inbox = $1 AND number BETWEEN $2 AND $3 ORDER BY number"

// inherited calls fn for the signals of a row of inherited signals, each like a separate row.
func (r *reader) inherited(
	ctx context.Context, p *record.Packed, after, through int64, fn func(*record.Packed) error,
) error {
	for _, span := range p.Span(after+1, through) {
		next := span.From
		err := r.query(ctx, inboxSignals, []any{p.Inherited.Inbox, span.From, span.Through}, func(v []any) error {
			if db.Int(v[0]) != next {
				return missingSignal(p.Inherited.Inbox, next)
			}
			signal := p.Signal(span.Event+next-span.From, db.Str(v[1]))
			next++
			return fn(&signal)
		})
		if err == nil && next <= span.Through {
			err = missingSignal(p.Inherited.Inbox, next)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pageQuery returns the query that reads the rows of the events from $2 to $3 of the run $1.
func pageQuery(columns string) string {
	return "SELECT " + columns + " FROM events AS t WHERE t.run_id = $1 AND t.seq >= coalesce(" +
		record.RowOf("$1", "$2") + ", 0) AND t.seq <= $3 ORDER BY t.seq"
}

func missingSignal(inbox string, number int64) error {
	return fmt.Errorf("signal %d of inbox %s: %w", number, inbox, store.ErrNotFound)
}

// InboxSignals reads all signals that a run inherits by an inbox.
func (r *reader) InboxSignals(ctx context.Context, b *engine.Inbox) (engine.InboxSignals, error) {
	s := engine.InboxSignals{Sizes: map[int64]engine.InboxSize{}}
	for _, numbers := range b.Ranges {
		next := numbers[0]
		err := r.query(ctx, inboxSignals, []any{b.ID, numbers[0], numbers[1]}, func(v []any) error {
			number, through := db.Int(v[0]), db.Int(v[2])
			s.Sizes[number] = engine.InboxSize{Before: through - int64(len(db.Str(v[1]))), Through: through}
			data, err := history.DecodeData((&history.SignalReceived{}).Type(), []byte(db.Str(v[1])))
			if err != nil {
				return err
			}
			if d, ok := data.(*history.SignalReceived); ok && number == next {
				s.Signals = append(s.Signals, engine.SignalOf(d))
				next++
			}
			return nil
		})
		if err == nil && next <= numbers[1] {
			err = missingSignal(b.ID, next)
		}
		if err != nil {
			return s, wrapRead(err, "inherited signals")
		}
	}
	return s, nil
}

// InboxSizes reads the sizes of signals without the signals.
func (r *reader) InboxSizes(
	ctx context.Context, inbox string, numbers []int64,
) (map[int64]engine.InboxSize, error) {
	sizes, keys := map[int64]engine.InboxSize{}, db.NewRowset(record.SignalInbox.Key())
	for _, n := range numbers {
		keys.S(inbox).I(n)
	}
	if keys.Empty() {
		return sizes, nil
	}
	err := r.query(ctx, r.st.inboxSizes, r.dialect.Keys(keys), func(v []any) error {
		through := db.Int(v[1])
		sizes[db.Int(v[0])] = engine.InboxSize{Before: through - db.Int(v[2]), Through: through}
		return nil
	})
	return sizes, wrapRead(err, "inbox %s", inbox)
}

// lastOf returns the last event of a page. Events are numbered without gaps.
func lastOf(after, through int64, limit int) int64 {
	if last := after + int64(limit); through == 0 || through > last {
		return last
	}
	return through
}

// Outlines reads rows with large values without the values. If the outlines of a row cannot be made from its beginning
// and end, it reads that row completely.
func (r *reader) Outlines(
	ctx context.Context, run string, after, through int64, limit, maxBytes, maxValues int,
) ([]history.Outline, error) {
	through = lastOf(after, through, limit)
	var list []history.Outline
	bytes := 0
	add := func(o history.Outline) error {
		if bytes += o.Bytes(); len(list) > 0 && bytes > maxBytes && maxBytes > 0 {
			return errEnough
		}
		list = append(list, o)
		return nil
	}
	for {
		var unread int64 // first event of a row that must be read completely
		err := r.eventRows(ctx, run, after, through, record.OutlineColumns, func(v []any) (record.Packed, error) {
			o, err := record.ReadOutlines(v)
			if err != nil {
				return o.Packed, err
			}
			if !o.Readable() {
				unread = o.First
				return o.Packed, errEnough
			}
			return o.Packed, o.Each(after, through, maxValues, add)
		}, func(signal *record.Packed) error {
			whole := record.Whole(*signal)
			return whole.Each(after, through, maxValues, add)
		})
		if err != nil || unread == 0 {
			return list, wrapRead(err, "history of run %s", run)
		}
		err = r.query(ctx, pageQuery(record.EventColumns), []any{run, unread, unread}, func(v []any) error {
			p, err := record.ReadEvents(v)
			if err != nil {
				return err
			}
			whole := record.Whole(p)
			return whole.Each(after, through, maxValues, add)
		})
		if err != nil || unread == through {
			if errors.Is(err, errEnough) {
				err = nil
			}
			return list, wrapRead(err, "history of run %s", run)
		}
		after = unread
	}
}

// One statement reads the events of all tasks, since many tasks are leased at once. A row that contains several of the
// events is read once.
func (r *reader) Arguments(ctx context.Context, at []store.EventKey) (map[store.EventKey]string, error) {
	found := make(map[store.EventKey]string, len(at))
	keys, requested := db.NewRowset(record.Events.Key()), map[store.EventKey]bool{}
	for _, k := range at {
		if p := r.recent.cachedRow(k); p == nil {
			keys.S(k.Run).I(k.Seq)
			requested[k] = true
		} else if err := addArguments(p, k, found); err != nil {
			return nil, wrapRead(err, "arguments")
		}
	}
	if keys.Empty() {
		return found, nil
	}
	args := r.dialect.Keys(keys)
	err := r.query(ctx, r.st.arguments, args, func(v []any) error {
		p, err := record.ReadEvents(v)
		if err != nil {
			return err
		}
		last := int64(0)
		for seq := p.First; seq <= p.Last(); seq++ {
			k := store.EventKey{Run: p.Run, Seq: seq}
			if !requested[k] {
				continue
			}
			if err := addArguments(&p, k, found); err != nil {
				return err
			}
			last = seq
		}
		r.recent.add(&p, last)
		return nil
	})
	return found, wrapRead(err, "arguments")
}

// addArguments adds to found the arguments of one event of a packed row.
func addArguments(p *record.Packed, k store.EventKey, found map[store.EventKey]string) error {
	return p.Each(k.Seq-1, k.Seq, func(e history.Event, _ int, _ bool) error {
		switch d := e.Data.(type) {
		case *history.ActivityScheduled:
			found[k] = d.Arguments
		case *history.WorkflowStarted:
			found[k] = d.Arguments
		}
		return nil
	})
}

// historyBackwards is the query that reads rows of a run's history from the end, beginning before a given event.
const historyBackwards = "SELECT " + record.EventColumns + " FROM events AS t WHERE t.run_id = $1 AND t.seq < $2 ORDER BY t.seq DESC LIMIT $3"

// Completion reads a run's history from its end, because it is called for repeated reports of recent events.
func (r *reader) Completion(ctx context.Context, run string, seq int64) (history.Event, error) {
	return r.lastEventOf(ctx, run, engine.StepID(run, seq), func(d history.Data) bool { return endedStep(d) == seq })
}

// AttemptEnd reads the event that ended an attempt of an activity: its outcome, or the retry that followed it.
func (r *reader) AttemptEnd(ctx context.Context, run string, seq, delivery int64) (history.Event, error) {
	id := engine.AttemptID(run, seq, delivery)
	return r.lastEventOf(ctx, run, id, func(d history.Data) bool {
		ended, a := history.EndedAttempt(d)
		return ended == seq && a.AttemptID == id
	})
}

// lastEventOf returns the last event of a run for which is returns true. what is the subject of the error if there is
// none.
func (r *reader) lastEventOf(
	ctx context.Context, run, what string, is func(history.Data) bool,
) (found history.Event, err error) {
	before := int64(1) << 62
	for {
		const page = 32
		rows := 0
		err := r.query(ctx, historyBackwards, []any{run, before, int64(page)}, func(v []any) error {
			p, err := record.ReadEvents(v)
			if err != nil {
				return err
			}
			rows++
			before = p.First
			events, err := p.All()
			if err != nil {
				return err
			}
			for _, e := range slices.Backward(events) {
				if is(e.Data) {
					found = e
					return errEnough
				}
			}
			return nil
		})
		switch {
		case errors.Is(err, errEnough):
			return found, nil
		case err != nil:
			return found, wrapRead(err, "history of run %s", run)
		case rows < page:
			return found, fmt.Errorf("outcome of %s: %w", what, store.ErrNotFound)
		}
	}
}

// endedStep returns the activity or awakeable that the event ends, or 0 if it ends none.
func endedStep(d history.Data) int64 {
	switch d := d.(type) {
	case *history.ActivityCompleted:
		return d.Sequence
	case *history.ActivityFailed:
		return d.Sequence
	case *history.ActivityTimedOut:
		return d.Sequence
	case *history.ActivityCancelled:
		return d.Sequence
	case *history.AwakeableCompleted:
		return d.Sequence
	case *history.AwakeableFailed:
		return d.Sequence
	case *history.AwakeableTimedOut:
		return d.Sequence
	case *history.AwakeableClosed:
		return d.Sequence
	}
	return 0
}

// LastEvent reads the row with the highest sequence and returns its last event.
func (r *reader) LastEvent(ctx context.Context, run string) (last history.Event, err error) {
	var inherited *record.Packed
	each := func(p *record.Packed) error {
		return p.Each(p.Last()-1, p.Last(), func(e history.Event, _ int, _ bool) error {
			last = e
			return nil
		})
	}
	err = r.queryRow(ctx, historyBackwards, []any{run, int64(1) << 62, int64(1)}, func(v []any) error {
		p, err := record.ReadEvents(v)
		if err == nil && p.Inherited != nil {
			inherited = &p
			return nil
		}
		if err != nil {
			return err
		}
		return each(&p)
	})
	if err == nil && inherited != nil {
		err = r.inherited(ctx, inherited, inherited.Last()-1, inherited.Last(), each)
	}
	return last, wrapRead(err, "last event of run %s", run)
}
