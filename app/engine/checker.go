package engine

import (
	"fmt"
	"strings"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The checks of single commands, apart from the run they belong to. They run before a decision, on every
// command of every completion, and touch no state.

// checker checks one command; at gives the path of one of its fields. What a member may be by itself, and whether it is
// needed, stands in its tags in protocol and was looked at before; what is here is how members go together.
type checker struct {
	protocol.Command
	at func(field string) string
}

// session checks the options of the session a command starts or uses.
func (v checker) session(reacquire *bool) error {
	o := v.WorkerSession
	if o == nil {
		return nil
	}
	return CheckOptions(o, reacquire, func(f string) string { return v.at("worker_session." + f) })
}

// CheckOptions says what is wrong with the options of a session, whoever sends them; at names a member of the request.
func CheckOptions(o *protocol.SessionOptions, reacquire *bool, at func(string) string) error {
	if err := protocol.CheckLimitsAt(o, at); err != nil {
		return err
	}
	for i, r := range o.Requirements {
		if strings.TrimSpace(r) == "" {
			return protocol.Invalid(at(fmt.Sprintf("requirements.%d", i)), "must not be blank")
		}
	}
	return CheckAffinity(o.Affinity, o.FallbackAfter, reacquire, at)
}

// CheckSessionID refuses what nobody could tell from no id; field is its path.
func CheckSessionID(id, field string) error {
	if strings.TrimSpace(id) == "" {
		return protocol.Invalid(field, "must be 1 to 255 bytes, and not only blanks")
	}
	return nil
}

// activity checks an activity's session, retry policy and fairness.
func (v checker) activity() error {
	if o := v.WorkerSession; o != nil {
		if err := CheckSessionID(o.SessionID, v.at("worker_session.session_id")); err != nil {
			return err
		}
		if err := v.session(o.Reacquire); err != nil {
			return err
		}
	} else if v.SessionID == "" && v.Affinity != "" {
		return protocol.Invalid(v.at("affinity"), "is for activities in a session")
	}
	if err := CheckAffinity(v.Affinity, v.FallbackAfter, nil, v.at); err != nil {
		return err
	}
	if err := retryable(v.RetryPolicy, v.at); err != nil {
		return err
	}
	if v.SessionID != "" && CheckSessionID(v.SessionID, "") != nil { // its name is made for who is refused
		return CheckSessionID(v.SessionID, v.at("session_id"))
	}
	return CheckFairness(v.FairnessKey, v.at("fairness_key"))
}

// child checks the start of a child.
func (v checker) child() error {
	if v.WorkflowID != "" {
		if err := CheckWorkflowID(v.WorkflowID, v.at("workflow_id")); err != nil {
			return err
		}
	}
	if v.ExecutionTimeout > 0 && v.RunTimeout > v.ExecutionTimeout {
		return protocol.Invalid(v.at("run_timeout_seconds"), "must not be longer than execution_timeout_seconds")
	}
	if err := retryable(v.RetryPolicy, v.at); err != nil {
		return err
	}
	_, _, err := labels(v.Command, v.at)
	return err
}
