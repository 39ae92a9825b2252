package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A selection waits for several members, and the member that ends first wins. A replay must find the same winner, in
// whatever order the results are read. Therefore history records the winner in its own event, SelectionResolved, and a
// replayer never derives it.

// selectionOf returns the selection to which a step belongs; false if it belongs to none.
func selectionOf(p *history.Parallel) (history.Parallel, bool) {
	if p.GroupMode == "select" {
		return *p, true
	}
	if !bytes.Contains(p.GroupPath, []byte("select")) {
		return history.Parallel{}, false
	}
	var path []history.Parallel
	if json.Unmarshal(p.GroupPath, &path) != nil {
		return history.Parallel{}, false
	}
	for _, g := range path {
		if g.GroupMode == "select" {
			return g, true
		}
	}
	return history.Parallel{}, false
}

// ended returns the step that an event ended and whether the step failed; ok is false if the event ended no step.
func ended(d history.Data) (seq int64, p *history.Parallel, failed, ok bool) {
	switch d := d.(type) {
	case *history.ActivityCompleted:
		return d.Sequence, &d.Parallel, false, true
	case *history.ActivityFailed:
		return d.Sequence, &d.Parallel, true, true
	case *history.ActivityTimedOut:
		return d.Sequence, &d.Parallel, true, true
	case *history.ActivityCancelled:
		return d.Sequence, &d.Parallel, true, true
	case *history.TimerFired:
		return d.Sequence, &d.Parallel, false, d.Kind != ConditionTimeout
	case *history.SignalApplied:
		return d.Sequence, &d.Parallel, false, true
	case *history.ConditionWaitSatisfied:
		return d.Sequence, &d.Parallel, false, true
	case *history.ConditionWaitTimedOut:
		return d.Sequence, &d.Parallel, false, true
	case *history.ChildRunCompleted:
		return d.Sequence, &d.Parallel, false, true
	case *history.ChildRunFailed:
		return d.Sequence, &d.Parallel, true, true
	case *history.ChildRunCancelled:
		return d.Sequence, &d.Parallel, true, true
	case *history.ChildRunTerminated:
		return d.Sequence, &d.Parallel, true, true
	}
	return 0, nil, false, false
}

// recordWinner records the winner of a selection when the first member has ended. A member that consists of several
// steps has completed when all of them have, and has failed with the first step that failed. No winner is recorded
// while the run closes.
func (st *step) recordWinner(e history.Event) {
	seq, p, failed, ok := ended(e.Data)
	if !ok || p.GroupID == "" || st.closing {
		return
	}
	g, ok := selectionOf(p)
	// the winner is already known, or a step of the member is still open
	if !ok || slices.Contains(st.Selected, g.GroupID) || g.SelectIndex == nil ||
		!failed && st.unfinished(g.SelectBase, g.SelectSize) {
		return
	}
	d := &history.SelectionResolved{
		SelectionMember: history.SelectionMember{
			GroupID: g.GroupID, Key: g.SelectKey, Index: *g.SelectIndex, Base: g.SelectBase, Size: g.SelectSize,
			Kind:     g.SelectKind,
			Identity: st.identity(e.Data, g, seq),
		},
		GroupBase: g.GroupBase, GroupSize: g.GroupSize, Outcome: "completed", EventID: e.ID(), EventType: e.Type(),
	}
	if failed {
		d.Outcome = "failed"
	}
	st.emit(d)
}

// identity returns the ID of a selection's member.
func (st *step) identity(d history.Data, g history.Parallel, seq int64) string {
	switch g.SelectKind {
	case "group":
		return fmt.Sprintf("group:%d:%d", g.SelectBase, g.SelectSize)
	case "child":
		switch d := d.(type) {
		case *history.ChildRunCompleted:
			return d.RunID
		case *history.ChildRunFailed:
			return d.RunID
		case *history.ChildRunCancelled:
			return d.RunID
		case *history.ChildRunTerminated:
			return d.RunID
		}
	}
	return StepID(st.ID, seq)
}

// unfinished reports whether a step with a command number in this range is open.
func (s *Run) unfinished(base, size int64) bool {
	for seq := base; seq < base+size; seq++ {
		_, activity := s.Activities.Get(seq)
		_, timer := s.Timers.Get(seq)
		_, wait := s.Waits.Get(seq)
		_, child := s.Children.Get(seq)
		if activity || timer || wait || child {
			return true
		}
	}
	return false
}

