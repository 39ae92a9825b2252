package storetest

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// OthersDue is the number of overdue activities of another namespace, all of which were due before those of the tested
// namespace. ManyTasks is the total number of tasks: these, and one waiting task per run.
const (
	OthersDue = 2_000
	ManyTasks = OthersDue + 1 + ManyRuns
)

// TaskColumns are the columns of the values that MakeTask returns, in the table tasks.
var TaskColumns = []string{
	"run_id", "seq", "namespace", "queue", "kind", "state", "priority", "ready_at", "due_at", "owner", "body",
}

// documentWithArguments is the document of a task with arguments, as most tasks have them. A query that needs no
// arguments must not read it.
var documentWithArguments = `{"type":"charge","arguments":"` + strings.Repeat("a", 600) + `"}`

// MakeTask returns an overdue activity: lower numbers than OthersDue belong to another namespace; OthersDue and higher
// numbers belong to the tested namespace, and the higher ones wait.
func MakeTask(n int) []any {
	if n > OthersDue {
		n -= OthersDue + 1
		return []any{
			MakeRun(n).ID, 2, Namespace, "q", "activity", "ready", 9 - n%10, first + int64(n), nil, nil,
			documentWithArguments,
		}
	}
	namespace := "others"
	if n == OthersDue {
		namespace = Namespace
	}
	return []any{MakeRun(n).ID, 1, namespace, "q", "activity", "leased", 5, nil, first + int64(n), "w", "{}"}
}

// ManySessions is the number of sessions. Most have ended, one in ten is held, and one in ten waits for a holder; half
// of the latter had a holder before.
const ManySessions = 20_000

// SessionColumns are the columns of the values that MakeSession returns, in the table sessions.
var SessionColumns = []string{
	"namespace", "session_id", "door", "status", "owner", "epoch", "lease_until", "due_at", "updated_at", "queue",
	"claimed", "terminal", "word", "body",
}

// MakeSession returns a session's row.
func MakeSession(n int) []any {
	door, status, claimed, terminal, at := "implicit", protocol.SessionClosed, 1, 1, first+int64(n)
	var owner, until any
	switch n % 20 {
	case 0, 1:
		status, owner, until, terminal = protocol.SessionActive, "w", at, 0
	case 2:
		status, terminal = protocol.SessionActive, 0
	case 3:
		door, status, claimed, terminal = "workflow", protocol.SessionActive, 0, 0
	}
	return []any{
		Namespace, fmt.Sprintf("s%05d", n), door, string(status), owner, at, until, until, at, "q", claimed, terminal, "",
		documentWithArguments,
	}
}

// Numbers checks the counts that operators see for many runs: they are exact, and of one namespace.
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
		for most, want := range map[int]map[protocol.SessionStatus]int{
			ManySessions: {protocol.SessionActive: 3_000, protocol.SessionExpired: 1_000, protocol.SessionClosed: 16_000},
			1_500:        {protocol.SessionActive: 1_500, protocol.SessionExpired: 1_000, protocol.SessionClosed: 1_500},
		} {
			sessions, err := r.SessionCountsUpTo(t.Context(), Namespace, most)
			if err != nil || !maps.Equal(sessions, want) {
				t.Errorf("sessions up to %d are %v, %v", most, sessions, err)
			}
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
		bad, err := r.Quarantined(t.Context(), Namespace, 100)
		if err != nil || len(bad) != 2 || bad[0].ID != MakeRun(ManyRuns-100).ID || bad[1].ID != MakeRun(oldestOpen).ID {
			t.Errorf("quarantined are %v, %v", bad, err)
		}
		if bad, err = r.Quarantined(t.Context(), Namespace, 1); err != nil || len(bad) != 1 {
			t.Errorf("of two quarantined one is %v, %v", bad, err)
		}
		stats, err := r.Queues(t.Context(), Namespace)
		if err != nil || len(stats) != 1 || stats[0].Leased != 1 || stats[0].Expired != 1 ||
			stats[0].Ready != ManyRuns || stats[0].OldestReady.Micros() != first {
			t.Errorf("queues are %+v, %v", stats, err)
		}
		stats, err = r.QueuesUpTo(t.Context(), Namespace, 1_000)
		if err != nil || len(stats) != 1 || stats[0].Leased != 1 || stats[0].Ready != 1_000 ||
			stats[0].OldestReady.Micros() != first {
			t.Errorf("queues up to a thousand are %+v, %v", stats, err)
		}
		if stats, err = r.QueuesUpTo(t.Context(), "strangers", 1_000); err != nil || len(stats) > 0 {
			t.Errorf("queues of a namespace without any are %+v, %v", stats, err)
		}
		if stats, err = r.Leased(t.Context(), Namespace); err != nil || len(stats) != 1 || stats[0].Leased != 1 ||
			stats[0].Ready != 0 {
			t.Errorf("leased are %+v, %v", stats, err)
		}
		if stats, err = r.Queues(t.Context(), ""); err != nil || len(stats) != 2 {
			t.Errorf("queues of all are %+v, %v", stats, err)
		}
		key := engine.QueueKey{Namespace: Namespace, Name: "q"}
		old, err := r.OldestReady(t.Context(), key, protocol.KindActivity, 2)
		if err != nil || len(old) != 2 || old[0].Run != MakeRun(0).ID || old[1].Run != MakeRun(1).ID {
			t.Errorf("ready for longest are %+v, %v", old, err)
		}
		order, err := r.QueueOrder(t.Context(), key, ManyRuns/10+1)
		if err != nil || len(order) != ManyRuns/10+1 || order[ManyRuns/10-1].Priority != 0 ||
			order[ManyRuns/10].Priority != 1 {
			t.Errorf("the order has %d tasks, %v", len(order), err)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// MostRead returns the maximum number of rows or index entries that one step of a read for operators visits, next to
// ManyRuns runs and as many waiting tasks of one namespace: in that namespace, or in an empty one.
func MostRead(name, namespace string) int {
	switch {
	case name == "due activities":
		return OthersDue + 1 // of all namespaces
	case name == "sessions up to" && namespace != Namespace:
		return ManySessions / 10 // held, of all namespaces
	case namespace != Namespace:
		return 1
	case name == "runs", name == "queues", name == "order":
		return ManyRuns
	case name == "queues up to", name == "usage": // a page
		return 1_000
	case name == "sessions up to":
		return ManySessions / 10 // some of them are held, and are read to find that many
	case name == "sessions":
		return ManySessions
	case name == "oldest ready", name == "quarantined":
		return 3
	case name == "find prefix":
		return 5 // of each kind; only sessions exist
	default:
		return 1
	}
}
