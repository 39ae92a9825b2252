package engine

import "github.com/sojourn-run/sojourn/shared/protocol"

// checker checks one command; at gives the path of one of its fields.
type checker struct {
	protocol.Command
	at func(field string) string
}

// short refuses a name that is too long to be one.
func (v checker) short(field, value string) error {
	if len(value) > 255 {
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

func (v checker) durations() error {
	limit, _ := v.Wait()
	delay := int64(0)
	if v.Delay != nil {
		delay = *v.Delay
	}
	for _, d := range []struct {
		field string
		value int64
	}{
		{"start_to_close_timeout", v.StartToClose},
		{"schedule_to_start_timeout", v.ScheduleToStart},
		{"schedule_to_close_timeout", v.ScheduleToClose},
		{"heartbeat_timeout", v.Heartbeat},
		{"delay_seconds", delay},
		{"delay_micros", v.DelayMicros},
		{"timeout_seconds", limit},
		{"execution_timeout_seconds", v.ExecutionTimeout},
		{"run_timeout_seconds", v.RunTimeout},
	} {
		if d.value < 0 {
			return protocol.Invalid(v.at(d.field), "must not be negative")
		}
		if d.value > 10*365*24*3600 && d.field != "delay_micros" {
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
	return CheckAffinity(o.Affinity, o.FallbackAfter, reacquire, func(f string) string { return v.at("worker_session." + f) })
}

func (v checker) activity() error {
	if o := v.WorkerSession; o != nil {
		if err := v.need("worker_session.session_id", o.SessionID); err != nil {
			return err
		}
		if !KnownPolicy(o.ReleasePolicy) {
			return protocol.Invalid(v.at("worker_session.release_policy"), "must be migrate, finish or fail, not %q", o.ReleasePolicy)
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
	if err := v.short("session_id", v.SessionID); err != nil {
		return err
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

func (v checker) child() error {
	switch v.ParentClosePolicy {
	case "", Abandon, RequestCancel, Terminate, CancelByRequest:
	default:
		return protocol.Invalid(v.at("parent_close_policy"), "must be abandon, request_cancel, terminate or request_cancellation")
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
