package engine

import (
	"strings"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The checks of single commands, apart from the run they belong to. They run before a decision, on every
// command of every completion, and touch no state.

// checker checks one command; at gives the path of one of its fields.
type checker struct {
	protocol.Command
	at func(field string) string
}

// short refuses a name that is too long to be one.
func (v checker) short(field, value string) error {
	if len(value) > protocol.MaxName {
		return protocol.Invalid(v.at(field), "is longer than 255 bytes")
	}
	return nil
}

// need refuses a name that is too long or not there.
func (v checker) need(field, value string) error {
	if value == "" {
		return missing(v.at(field))
	}
	return v.short(field, value)
}

// durations refuses times that are negative or longer than ten years: added to a date, a very large one would
// overflow.
func (v checker) durations() error {
	limit, _ := v.Wait()
	delay := int64(0)
	if v.Delay != nil {
		delay = *v.Delay
	}
	for _, d := range []struct {
		field string
		value protocol.Timeout
	}{
		{"start_to_close_timeout", v.StartToClose},
		{"schedule_to_start_timeout", v.ScheduleToStart},
		{"schedule_to_close_timeout", v.ScheduleToClose},
		{"heartbeat_timeout", v.Heartbeat},
		{"execution_timeout_seconds", v.ExecutionTimeout},
		{"run_timeout_seconds", v.RunTimeout},
	} {
		if d.value < 0 || d.value > protocol.MaxSeconds {
			return protocol.Invalid(v.at(d.field), "must be between 1 and %d", protocol.MaxSeconds)
		}
	}
	for _, d := range []struct {
		field string
		value int64
	}{{"delay_seconds", delay}, {"delay_micros", v.DelayMicros}, {"timeout_seconds", limit}} {
		if d.value < 0 {
			return protocol.Invalid(v.at(d.field), "must not be negative")
		}
		if d.value > protocol.MaxSeconds && d.field != "delay_micros" {
			return protocol.Invalid(v.at(d.field), "must not be longer than ten years")
		}
	}
	return nil
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
	ttl := int64(o.TTL)
	if o.TTL == protocol.NoTTL {
		ttl = 0
	}
	for _, n := range []struct {
		field string
		value int64
	}{
		{"lease_seconds", int64(o.Lease)},
		{"ttl_seconds", ttl},
		{"max_concurrent_activities", int64(o.MaxActivities)},
		{"idle_seconds", o.Idle},
	} {
		if n.value < 0 || n.value > protocol.MaxSeconds {
			return protocol.Invalid(at(n.field), "must be between 1 and %d", protocol.MaxSeconds)
		}
	}
	if o.Scope != "" && o.Scope != "namespace" {
		return protocol.Invalid(
			at("scope"), "must be namespace, not %q: the sessions of a workflow are those it starts", o.Scope,
		)
	}
	if !KnownPolicy(o.ReleasePolicy) {
		return protocol.Invalid(at("release_policy"), "must be migrate, finish or fail, not %q", o.ReleasePolicy)
	}
	return CheckAffinity(o.Affinity, o.FallbackAfter, reacquire, at)
}

// CheckSessionID says what is wrong with the id of a session; at names a member of the request.
func CheckSessionID(id, field string, at func(string) string) error {
	if strings.TrimSpace(id) == "" || len(id) > protocol.MaxName {
		return protocol.Invalid(at(field), "must be 1 to 255 bytes, and not only blanks")
	}
	return nil
}

// activity checks an activity's session, retry policy, priority and fairness.
func (v checker) activity() error {
	if o := v.WorkerSession; o != nil {
		if err := CheckSessionID(o.SessionID, "worker_session.session_id", v.at); err != nil {
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
	if v.SessionID != "" {
		if err := CheckSessionID(v.SessionID, "session_id", v.at); err != nil {
			return err
		}
	}
	if v.Priority != nil && (*v.Priority < 0 || *v.Priority > 9) {
		return protocol.Invalid(v.at("priority"), "must be between 0 and 9")
	}
	if err := CheckFairness(v.FairnessKey, v.FairnessWeight, v.at); err != nil {
		return err
	}
	return v.need("activity_type", v.ActivityType)
}

func (v checker) condition() error {
	for _, text := range [][2]string{
		{"condition_key", v.ConditionKey},
		{"condition_definition_fingerprint", v.ConditionFingerprint},
		{"condition_wait_occurrence_id", v.ConditionOccurrence},
	} {
		if err := v.short(text[0], text[1]); err != nil {
			return err
		}
	}
	return nil
}

// version checks a version marker: without all three numbers a replay could not tell whether the code still
// supports it.
func (v checker) version() error {
	for _, n := range []struct {
		field string
		value *int
	}{{"version", v.Version}, {"min_supported", v.MinSupported}, {"max_supported", v.MaxSupported}} {
		if n.value == nil {
			return missing(v.at(n.field))
		}
	}
	return v.need("change_id", v.ChangeID)
}

// child checks the start of a child.
func (v checker) child() error {
	switch v.ParentClosePolicy {
	case "", Abandon, RequestCancel, Terminate, CancelByRequest:
	default:
		return protocol.Invalid(
			v.at("parent_close_policy"), "must be abandon, request_cancel, terminate or request_cancellation",
		)
	}
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
	if _, _, err := labels(v.Command, v.at); err != nil {
		return err
	}
	return v.need("workflow_type", v.WorkflowType)
}
