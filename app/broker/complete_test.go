package broker

import (
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker that polls with outcomes reserves a slot for each task that the outcomes may create. A thousand activities
// of one run create one workflow task, so they must reserve only one slot; otherwise the worker would get no other
// tasks.
func TestHowManyTasksOutcomesMake(t *testing.T) {
	one, other := strings.Repeat("1", 26), strings.Repeat("2", 26)
	item := func(kind protocol.TaskKind, id string) protocol.CompleteItem {
		return protocol.CompleteItem{Kind: kind, TaskID: id}
	}
	turn := item(protocol.KindActivity, engine.StepID(other, 9))
	turn.Eager = &protocol.EagerTask{}
	got := tasksMadeBy([]protocol.CompleteItem{
		item(protocol.KindActivity, engine.StepID(one, 1)),
		item(protocol.KindActivity, engine.StepID(one, 2)),
		item(protocol.KindActivity, engine.StepID(one, 3)),
		item(protocol.KindWorkflow, engine.TaskID(other, 1)),
		item(protocol.KindQuery, "question"),
		turn,
	})
	want := []dispatch.Own{{Run: one, Kind: protocol.KindWorkflow}, {Run: other, Kind: protocol.KindActivity}}
	if !slices.Equal(got, want) {
		t.Errorf("they make %v, want %v", got, want)
	}
}
