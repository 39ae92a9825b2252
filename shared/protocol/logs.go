package protocol

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sojourn-run/sojourn/shared/history"
)

// Limits of an activity's log. Lines above the limit are dropped and counted.
const (
	MaxLogBytes = 256 << 10 // of one attempt, by LogSize
	MaxLogText  = 8 << 10   // bytes of one line; longer lines are truncated
	MaxLogPart  = 1 << 52   // maximum number of a chunk; JSON numbers up to it are exact
	logLine     = 64        // bytes that a line counts in addition to its text: empty lines must be limited too
)

// LogLine is one log record of an activity's code, or one line that it printed.
type LogLine struct {
	At     history.Time `json:"at,omitzero"`      // by the worker's clock
	Level  string       `json:"level,omitempty"`  // debug, info, warn, error
	Source string       `json:"source,omitempty"` // stdout or stderr if printed; log if logged
	Text   string       `json:"text"`
	// LeftOut is the number of lines dropped at this place; such an entry has no text.
	LeftOut int64 `json:"left_out,omitempty"`
}

// LogChunk is a batch of lines of one attempt. Chunks are numbered from 1; a repeated number has no effect. A chunk
// without a number gets the next one.
type LogChunk struct {
	Part  int64     `json:"part,omitempty" minimum:"0"`
	Lines []LogLine `json:"lines"`
}

// AttemptLogs contains log lines of a running attempt.
type AttemptLogs struct {
	// set by the transport from the caller's token; tasks of other namespaces are not found
	Namespace string `json:"namespace,omitempty"`
	TaskID    string `json:"task_id" required:"true"`
	Owner     string `json:"lease_owner" required:"true"`
	AttemptID string `json:"activity_attempt_id" required:"true"`
	LogChunk
	Malformed error `json:"-"` // why the chunk could not be decoded; it alone is refused
}

// UnreadableLogs returns a chunk that could not be decoded, with the members that identify its attempt.
func UnreadableLogs(raw json.RawMessage, why error) AttemptLogs {
	item := AttemptLogs{Malformed: why}
	ReadMembers(raw, map[string]any{
		"namespace": &item.Namespace, "task_id": &item.TaskID, "lease_owner": &item.Owner,
		"activity_attempt_id": &item.AttemptID,
	})
	return item
}

// Check rejects a chunk that does not identify its attempt, before its lease is checked.
func (a *AttemptLogs) Check() error {
	if a.Malformed != nil {
		return a.Malformed
	}
	for _, m := range []struct{ name, value string }{
		{"task_id", a.TaskID}, {"lease_owner", a.Owner}, {"activity_attempt_id", a.AttemptID},
	} {
		if m.value == "" {
			return Invalid(m.name, "is required")
		}
	}
	if a.Part < 0 || a.Part > MaxLogPart {
		return Invalid("part", "must be between 1 and %d, or left out", int64(MaxLogPart))
	}
	return nil
}

// LogsRequest uploads log lines of many attempts.
type LogsRequest struct {
	Items []AttemptLogs `json:"items"`
}

// LogReceipt reports whether a chunk was recorded, or why not.
type LogReceipt struct {
	TaskID    string `json:"task_id"`
	AttemptID string `json:"activity_attempt_id"`
	Recorded  bool   `json:"recorded"`         // false without a reason: the attempt's log is full
	Reason    Reason `json:"reason,omitempty"` // reason why the chunk was rejected
	Message   string `json:"message,omitempty"`
	Err       error  `json:"-"` // the refusal itself
}

// LogsResponse has a receipt for each item, in their order.
type LogsResponse struct {
	Items []LogReceipt `json:"items"`
}

// LogSize returns the bytes that lines count against MaxLogBytes.
func LogSize(lines []LogLine) (n int) {
	for i := range lines {
		n += len(lines[i].Text) + logLine
	}
	return n
}

// Fit returns the chunk with valid levels and sources, truncated texts, and at most room bytes: lines that do not fit
// are replaced by their number.
func (c LogChunk) Fit(room int) LogChunk {
	kept := LogChunk{Part: c.Part}
	for i, l := range c.Lines {
		l.Text = cut(strings.Map(shown, strings.ToValidUTF8(l.Text, "\uFFFD")))
		if !slices.Contains([]string{"debug", "info", "warn", "error"}, l.Level) {
			l.Level = "info"
		}
		if !slices.Contains([]string{"stdout", "stderr"}, l.Source) {
			l.Source = "log"
		}
		if y := l.At.Year(); y < 1 || y > 9999 {
			l.At = history.Time{}
		}
		if l.LeftOut > 0 {
			l = LogLine{LeftOut: l.LeftOut}
		} else {
			l.LeftOut = 0
		}
		if room -= len(l.Text) + logLine; room < 0 {
			kept.Lines = append(kept.Lines, LogLine{LeftOut: lineCount(c.Lines[i:])})
			break
		}
		kept.Lines = append(kept.Lines, l)
	}
	return kept
}

// lineCount returns the number of lines, including the dropped lines that they count.
func lineCount(lines []LogLine) (n int64) {
	for i := range lines {
		n += max(1, lines[i].LeftOut)
	}
	return n
}

// shown replaces control characters, which a terminal would execute.
func shown(r rune) rune {
	if unicode.IsControl(r) && r != '\t' && r != '\n' {
		return '\uFFFD'
	}
	return r
}

func cut(text string) string {
	if len(text) <= MaxLogText {
		return text
	}
	text = text[:MaxLogText]
	for len(text) > 0 && !utf8.ValidString(text[len(text)-min(len(text), utf8.UTFMax):]) {
		text = text[:len(text)-1]
	}
	return text
}

// LogsQuery requests log lines of an activity.
type LogsQuery struct {
	Namespace string
	TaskID    string
	Delivery  int64 // last number of the attempt's ID; 0: the latest attempt
	After     int64 // Next of a previous response: only newer lines
}

// ActivityLogs has the recorded lines of one attempt of an activity.
type ActivityLogs struct {
	TaskID     string `json:"task_id"`
	RunID      string `json:"run_id"`
	WorkflowID string `json:"workflow_id"`
	// AttemptID is the attempt with these lines; absent if there is none yet.
	AttemptID string       `json:"activity_attempt_id,omitempty"`
	Running   bool         `json:"running"`  // the attempt runs and may log more
	Open      bool         `json:"open"`     // the activity is open and may have another attempt
	Attempts  []LogAttempt `json:"attempts"` // attempts with lines, and the running one, oldest first
	Lines     []LogLine    `json:"lines"`
	Next      int64        `json:"next"` // value of after for the following lines
	More      bool         `json:"more"` // more lines exist
}

// LogAttempt is an attempt of an activity with the size of its log.
type LogAttempt struct {
	AttemptID string `json:"activity_attempt_id"`
	Number    int64  `json:"attempt"` // number of the delivery: the last part of the attempt's ID
	Bytes     int64  `json:"bytes"`
}
