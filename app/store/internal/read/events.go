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

// Events returns a page. It may begin within a row of several events, so it is read from the row of its first event.
func (r *reader) Events(
	ctx context.Context, run string, after, through int64, limit, maxBytes int,
) ([]history.Event, error) {
	through = lastOf(after, through, limit)
	var list []history.Event
	bytes := 0
	err := r.query(ctx, page(record.EventColumns), []any{run, after + 1, through}, func(v []any) error {
		p, err := record.ReadEvents(v)
		if err != nil {
			return err
		}
		return p.Each(after, through, func(e history.Event, size int, _ bool) error {
			// One event at least, however large, or a page that is too small for it would never get past it.
			if bytes += size + engine.EventBytes; len(list) > 0 && bytes > maxBytes && maxBytes > 0 {
				return errEnough
			}
			list = append(list, e)
			return nil
		})
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return list, wrap(err, "history of run %s", run)
}

// page is the query that reads the rows of the events from $2 to $3 of the run $1.
func page(columns string) string {
	return "SELECT " + columns + " FROM events AS t WHERE t.run_id = $1 AND t.seq >= coalesce(" +
		record.RowOf("$1", "$2") + ", 0) AND t.seq <= $3 ORDER BY t.seq"
}

// lastOf is the last event of a page. Events are numbered without gaps.
func lastOf(after, through int64, limit int) int64 {
	if last := after + int64(limit); through == 0 || through > last {
		return last
	}
	return through
}

// Outlines reads rows with large values without them, and again those whose outlines cannot be made from that.
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
		var unread int64 // the event of a row that is to be read again
		err := r.query(ctx, page(record.OutlineColumns), []any{run, after + 1, through}, func(v []any) error {
			o, err := record.ReadOutlines(v)
			if err != nil {
				return err
			}
			if !o.Readable() {
				unread = o.First
				return errEnough
			}
			return o.Each(after, through, maxValues, add)
		})
		if err == nil || unread == 0 {
			if errors.Is(err, errEnough) {
				err = nil
			}
			return list, wrap(err, "history of run %s", run)
		}
		err = r.query(ctx, page(record.EventColumns), []any{run, unread, unread}, func(v []any) error {
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
			return list, wrap(err, "history of run %s", run)
		}
		after = unread
	}
}

// One statement for all of them, since many tasks are handed out at once; and of a row that holds several it is
// read once.
func (r *reader) Arguments(ctx context.Context, at []store.EventKey) (map[store.EventKey]string, error) {
	found := make(map[store.EventKey]string, len(at))
	keys, requested := db.NewRowset(record.Events.Key()), map[store.EventKey]bool{}
	for _, k := range at {
		if p := r.recent.row(k); p == nil {
			keys.S(k.Run).I(k.Seq)
			requested[k] = true
		} else if err := argument(p, k, found); err != nil {
			return nil, wrap(err, "arguments")
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
			if err := argument(&p, k, found); err != nil {
				return err
			}
			last = seq
		}
		r.recent.add(&p, last)
		return nil
	})
	return found, wrap(err, "arguments")
}

// argument adds the arguments that an event of a row contains.
func argument(p *record.Packed, k store.EventKey, found map[store.EventKey]string) error {
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

// backwards is the query that reads rows of a run's history from the end, beginning before a given event.
const backwards = "SELECT " + record.EventColumns + " FROM events AS t WHERE t.run_id = $1 AND t.seq < $2 ORDER BY t.seq DESC LIMIT $3"

// Completion reads from the end, since it is called for a repeated report of a recent event.
func (r *reader) Completion(ctx context.Context, run string, seq int64) (found history.Event, err error) {
	before := int64(1) << 62
	for {
		const page = 32
		rows := 0
		err := r.query(ctx, backwards, []any{run, before, int64(page)}, func(v []any) error {
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
				if terminalOf(e.Data) == seq {
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
			return found, wrap(err, "history of run %s", run)
		case rows < page:
			return found, fmt.Errorf("outcome of %s: %w", engine.StepID(run, seq), store.ErrNotFound)
		}
	}
}

// terminalOf is the activity whose end an event is, else 0.
func terminalOf(d history.Data) int64 {
	switch d := d.(type) {
	case *history.ActivityCompleted:
		return d.Sequence
	case *history.ActivityFailed:
		return d.Sequence
	case *history.ActivityTimedOut:
		return d.Sequence
	case *history.ActivityCancelled:
		return d.Sequence
	}
	return 0
}

// LastEvent returns the last event of the last row.
func (r *reader) LastEvent(ctx context.Context, run string) (last history.Event, err error) {
	err = r.one(ctx, backwards, []any{run, int64(1) << 62, int64(1)}, func(v []any) error {
		p, err := record.ReadEvents(v)
		if err != nil {
			return err
		}
		return p.Each(p.Last()-1, p.Last(), func(e history.Event, _ int, _ bool) error {
			last = e
			return nil
		})
	})
	return last, wrap(err, "last event of run %s", run)
}
