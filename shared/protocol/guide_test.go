package protocol

import (
	"reflect"
	"testing"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysTheNumbersOfRequests(t *testing.T) {
	stated.In(t, "guide/activities.md", "| of an attempt | {}, where each line counts {} bytes more than its text;", MaxLogBytes,
		logLine)
	stated.In(t, "guide/activities.md", "| of a line | {} |", MaxLogText)
	stated.In(t, "guide/http-api.md", "| `X-Durable-Workflow-Control-Plane-Version: {}` |", ControlVersion)
	stated.In(t, "guide/http-api.md", "| `X-Durable-Workflow-Protocol-Version: {}` |", WorkerVersion)
	stated.In(t, "guide/http-api.md", "A workflow ID is any text of up to {} bytes", MaxWorkflowID)

	tag := func(member, name string) string {
		f, _ := reflect.TypeFor[StartRequest]().FieldByName(member)
		return f.Tag.Get(name)
	}
	stated.In(t, "guide/queues.md", "Tasks go by **priority** first, {} to {}, 0 first,", tag("Priority", "minimum"),
		tag("Priority", "maximum"))
	if pattern := tag("FairnessKey", "pattern"); pattern != "^[A-Za-z0-9._:-]{1,64}$" {
		t.Errorf("a fairness key may be %s", pattern)
	}
	stated.In(t, "guide/queues.md", "a start's `fairness_key` (1 to 64 of letters, digits and `. _ : -`, any case)")
	days, _ := reflect.TypeFor[NamespaceRequest]().FieldByName("RetentionDays")
	stated.In(t, "guide/runs.md", "by default, {} to {}) and then removed", days.Tag.Get("minimum"),
		days.Tag.Get("maximum"))
}
