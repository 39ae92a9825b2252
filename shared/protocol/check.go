package protocol

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/sojourn-run/sojourn/internal/retry"
)

// The affinities of a session. With AffinityHard, the default, only the worker that holds the session runs its tasks.
// With AffinitySoft another worker may acquire the session when a task has waited for that worker for
// fallback_after_seconds.
const (
	AffinityHard = "hard"
	AffinitySoft = "soft"
)

// The limits of memo and search attributes. Sizes are in bytes, of the encoded values.
const (
	MaxAttributes      = 100 // also the limit of memo entries
	MaxAttributeName   = 128
	MaxAttributeBytes  = 2_048
	MaxAttributesBytes = 40_960 // total of all names and values of a run
	MaxMemoName        = 64
	MaxMemoEntry       = 10_240
	MaxMemo            = 65_536
)

var (
	label       = regexp.MustCompile(`^[A-Za-z0-9_.:-]+$`)
	wholeNumber = regexp.MustCompile(`^-?[0-9]+$`)
)

// IsLabel reports whether name is valid for a memo entry or search attribute and has at most longest bytes.
func IsLabel(name string, longest int) bool {
	return len(name) <= longest && label.MatchString(name) && !wholeNumber.MatchString(name)
}

// CheckCommand rejects a command that is invalid in any run: a required member is missing, a member is outside the
// limits in its tag, a text contains a NUL character or is not UTF-8, or two members exclude each other. Apps check all
// commands of a task before they record one; Go workflows check each call. Members that the command type does not read
// are not checked. at returns the path of a member.
func CheckCommand(c *Command, at func(member string) string) error {
	if err := checkMembers(c, at); err != nil {
		return err
	}
	switch c.Type {
	case StartSession:
		return checkSession(c, nil, at)
	case ScheduleActivity:
		return checkActivity(c, at)
	case StartChildWorkflow:
		return checkChild(c, at)
	case RecordLocalActivity:
		return checkRetry(c.RetryPolicy, at)
	default:
		return nil
	}
}

func checkSession(c *Command, reacquire *bool, at func(string) string) error {
	if err := checkDefinition(c.SessionDefinition, at); err != nil || c.WorkerSession == nil {
		return err
	}
	return CheckOptions(c.WorkerSession, reacquire, func(f string) string { return at("worker_session." + f) })
}

// checkDefinition rejects an invalid session_definition; nil is valid.
func checkDefinition(d *SessionDefinition, at func(string) string) error {
	switch {
	case d == nil:
		return nil
	case strings.TrimSpace(d.Name) == "":
		return Invalid(at("session_definition.name"), "must be 1 to 200 bytes and not only white space")
	}
	return CheckLimitsAt(d, func(f string) string { return at("session_definition." + f) })
}

func checkActivity(c *Command, at func(string) string) error {
	if c.Borrow != nil || c.ActivityType == BorrowActivity {
		if err := checkBorrow(c, at); err != nil {
			return err
		}
	}
	if o := c.WorkerSession; o != nil {
		if err := CheckSessionID(o.SessionID, at("worker_session.session_id")); err != nil {
			return err
		}
		if err := checkSession(c, o.Reacquire, at); err != nil {
			return err
		}
	} else if d := c.SessionDefinition; d != nil {
		if c.SessionID == "" {
			return Invalid(at("session_definition"), "requires session_id or worker_session")
		}
		if err := checkDefinition(d, at); err != nil {
			return err
		}
	} else if c.SessionID == "" && c.Affinity != "" {
		return Invalid(at("affinity"), "requires session_id or worker_session")
	} else if c.SessionID == "" && c.FailFast {
		return Invalid(at("fail_fast"), "requires session_id or worker_session")
	}
	if err := CheckAffinity(c.Affinity, c.FallbackAfter, nil, at); err != nil {
		return err
	}
	if err := checkRetry(c.RetryPolicy, at); err != nil {
		return err
	}
	if c.SessionID != "" && CheckSessionID(c.SessionID, "") != nil { // at allocates, so it is called only for an error
		return CheckSessionID(c.SessionID, at("session_id"))
	}
	if c.FairnessKey == "" {
		return nil
	}
	return CheckFairness(c.FairnessKey, at("fairness_key"))
}

