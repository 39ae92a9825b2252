package engine

import (
	"cmp"
	"fmt"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The naming rules apply to new names: of a new run, schedule, session or registration, and in the commands of runs
// that began under the rules. Existing runs, schedules and sessions with other names keep them.

// CheckStartNames checks the names of a start that creates a run.
func CheckStartNames(r protocol.StartRequest) error {
	return cmp.Or(
		protocol.CheckNewID("workflow_id", r.WorkflowID), protocol.CheckName("workflow_type", r.WorkflowType),
		protocol.CheckName("task_queue", r.TaskQueue), protocol.CheckName("build_id", r.BuildID),
	)
}

// CheckActivityNames is CheckStartNames for an activity run with the command c. known means that the session of c
// exists.
func CheckActivityNames(r protocol.StartRequest, c *protocol.Command, known bool) error {
	at := func(member string) string { return member }
	return cmp.Or(
		protocol.CheckNewID("workflow_id", r.WorkflowID), protocol.CheckName("activity_type", c.ActivityType),
		protocol.CheckName("task_queue", r.TaskQueue), checkSessionName(c, known, at),
	)
}

// checkNames checks the new names in the commands of a run that began under the naming rules.
func (st *step) checkNames(commands []protocol.Command) error {
	if st.NameRules == 0 {
		return nil
	}
	for i := range commands {
		c := &commands[i]
		at := func(member string) string { return fmt.Sprintf("commands.%d.%s", i, member) }
		if err := protocol.CheckCommandNames(c, st.Queue, at); err != nil {
			return err
		}
		if c.Type == protocol.ScheduleActivity && c.Session() != "" {
			_, known := st.session(c.Session())
			if err := checkSessionName(c, known, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkSessionName checks the session ID of an activity, unless the session exists (known).
func checkSessionName(c *protocol.Command, known bool, at func(string) string) error {
	switch {
	case known:
		return nil
	case c.WorkerSession != nil:
		return protocol.CheckName(at("worker_session.session_id"), c.WorkerSession.SessionID)
	default:
		return protocol.CheckName(at("session_id"), c.SessionID)
	}
}

// checkAction checks the names of a schedule's action. Names from the previous action stay valid.
func checkAction(next, before protocol.ScheduleAction) error {
	session := func(a protocol.ScheduleAction) string {
		if a.WorkerSession != nil {
			return a.WorkerSession.SessionID
		}
		return a.SessionID
	}
	for _, n := range []struct{ field, name, before string }{
		{"workflow_type", next.WorkflowType, before.WorkflowType},
		{"activity_type", next.ActivityType, before.ActivityType},
		{"task_queue", next.TaskQueue, before.TaskQueue},
		{"session_id", session(next), session(before)},
	} {
		if n.name == n.before {
			continue
		}
		if err := protocol.CheckName("action."+n.field, n.name); err != nil {
			return err
		}
	}
	return nil
}
