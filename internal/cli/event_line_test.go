package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
)

// A line of a history contains the code version of an attempt, shortened to the length that distinguishes versions.
func TestALineOfAHistoryNamesTheCode(t *testing.T) {
	for _, c := range []struct{ event, want, not string }{
		{
			`{"sequence": 3, "event_type": "ActivityCompleted", "timestamp": "2026-01-02T03:04:05Z",
			  "payload": {"activity_type": "index", "worker_id": "w1", "code_version": "0123456789abcdef"}}`,
			"ActivityCompleted        index by w1, version 01234567", "89abcdef",
		},
		{
			`{"sequence": 3, "event_type": "ActivityCompleted", "timestamp": "2026-01-02T03:04:05Z",
			  "payload": {"activity_type": "index", "worker_id": "w1", "code_version": "v2"}}`,
			"index by w1, version v2", "",
		},
		{
			`{"sequence": 3, "event_type": "ActivityCompleted", "timestamp": "2026-01-02T03:04:05Z",
			  "payload": {"activity_type": "charge", "worker_id": "w1"}}`,
			"ActivityCompleted        charge", "version",
		},
		{
			`{"sequence": 3, "event_type": "ActivityFailed", "timestamp": "2026-01-02T03:04:05Z",
			  "payload": {"activity_type": "charge", "worker_id": "w1", "code_version": "v2", "message": "'card'",
			  "exception_type": "KeyError", "stack_trace": "  File \"/job/pay.py\", line 7, in main\n"}}`,
			"ActivityFailed           charge KeyError: 'card' (/job/pay.py:7) by w1, version v2", "File",
		},
		{
			`{"sequence": 3, "event_type": "WorkflowFailed", "timestamp": "2026-01-02T03:04:05Z",
			  "payload": {"message": "no credit", "exception_type": "Error"}}`,
			"WorkflowFailed           no credit", "Error",
		},
		{
			`{"sequence": 3, "event_type": "TimerScheduled", "timestamp": "2026-01-02T03:04:05Z",
			  "payload": {"sequence": 2, "delay_seconds": 60, "fire_at": "2026-01-02T03:05:05Z"}}`,
			"TimerScheduled           until " + stamp(history.At(time.Date(2026, 1, 2, 3, 5, 5, 0, time.UTC))), "",
		},
	} {
		line, _, err := eventLine([]byte(c.event))
		if err != nil || !strings.Contains(line, c.want) || c.not != "" && strings.Contains(line, c.not) {
			t.Errorf("%q (%v), want %q in it and not %q", line, err, c.want, c.not)
		}
	}
	if _, _, err := eventLine([]byte(`[]`)); err == nil {
		t.Error("what is no event has a line")
	}
}
