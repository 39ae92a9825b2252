package invariants

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// overCap returns an acquisition or a resume by a worker that certainly held its maximum of other sessions: the lease
// of each of them ended after the acquisition, and no call that could release it had begun before the response.
func overCap(history []porcupine.Operation, most int) error {
	for _, o := range history {
		c, r := o.Input.(call), o.Output.(reply)
		if c.kind != claim && (c.kind != resume || !r.ok) {
			continue
		}
		held := map[string]bool{}
		for _, e := range history {
			ec, er := e.Input.(call), e.Output.(reply)
			grants := er.ok && (ec.kind == claim || ec.kind == fetch ||
				(ec.kind == renew || ec.kind == resume) && ec.fallback == 0)
			if ec.fallback > 0 && (ec.kind == fetch && ec.task == "" || ec.before+ec.fallback <= r.after) {
				continue // another worker may have acquired the session since, in a call that is not recorded
			}
			if !grants || ec.session == c.session || ec.worker != c.worker || e.Return >= o.Call || er.until <= r.after ||
				held[ec.session] {
				continue
			}
			held[ec.session] = !ended(history, ec.session, o.Return)
		}
		n := 0
		for _, yes := range held {
			if yes {
				n++
			}
		}
		if own := reclaims(history, o); n >= most && !own {
			return fmt.Errorf("%s: the worker held %d sessions, its most is %d", model.DescribeOperation(c, r), n, most)
		}
	}
	return nil
}

// ended reports whether a release or close of the session began before a moment.
func ended(history []porcupine.Operation, session string, before int64) bool {
	for _, o := range history {
		if c := o.Input.(call); c.session == session &&
			(c.kind == release || c.kind == closing || c.kind == drain || c.kind == giveUp) && o.Output.(reply).ok &&
			o.Call < before {
			return true
		}
	}
	return false
}

// reclaims reports whether the worker's former process may have held the session already.
func reclaims(history []porcupine.Operation, o porcupine.Operation) bool {
	c := o.Input.(call)
	for _, e := range history {
		if ec := e.Input.(call); ec.session == c.session && ec.worker == c.worker && ec.incarnation != c.incarnation &&
			e.Call < o.Return &&
			(ec.kind == claim || ec.kind == fetch) {
			return true
		}
	}
	return false
}

// replaced reports whether another process of the worker registered before the moment and after the dispatch of the
// task: the leases of the former process have ended.
func replaced(history []porcupine.Operation, e porcupine.Operation, before int64) bool {
	for _, o := range history {
		if c := o.Input.(call); c.kind == register && c.worker == e.Input.(call).worker && o.Return > e.Call &&
			o.Call < before {
			return true
		}
	}
	return false
}

// overFull returns a task that was dispatched while the session ran its maximum: attempts of the same epoch for which
// no worker had begun a report.
func overFull(history []porcupine.Operation, ends map[string]int64, most int) error {
	for _, o := range history {
		c, r := o.Input.(call), o.Output.(reply)
		if c.task == "" || c.kind != claim && c.kind != fetch {
			continue
		}
		n := 0
		for _, e := range history {
			ec, er := e.Input.(call), e.Output.(reply)
			if ec.task == "" || ec.kind != claim && ec.kind != fetch || ec.session != c.session || er.epoch != r.epoch ||
				e.Return >= o.Call {
				continue
			}
			if at, over := ends[ec.task]; (!over || at > o.Return) && !replaced(history, e, o.Return) {
				n++
			}
		}
		if n >= most {
			return fmt.Errorf("%s: the session ran %d activities, its most is %d", model.DescribeOperation(c, r), n, most)
		}
	}
	return nil
}
