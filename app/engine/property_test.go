package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/sojourn-run/sojourn/shared/history"
)

// For random inputs in any order: folding the history yields the state, event numbers have no gaps, nothing follows a
// terminal event, deciding twice yields the same decision, a decision does not change its run, and the counts of a
// session equal those of its tasks.
func TestAnythingInAnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newStage()
		s.play(t, &datadriven.TestData{Cmd: "start"})
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			d := anything(rt, s)
			out := s.play(t, d)
			if strings.Contains(out, "DIFFERS") || strings.Contains(out, "CHANGED") {
				rt.Fatalf("%s: %s", d.Cmd, out)
			}
			s.check(t)
			s.checkSessions(rt)
		}
		for i, e := range s.history[:len(s.history)-1] {
			switch e.Data.(type) {
			case *history.WorkflowCompleted, *history.WorkflowFailed, *history.WorkflowCancelled, *history.WorkflowTerminated,
				*history.WorkflowTimedOut:
				rt.Fatalf("event %d follows %s", i+2, e.Type())
			}
		}
	})
}

func anything(rt *rapid.T, s *stage) *datadriven.TestData {
	d := &datadriven.TestData{Pos: "property"}
	arg := func(k string, v ...any) {
		a := datadriven.CmdArg{Key: k}
		for _, x := range v {
			a.Vals = append(a.Vals, fmt.Sprint(x))
		}
		d.CmdArgs = append(d.CmdArgs, a)
	}
	seq := rapid.IntRange(1, 6).Draw(rt, "seq")
	by := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "by")
	d.Cmd = rapid.SampledFrom([]string{
		"lease", "lease", "do", "do", "do", "take", "take", "complete", "complete", "fail", "beat", "return", "due",
		"due-seq", "due-timer", "signal",
		"advance", "fail-task", "release-task", "session", "repair", "cancel", "update", "answer",
		"child", "child", "awakeable", "reset",
	}).Draw(rt, "what")
	switch d.Cmd {
	case "reset":
		ends := taskEnds(&s.run.Head, s.history)
		if len(ends) == 0 {
			d.Cmd = "show"
			break
		}
		arg("event", rapid.SampledFrom(ends).Draw(rt, "event"))
		if rapid.IntRange(0, 3).Draw(rt, "drop") == 0 {
			arg("drop")
		}
	case "lease":
		if s.run.Task == nil || s.run.Task.State != Ready {
			d.Cmd = "show"
		}
		arg("by", by)
	case "do":
		arg("by", by)
		d.Input = someCommands(rt, seq, s.run.CommandSeq+1)
	case "child":
		arg("seq", seq)
		arg(
			"status",
			rapid.SampledFrom([]string{"completed", "failed", "timed_out", "cancelled", "terminated", "continued"}).Draw(
				rt, "status",
			),
		)
		arg("number", rapid.IntRange(1, 3).Draw(rt, "number"))
	case "awakeable":
		arg("seq", seq)
		if rapid.Bool().Draw(rt, "fails") {
			arg("fail", "No")
		}
	case "answer":
		d.Cmd = "do"
		arg("by", by)
		id := "RUN-u9"
		if s.run.Task != nil && s.run.Task.Cause.Kind == UpdateTask {
			id = s.run.Task.Cause.ID
		}
		d.Input = rapid.SampledFrom([]string{"complete_update", "fail_update", "apply_update"}).Draw(
			rt, "answer",
		) + " update_id=" + id
	case "take", "complete", "fail", "beat":
		arg("seq", seq)
		arg("by", by)
	case "return":
		arg("seq", seq)
		arg(rapid.SampledFrom([]string{"lost", "undone", "plain"}).Draw(rt, "how"))
	case "due-seq":
		d.Cmd = "due"
		arg("seq", seq)
	case "due-timer":
		d.Cmd = "due"
		arg("timer", seq)
	case "advance":
		arg(rapid.SampledFrom([]string{"1s", "10s", "31s", "121s", "301s"}).Draw(rt, "by"))
	case "signal":
		arg("name", rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "name"))
	case "fail-task":
		arg("by", by)
		arg("type", rapid.SampledFrom([]string{"WorkflowTaskWaitingForHistory", "Panic"}).Draw(rt, "type"))
	case "session":
		arg(rapid.SampledFrom([]string{"renew", "release", "due", "close", "heartbeat"}).Draw(rt, "verb"))
		arg("id", rapid.SampledFrom([]string{"s", "#1"}).Draw(rt, "id"))
		arg("by", by)
	}
	return d
}