// selected records that a selection has a winner while other members are still open. When one of them ends, it wakes
// the run even though the group is not complete (see resolved).
func (s *Run) selected(d *history.SelectionResolved, e history.Event) {
	in := func(p history.Parallel, id string) bool {
		return p.GroupID == id || bytes.Contains(p.GroupPath, []byte(id))
	}
	s.Selected = append(slices.Clone(s.Selected), d.GroupID)
	// Remove selections without open members; otherwise the row would grow with every selection.
	s.Selected = slices.DeleteFunc(s.Selected, func(id string) bool {
		return !s.Activities.Any(func(a Activity) bool { return in(a.Parallel, id) }) && !s.Timers.Any(func(t Timer) bool {
			return in(t.Parallel, id)
		}) &&
			!s.Waits.Any(func(w Wait) bool { return in(w.Parallel, id) }) && !s.Children.Any(func(c Child) bool {
			return in(c.Parallel, id)
		})
	})
	s.wake(e, Cause{Kind: "selection", Sequence: d.Base, ID: d.Identity})
}

// endSelectionWaits ends the waits of selections that a signal or an update concerns. Replayers do not evaluate the
// conditions of a selection again when they are woken, so every event that may have made a condition true counts as
// having done so.
func (st *step) endSelectionWaits() {
	for k, w := range st.Waits.All() {
		if _, ok := selectionOf(&w.Parallel); !ok || w.Signal == 0 {
			continue
		}
		if t, ok := st.Timers.Get(k); ok {
			st.emit(&history.TimerCancelled{Sequence: k, TimerID: StepID(st.ID, k), Kind: t.Kind, Parallel: t.Parallel})
		}
		if w.Kind == ConditionWait {
			st.emit(&history.ConditionWaitSatisfied{Condition: w.condition(st.ID, k), Parallel: w.Parallel})
			continue
		}
		st.emit(st.applied(k, w))
	}
}

// cancelMember cancels the open steps of a member of a selection. If the member has ended, nothing happens: the code
// may have issued the command before it knew.
func (st *step) cancelMember(c protocol.Command) {
	m := history.SelectionMember{
		GroupID: c.SelectionGroup, Key: c.Member, Index: c.MemberIndex, Base: c.MemberBase, Size: int64(c.MemberSize),
		Kind:     c.OperationKind,
		Identity: c.OperationID,
	}
	if !st.unfinished(m.Base, m.Size) {
		return
	}
	st.emit(&history.SelectionOperationCancelled{SelectionMember: m})
	for seq := m.Base; seq < m.Base+m.Size; seq++ {
		if t, ok := st.Timers.Get(seq); ok {
			st.emit(&history.TimerCancelled{Sequence: seq, TimerID: StepID(st.ID, seq), Kind: t.Kind, Parallel: t.Parallel})
		}
		st.cancelMemberActivity(seq)
		st.cancelMemberChild(seq)
	}
}

// cancelMemberActivity cancels an open activity of a member, by the activity's cancellation policy.
func (st *step) cancelMemberActivity(seq int64) {
	a, ok := st.Activities.Get(seq)
	if !ok {
		return
	}
	switch effect := a.cancelEffect(false); effect {
	case cancelRequested:
		st.emit(&history.ActivityCancelRequested{Target: seq, Effect: effect})
	case cancelDone:
		st.cancelled(a, cancelledByFlow)
	}
}

// cancelMemberChild cancels an open child of a member, by the child's cancellation policy. A child is a separate run,
// so the parent sends it a message.
func (st *step) cancelMemberChild(seq int64) {
	c, ok := st.Children.Get(seq)
	if !ok || c.cancelEffect() == cancelAbandoned {
		return
	}
	d := &history.ChildCancelRequested{Target: seq, Effect: c.cancelEffect()}
	st.emit(d)
	st.enqueueMessage(c.closeMessage(RequestCancel, cancelledByParent))
	if d.Effect == cancelDone {
		st.endCancelledChild(seq, c)
	}
}

// memberCancelled removes the waits of a cancelled member. The member's other steps end with their own events.
func (s *Run) memberCancelled(d *history.SelectionOperationCancelled) {
	for seq := d.Base; seq < d.Base+d.Size; seq++ {
		s.Waits.Delete(seq)
	}
}
