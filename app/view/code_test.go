package view

import (
	"fmt"
	"testing"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Two workers are reported to have different code only for a type whose tasks either of them may lease.
func TestDifferentCodeIsReportedForWorkersOfOneQueue(t *testing.T) {
	worker := func(id, release, queue, version string) protocol.WorkerView {
		return protocol.WorkerView{
			WorkerID: id, Namespace: "default", Release: release, Status: protocol.WorkerActive, TaskQueues: []string{queue},
			Versions: map[string]string{"greet": version, "same": "s"},
		}
	}
	views := []protocol.WorkerView{
		worker("a", "1", "main", "v1"), worker("b", "1", "main", "v2"), worker("c", "1", "main", "v1"),
		worker("of another queue", "1", "gpu", "v3"), worker("of another release", "2", "main", "v4"),
		worker("gone", "1", "main", "v5"),
	}
	views[5].Status = protocol.WorkerStale
	differences(views)
	want := map[string]string{
		"a": "[{greet b v2}]", "b": "[{greet a v1} {greet c v1}]", "c": "[{greet b v2}]",
		"of another queue": "[]", "of another release": "[]", "gone": "[]",
	}
	for _, v := range views {
		if got := fmt.Sprint(v.Differs); got != want[v.WorkerID] {
			t.Errorf("worker %s differs in %s, want %s", v.WorkerID, got, want[v.WorkerID])
		}
	}
}
