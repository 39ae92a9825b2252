package protocol

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/sojourn-run/sojourn/shared/retry"
)

// How a session is kept: AffinityHard, the default, leaves its tasks to its holder for as long as that holds it;
// AffinitySoft lets another worker acquire it once a task has waited for the holder for so long.
const (
	AffinityHard = "hard"
	AffinitySoft = "soft"
)

// The limits of memo and search attributes; sizes are of the encoded values.
const (
	MaxAttributes      = 100 // and of memo entries
	MaxAttributeName   = 128
	MaxAttributeBytes  = 2_048
	MaxAttributesBytes = 40_960 // all names and values of a run
	MaxMemoName        = 64
	MaxMemoEntry       = 10_240
	MaxMemo            = 65_536
)

var (
	label       = regexp.MustCompile(`^[A-Za-z0-9_.:-]+$`)
	wholeNumber = regexp.MustCompile(`^-?[0-9]+$`)
)

// IsLabel reports whether a text can be the name of a memo entry or search attribute of at most so many bytes.
func IsLabel(name string, longest int) bool {
	return len(name) <= longest && label.MatchString(name) && !wholeNumber.MatchString(name)
}

// CheckCommand refuses a command that is wrong by itself, whichever run it belongs to: a member that it needs is
// missing or outside of the limits in its tag, a text has a NUL character or is not UTF-8, or members exclude each
// other. Apps check every command with it before they record any, and Go workflows at each call. What the command does
// not read may hold anything. at gives the path of a member.
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
	default:
		return nil
	}
}

func checkSession(c *Command, reacquire *bool, at func(string) string) error {
	if c.WorkerSession == nil {
		return nil
	}
	return CheckOptions(c.WorkerSession, reacquire, func(f string) string { return at("worker_session." + f) })
}

func checkActivity(c *Command, at func(string) string) error {
	if o := c.WorkerSession; o != nil {
		if err := CheckSessionID(o.SessionID, at("worker_session.session_id")); err != nil {
			return err
		}
		if err := checkSession(c, o.Reacquire, at); err != nil {
			return err
		}
	} else if c.SessionID == "" && c.Affinity != "" {
		return Invalid(at("affinity"), "is for activities in a session")
	}
	if err := CheckAffinity(c.Affinity, c.FallbackAfter, nil, at); err != nil {
		return err
	}
	if err := checkRetry(c.RetryPolicy, at); err != nil {
		return err
	}
	if c.SessionID != "" && CheckSessionID(c.SessionID, "") != nil { // at allocates, so it is called for a refusal only
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

// CheckOptions refuses wrong options of a session; at gives the path of a member.
func CheckOptions(o *SessionOptions, reacquire *bool, at func(string) string) error {
	if err := CheckLimitsAt(o, at); err != nil {
		return err
	}
	for i, r := range o.Requirements {
		if strings.TrimSpace(r) == "" {
			return Invalid(at(fmt.Sprintf("requirements.%d", i)), "must not be blank")
		}
	}
	return CheckAffinity(o.Affinity, o.FallbackAfter, reacquire, at)
}

// CheckSessionID refuses the ID of a session that is empty or blank; field is its path.
func CheckSessionID(id, field string) error {
	if strings.TrimSpace(id) == "" {
		return Invalid(field, "must be 1 to 255 bytes, and not only blanks")
	}
	return nil
}

// CheckAffinity refuses members of an affinity that exclude each other; at gives the path of a member.
func CheckAffinity(affinity string, after int64, reacquire *bool, at func(string) string) error {
	switch {
	case after > 0 && affinity != AffinitySoft:
		return Invalid(at("fallback_after_seconds"), "is for sessions of soft affinity")
	case affinity == AffinitySoft && reacquire != nil && !*reacquire:
		return Invalid(at("affinity"), "a session that may not be acquired again cannot fall back to another worker")
	}
	return nil
}

var fairnessKey = regexp.MustCompile(`^[A-Za-z0-9._:-]+$`) // up to 64

// CheckFairness refuses text that is no key of fairness; field is its path.
func CheckFairness(key, field string) error {
	if key != "" && (len(key) > 64 || !fairnessKey.MatchString(key)) {
		return Invalid(field, "must be 1 to 64 of letters, digits and . _ : -")
	}
	return nil
}

// derivedID is the form of the ID of a child whose command chose none: the run of its parent, and a command sequence.
var derivedID = regexp.MustCompile(`^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}-\+?0*[1-9][0-9]{0,18}$`)

// CheckWorkflowID refuses text that is no ID of a workflow, and IDs of the form of children whose command chose none;
// field is its path.
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
		return Invalid(field, "ids of this form belong to child workflows")
	}
	return nil
}
