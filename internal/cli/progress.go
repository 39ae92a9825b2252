package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
)

// progress formats the last progress of an activity: as text if it has the form of activity.Progress, otherwise as
// JSON.
func progress(raw json.RawMessage) string {
	if jsonText(raw) == "" {
		return ""
	}
	var v struct {
		Message *string  `json:"message"`
		Current *float64 `json:"current"`
		Total   *float64 `json:"total"`
		Unit    string   `json:"unit"`
	}
	if json.Unmarshal(raw, &v) != nil || v.Message == nil && v.Current == nil {
		var plain bytes.Buffer
		if json.Compact(&plain, raw) != nil {
			return inOneLine(string(raw))
		}
		return inOneLine(strings.Trim(plain.String(), `"`))
	}
	var words []string
	if v.Message != nil {
		words = append(words, *v.Message)
	}
	if v.Current != nil {
		far := fmt.Sprint(*v.Current)
		if v.Total != nil && *v.Total > 0 {
			far += fmt.Sprintf(" of %v", *v.Total)
		}
		words = append(words, strings.TrimSpace(far+" "+v.Unit))
	}
	return inOneLine(strings.Join(words, ", "))
}

// durationBetween returns the duration from one time to another; empty if one of them is unknown.
func durationBetween(from, to history.Time) string {
	if from.IsZero() || to.IsZero() {
		return ""
	}
	return to.Sub(from.Time).Round(time.Millisecond).String()
}

// lastHeartbeat returns the time of a heartbeat and its progress; empty if there was no heartbeat.
func lastHeartbeat(at history.Time, details json.RawMessage) string {
	return strings.TrimSpace(stamp(at) + " " + progress(details))
}
