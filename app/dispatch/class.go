package dispatch

import (
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
)

// class is one worker as routing sees it. What a claim finds nothing of is empty for that worker only: another may run other types, offer other
// capabilities, hold other sessions. So what is known about a backlog is known per worker.
type class struct {
	worker *engine.Worker
	empty  map[*line]uint64 // the line's gen at which a claim for this worker left nothing behind
	age    uint64           // rises when what is known is forgotten: a claim sent before teaches nothing
	size   int              // waiters
	used   uint64           // arrival that asked for it last
}

// clear says that the line holds no older ready task for this worker, as far as anybody told.
func (c *class) clear(l *line) bool { return c.empty[l] == l.gen }

// forget makes every line one that may hold something.
func (c *class) forget() {
	clear(c.empty)
	c.age++
}

// class returns what is known of the worker of a poll. A registration that routes differently starts anew; a heartbeat does not.
func (d *Dispatch) class(w *engine.Worker) *class {
	k := w.Key()
	c := d.classes[k]
	switch {
	case c == nil:
		d.prune()
		c = &class{worker: w, empty: map[*line]uint64{}}
		d.classes[k] = c
	case c.worker == w:
	case routesAlike(c.worker, w):
		c.worker = w
	default:
		c = &class{worker: w, empty: map[*line]uint64{}}
		d.classes[k] = c
	}
	c.used = d.arrivals
	return c
}

func routesAlike(a, b *engine.Worker) bool {
	return a.Incarnation == b.Incarnation && a.BuildID == b.BuildID && a.Release == b.Release && a.MaxSessions == b.MaxSessions &&
		a.AnyActivity == b.AnyActivity && slices.Equal(a.WorkflowTypes, b.WorkflowTypes) && slices.Equal(a.ActivityTypes, b.ActivityTypes) &&
		slices.Equal(a.Capabilities, b.Capabilities)
}
