package protocol

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
)

// NameRules is the version of the rules for new IDs and names, as the first event of a run records it. Runs that an
// earlier build started have no version: their code may still use names that the rules do not allow.
const NameRules = 1

// CheckName rejects a new name of a session, queue, type, build or worker that people cannot read or type: one with
// control characters or invisible characters, or of white space only. Joiners (U+200C, U+200D) occur in ordinary text
// and are allowed. field is the path of the member. The empty name is valid; limits of the member check the length.
func CheckName(field, name string) error { return checkCharacters(field, name, "") }

// CheckNewID is CheckName for the ID of a new workflow or schedule. It also rejects # and ?: a client that does not
// escape path segments would send only the part before them, and so address another workflow.
func CheckNewID(field, id string) error { return checkCharacters(field, id, "#?") }

func checkCharacters(field, name, more string) error {
	position := 0
	for _, r := range name {
		position++
		if ' ' <= r && r <= '~' && !strings.ContainsRune(more, r) {
			continue // fast path for printable ASCII
		}
		if unicode.IsControl(r) || unreadable[r] != "" || strings.ContainsRune(more, r) {
			return Invalid(field, "contains %s at character %d; remove it", character(r), position)
		}
	}
	if name != "" && strings.TrimSpace(name) == "" {
		return Invalid(field, "consists of white space only: %s at character 1", character([]rune(name)[0]))
	}
	return nil
}

// CheckCommandNames applies CheckName and CheckNewID to the new names in a command. It leaves out the session, since
// only the app knows which sessions exist. queue is the task queue of the run; at returns the path of a member.
func CheckCommandNames(c *Command, queue string, at func(string) string) error {
	if c.Queue != "" && c.Queue != queue {
		if err := CheckName(at("queue"), c.Queue); err != nil {
			return err
		}
	}
	switch c.Type {
	case ScheduleActivity:
		return CheckName(at("activity_type"), c.ActivityType)
	case StartChildWorkflow:
		return cmp.Or(
			CheckName(at("workflow_type"), c.WorkflowType), CheckNewID(at("workflow_id"), c.WorkflowID),
		)
	case ContinueAsNew:
		return CheckName(at("workflow_type"), c.WorkflowType)
	default:
		return nil
	}
}

// unreadable describes the characters, besides control characters, that new names must not contain.
var unreadable = map[rune]string{
	'\u200b': "zero width space", '\u2028': "line separator", '\u2029': "paragraph separator", '\u2060': "word joiner",
	'\ufeff': "byte order mark",
	'\u202a': bidi, '\u202b': bidi, '\u202c': bidi, '\u202d': bidi, '\u202e': bidi,
	'\u2066': bidi, '\u2067': bidi, '\u2068': bidi, '\u2069': bidi,
}

const bidi = "bidirectional control"

// character describes a character in an error: an invisible one by its code point.
func character(r rune) string {
	name := unreadable[r]
	switch {
	case unicode.IsControl(r):
		name = "control character"
	case name == "" && unicode.IsSpace(r):
		name = "white space"
	case name == "":
		return string(r)
	}
	return fmt.Sprintf("%U (%s)", r, name)
}
