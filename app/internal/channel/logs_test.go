package channel_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Log lines are accepted from running attempts only, not from ended attempts or of unknown jobs.
func TestLinesAreTakenOfRunningAttempts(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	s, w := scheduler(t, a), join(t, a, "w", "test")
	schedule(t, a, s, 1)
	j := w.job(nil)
	lines := func(id string) map[string]any {
		return map[string]any{
			"jobId": id, "token": j.Token, "lines": []protocol.LogLine{{Level: "info", Text: "half way"}},
		}
	}
	call[rpc.None](w, protocol.MethodUploadLogs, lines(j.ID))
	w.refusal("task_not_found", protocol.MethodUploadLogs, lines("01JUNKJUNKJUNKJUNKJUNKJUNK-7"))
	w.ok(j, map[string]any{})
	w.refusal("stale_attempt", protocol.MethodUploadLogs, lines(j.ID))
}