func someCommands(rt *rapid.T, seq int, next int64) string {
	lines := rapid.SliceOfN(rapid.SampledFrom([]string{
		"schedule_activity activity_type=a", "schedule_activity activity_type=a session_id=s",
		"schedule_activity activity_type=a session_id=RUN-1",
		`schedule_activity activity_type=a session_id=s retry_policy={"max_attempts":3,"backoff_seconds":[1]} start_to_close_timeout=10`,
		"schedule_activity activity_type=a session_id=s cancellation_policy=abandon",
		`schedule_activity activity_type=a cancellation_policy=abandon retry_policy={"max_attempts":3} start_to_close_timeout=10`,
		"open_awakeable", "open_awakeable timeout_seconds=5", fmt.Sprintf("cancel_awakeable target=%d", seq),
		"start_timer delay_seconds=5", "open_signal_wait signal_name=x", "open_signal_wait signal_name=y timeout_seconds=5",
		"open_condition_wait condition_key=k timeout_seconds=9", "open_condition_wait condition_wait_occurrence_id=o",
		"start_session", "end_session session_id=RUN-1", "end_session session_id=s",
		fmt.Sprintf("cancel_activity target=%d", seq), fmt.Sprintf("cancel_timer target=%d", seq),
		"record_version_marker change_id=c version=1",
		"signal_workflow workflow_id=wf signal_name=x", "start_child_workflow workflow_type=c parent_close_policy=terminate",
		`start_child_workflow workflow_type=c retry_policy={"max_attempts":3,"backoff_seconds":[0,5]} execution_timeout_seconds=60`,
		fmt.Sprintf("cancel_child_workflow target=%d", seq), `upsert_memo entries={"a":1,"b":null}`,
		`upsert_memo entries={"b":"x"}`,
		`upsert_search_attributes attributes={"C":"x","D":null}`,
	}), 1, 4).Draw(rt, "commands")
	if rapid.IntRange(0, 4).Draw(rt, "select") == 0 {
		lines = append(selecting(next), lines...)
	}
	switch rapid.IntRange(0, 20).Draw(rt, "end") {
	case 0:
		lines = append(lines, "complete_workflow")
	case 1:
		lines = append(lines, "continue_as_new")
	case 2:
		lines = append(lines, "fail_workflow message=no")
	}
	return strings.Join(lines, "\n")
}

// selecting returns the commands of a selection of four members; base is the number of the first command.
func selecting(base int64) []string {
	var lines []string
	for i, c := range []string{
		"schedule_activity activity_type=a", "start_timer delay_seconds=5", "open_condition_wait timeout_seconds=5",
		"start_child_workflow workflow_type=c",
	} {
		lines = append(lines,
			fmt.Sprintf("%s parallel_group_id=select-calls:%d:4 parallel_group_mode=select parallel_group_base_sequence=%d"+
				" parallel_group_size=4 parallel_group_index=%d selection_member_key=%d selection_member_index=%d selection_member_base_sequence=%d"+
				" selection_member_size=1 selection_member_kind=x", c, base, base, i, i, i, base+int64(i)))
	}
	return append(lines,
		fmt.Sprintf("cancel_selection_operation selection_group_id=select-calls:%d:4 member_key=1 member_base_sequence=%d member_size=2",
			base, base))
}

// checkSessions compares the counts of each session with the open activities of this run, the only run of the test.
func (s *stage) checkSessions(rt *rapid.T) {
	for id, sess := range s.sessions {
		ready, active := 0, 0
		for _, a := range s.run.Activities.All() {
			if a.SessionID != id {
				continue
			}
			if a.State == Ready {
				ready++
			}
			if a.State == LeasedState && a.Epoch == sess.Epoch {
				active++
			}
		}
		if sess.Ready != ready {
			rt.Fatalf("session %s counts %d ready tasks, the run has %d", id, sess.Ready, ready)
		}
		if sess.Held(s.now) && sess.Active != active {
			rt.Fatalf("session %s counts %d leased tasks, the run has %d", id, sess.Active, active)
		}
	}
}
