package protocol

import (
	"reflect"
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
	"github.com/sojourn-run/sojourn/shared/history"
)

func TestGuideStatesTheRequestLimits(t *testing.T) {
	docnumbers.In(t, "guide/activities.md", "| of an attempt | {}, where each line counts {} bytes more than its text;", MaxLogBytes,
		logLine)
	docnumbers.In(t, "guide/activities.md", "| of a line | {} |", MaxLogText)
	docnumbers.In(t, "guide/http-api.md", "| `X-Durable-Workflow-Control-Plane-Version: {}` |", ControlVersion)
	docnumbers.In(t, "guide/http-api.md", "| `X-Durable-Workflow-Protocol-Version: {}` |", WorkerVersion)
	docnumbers.In(t, "guide/http-api.md", "A workflow ID is any text of up to {} bytes", MaxWorkflowID)

	docnumbers.In(t, "guide/headers.md", "A request or command may have {} headers, of {} KiB together.", history.MaxHeaders,
		history.MaxHeaderBytes>>10)

	docnumbers.In(t, "guide/encryption.md", "those of more than {} only with `--full`", PreviewBytes)

	tag := func(member, name string) string {
		f, _ := reflect.TypeFor[StartRequest]().FieldByName(member)
		return f.Tag.Get(name)
	}
	docnumbers.In(t, "guide/queues.md", "Tasks go by **priority** first, {} to {}, 0 first,", tag("Priority", "minimum"),
		tag("Priority", "maximum"))
	if pattern := tag("FairnessKey", "pattern"); pattern != "^[A-Za-z0-9._:-]{1,64}$" {
		t.Errorf("a fairness key may be %s", pattern)
	}
	docnumbers.In(t, "guide/queues.md", "a start's `fairness_key` (1 to 64 of letters, digits and `. _ : -`, any case)")
	days, _ := reflect.TypeFor[NamespaceRequest]().FieldByName("RetentionDays")
	docnumbers.In(t, "guide/runs.md", "by default, {} to {}) and then removed", days.Tag.Get("minimum"),
		days.Tag.Get("maximum"))
}