func checkChild(c *Command, at func(string) string) error {
	if c.WorkflowID != "" {
		if err := CheckWorkflowID(c.WorkflowID, at("workflow_id")); err != nil {
			return err
		}
	}
	for _, p := range []struct{ member, value string }{
		{"reuse_policy", c.ReusePolicy}, {"conflict_policy", c.ConflictPolicy},
	} {
		if p.value != "" && c.WorkflowID == "" {
			return Invalid(at(p.member), "requires workflow_id")
		}
	}
	if c.ExecutionTimeout > 0 && c.RunTimeout > c.ExecutionTimeout {
		return Invalid(at("run_timeout_seconds"), "must not be longer than execution_timeout_seconds")
	}
	return checkRetry(c.RetryPolicy, at)
}

func checkRetry(p *retry.Policy, at func(string) string) error {
	if p == nil {
		return nil
	}
	var wrong *retry.FieldError
	if errors.As(p.Validate(at("retry_policy")), &wrong) {
		return Invalid(wrong.Field, "%s", wrong.Reason)
	}
	for i, name := range p.NonRetryableErrorTypes {
		if reason := badText(name); reason != "" {
			return Invalid(fmt.Sprintf("%s.non_retryable_error_types.%d", at("retry_policy"), i), "%s", reason)
		}
	}
	return nil
}

// CheckOptions rejects invalid options of a session; at returns the path of a member.
func CheckOptions(o *SessionOptions, reacquire *bool, at func(string) string) error {
	if err := CheckLimitsAt(o, at); err != nil {
		return err
	}
	for i, r := range o.Requirements {
		if strings.TrimSpace(r) == "" {
			return Invalid(at(fmt.Sprintf("requirements.%d", i)), "must not be blank")
		}
	}
	if err := CheckResources(o.Resources, "resources", true, at); err != nil {
		return err
	}
	return CheckAffinity(o.Affinity, o.FallbackAfter, reacquire, at)
}

// CheckSessionID rejects a session ID that is empty or blank; field is its path.
func CheckSessionID(id, field string) error {
	if strings.TrimSpace(id) == "" {
		return Invalid(field, "must be 1 to 255 bytes and not only white space")
	}
	return nil
}

// CheckAffinity rejects affinity members that exclude each other; at returns the path of a member.
func CheckAffinity(affinity string, after int64, reacquire *bool, at func(string) string) error {
	switch {
	case after > 0 && affinity != AffinitySoft:
		return Invalid(at("fallback_after_seconds"), "requires affinity soft")
	case affinity == AffinitySoft && reacquire != nil && !*reacquire:
		return Invalid(at("affinity"), "a session that may not be acquired again cannot fall back to another worker")
	}
	return nil
}

var fairnessKey = regexp.MustCompile(`^[A-Za-z0-9._:-]+$`) // at most 64 characters

// CheckFairness rejects an invalid fairness key; field is its path.
func CheckFairness(key, field string) error {
	if key != "" && (len(key) > 64 || !fairnessKey.MatchString(key)) {
		return Invalid(field, "must be 1 to 64 of letters, digits and . _ : -")
	}
	return nil
}

// derivedID matches the derived workflow IDs of children whose command names no ID: PARENT_RUN_ID-SEQUENCE.
var derivedID = regexp.MustCompile(`^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}-\+?0*[1-9][0-9]{0,18}$`)

// CheckWorkflowID rejects text that is not a valid workflow ID, and IDs that derivedID matches; field is its path.
func CheckWorkflowID(id, field string) error {
	if strings.ContainsFunc(id, unicode.IsControl) {
		return CheckName(field, id) // the error names the character
	}
	if !IsWorkflowID(id) {
		return Invalid(
			field, "must be 1 to %d bytes of text without control characters, and not . .. or /", MaxWorkflowID,
		)
	}
	if derivedID.MatchString(id) {
		return Invalid(field, "has the form of the IDs of child workflows; choose another ID")
	}
	return nil
}
