package storetest

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// OthersDue is how many activities of another namespace are overdue, all of them before the one of ours.
const OthersDue = 2_000

// TaskColumns names what MakeTask gives, in the table tasks.
var TaskColumns = []string{
	"run_id", "seq", "namespace", "queue", "kind", "state", "priority", "due_at", "body",
}

// MakeTask is an overdue activity: that with number OthersDue is ours, those before it are of another namespace.
func MakeTask(n int) []any {
	namespace := "others"
	if n == OthersDue {
		namespace = Namespace
	}
	return []any{MakeRun(n).ID, 1, namespace, "q", "activity", "leased", 5, first + int64(n), "{}"}
}

// Numbers are what operators are shown of many runs: exact, and of one namespace.
func Numbers(t *testing.T, s store.Store) {
	err := s.View(t.Context(), func(r store.Reader) error {
		counts, err := r.RunCounts(t.Context(), Namespace)
		all := 0
		for _, n := range counts {
			all += n
		}
		if err != nil || all != ManyRuns || counts[protocol.RunRunning] != 500 {
			t.Errorf("runs are %v, %v", counts, err)
		}
		if counts, err = r.RunCounts(t.Context(), "strangers"); err != nil || len(counts) > 0 {
			t.Errorf("runs of a namespace without any are %v, %v", counts, err)
		}
		due, err := r.DueActivities(t.Context(), Namespace, time.UnixMicro(first+OthersDue), 100)
		if err != nil || len(due) != 1 || due[0].Run != MakeRun(OthersDue).ID || due[0].Seq != 1 {
			t.Errorf("behind %d of another namespace is due %v, %v", OthersDue, due, err)
		}
		if due, err = r.DueActivities(t.Context(), Namespace, time.UnixMicro(first+OthersDue-1), 100); len(due) > 0 {
			t.Errorf("before its time is due %v, %v", due, err)
		}
		if due, err = r.DueActivities(t.Context(), "others", time.UnixMicro(first+5), 3); err != nil || len(due) != 3 {
			t.Errorf("three of six are %v, %v", due, err)
		}
		bad, err := r.Quarantined(t.Context(), Namespace, 10_000, 100)
		if err != nil || len(bad) != 1 || bad[0].ID != MakeRun(ManyRuns-100).ID {
			t.Errorf("quarantined are %v, %v", bad, err)
		}
		if bad, err = r.Quarantined(t.Context(), Namespace, 50, 100); err != nil || len(bad) > 0 {
			t.Errorf("among the newest fifty are quarantined %v, %v", bad, err)
		}
		stats, err := r.Queues(t.Context(), Namespace)
		if err != nil || len(stats) != 1 || stats[0].Leased != 1 || stats[0].Expired != 1 {
			t.Errorf("queues are %+v, %v", stats, err)
		}
		if stats, err = r.Queues(t.Context(), ""); err != nil || len(stats) != 2 {
			t.Errorf("queues of all are %+v, %v", stats, err)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// MostRead is the most rows that one step of a read for operators goes through, beside ManyRuns runs of one namespace:
// in that namespace, or in one without any.
func MostRead(name, namespace string) int {
	switch {
	case name == "queues", name == "due activities":
		return OthersDue + 1 // open tasks, of all namespaces
	case namespace != Namespace:
		return 1
	case name == "runs":
		return ManyRuns
	case name == "quarantined":
		return 600 // open runs
	default:
		return 1
	}
}
