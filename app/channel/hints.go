package channel

import (
	"time"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Hints are gathered for hintEvery and then sent, at most hintBurst at a time: a browser's queue is short, and a page
// that shows a hundred runs fetches its list once.
const (
	hintEvery = 100 * time.Millisecond
	hintBurst = 50
)

// spreadHints tells dashboards what changed.
func (c *Channel) spreadHints() {
	w := c.opt.Hub.Watch(dispatch.TopicRuns | dispatch.TopicSessions | dispatch.TopicWorkers)
	defer w.Close()
	gather := time.NewTimer(time.Hour)
	gather.Stop()
	defer gather.Stop()
	for {
		select {
		case <-c.life.Done():
			return
		case <-w.C:
		}
		gather.Reset(hintEvery)
		select {
		case <-c.life.Done():
			return
		case <-gather.C:
		}
		changed, overflow := w.Take()
		if sockets := c.browsers.Sockets(); len(sockets) > 0 {
			hints := condense(hintsOf(changed), overflow)
			for _, s := range sockets {
				b, ok := s.Principal().(*browser)
				for _, h := range hints {
					if ok && (h.Namespace == "" || c.opt.Sees == nil || c.opt.Sees(b.principal, h.Namespace)) {
						// A browser that does not read is cut by its own connection.
						_ = s.Emit(protocol.EventHint, h)
					}
				}
			}
		}
	}
}

func hintsOf(c store.Changed) []protocol.Hint {
	hints := make([]protocol.Hint, 0, len(c.Runs)+len(c.Sessions)+len(c.Workers))
	for _, r := range c.Runs {
		hints = append(
			hints, protocol.Hint{Kind: "run", ID: r.RunID, Namespace: r.Namespace, WorkflowID: r.WorkflowID, LastSeq: r.LastSeq},
		)
	}
	for _, k := range c.Sessions {
		hints = append(hints, protocol.Hint{Kind: "session", ID: k.ID, Namespace: k.Namespace})
	}
	for _, k := range c.Workers {
		hints = append(hints, protocol.Hint{Kind: "worker", ID: k.ID, Namespace: k.Namespace})
	}
	return hints
}

// condense keeps a burst short: of a kind with too many hints one remains, without an id, that stands for all.
func condense(hints []protocol.Hint, overflow bool) []protocol.Hint {
	if len(hints) <= hintBurst && !overflow {
		return hints
	}
	count := map[string]int{}
	for _, h := range hints {
		count[h.Kind]++
	}
	var short []protocol.Hint
	for _, kind := range []string{"run", "session", "worker"} {
		if overflow || count[kind] > hintBurst/4 {
			short = append(short, protocol.Hint{Kind: kind})
			count[kind] = 0
		}
	}
	for _, h := range hints {
		if count[h.Kind] > 0 {
			short = append(short, h)
		}
	}
	return short
}
