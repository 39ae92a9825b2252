package engine

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// returnable returns a run with a ready workflow task, whose completion schedules an activity.
func returnable(t *testing.T) *Run {
	t.Helper()
	d := DecideStart(Start{RunID: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Number: 1, Request: protocol.StartRequest{
		WorkflowID: "wf", WorkflowType: "flow", TaskQueue: "q", Namespace: "default",
	}}, noon)
	return d.Next
}

func decided(t *testing.T, r *Run, in Input, at time.Time) *Run {
	t.Helper()
	d, err := DecideRun(r, Environment{}, in, at)
	if err != nil {
		t.Fatalf("%T: %v", in, err)
	}
	return d.Next
}

// A task that is returned without having been started keeps the time at which it first became ready, and consecutive
// returns are counted. A delivery that was started and then lost resets both.
func TestAReturnWithoutAStartKeepsTheAge(t *testing.T) {
	w := Lessee{Worker: &Worker{ID: "w", Incarnation: "i", AttemptLease: 60_000_000}}
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	r := returnable(t)
	for i := 1; i <= 3; i++ {
		r = r.Leased(w, at(i))
		r = decided(t, r, ReleaseTask{Number: 1, Delivery: int64(i), Undone: true}, at(i+1))
		if got := r.Task; !got.ReadyAt.Equal(noon) || got.Returned != i || got.Attempt != 0 {
			t.Fatalf("after %d undone deliveries the workflow task is ready since %s, returned %d times, attempt %d",
				i, got.ReadyAt, got.Returned, got.Attempt)
		}
	}
	r = r.Leased(w, at(5))
	r = decided(t, r, ReleaseTask{Number: 1, Delivery: 4, Owner: "w", Why: "history_unavailable"}, at(6))
	if got := r.Task; !got.ReadyAt.Equal(noon) || got.Returned != 4 {
		t.Fatalf("handed back, the workflow task is ready since %s after %d returns", got.ReadyAt, got.Returned)
	}
	r = r.Leased(w, at(7))
	r = decided(t, r, Lose{Tasks: []LostTask{{Number: 1, Delivery: 5}}, Process: "w/", Leased: 2, Why: "gone"}, at(8))
	if got := r.Task; !got.ReadyAt.Equal(at(8)) || got.Returned != 0 {
		t.Fatalf("lost with its worker, the workflow task is ready since %s after %d returns", got.ReadyAt, got.Returned)
	}

	r = r.Leased(w, at(9))
	r = decided(t, r, CompleteTask{
		Number: 1, Holder: Holder{Owner: "w", Delivery: 6},
		Commands: []protocol.Command{{Type: protocol.ScheduleActivity, ActivityType: "a"}},
	}, at(10))
	lease := func(s int) {
		a, _ := r.Activities.Get(1)
		a, _, _ = LeaseActivity(a, nil, w, nil, at(s))
		r = r.Fork()
		r.Activities.Put(1, a)
	}
	want := func(what string, since time.Time, returned int) {
		t.Helper()
		if a, _ := r.Activities.Get(1); !a.ReadyAt.Equal(since) || a.Returned != returned || a.State != Ready {
			t.Fatalf("%s, the activity is %s since %s after %d returns; want since %s after %d",
				what, a.State, a.ReadyAt, a.Returned, since, returned)
		}
	}
	for i := 1; i <= 3; i++ {
		lease(10 + i)
		r = decided(t, r, ReleaseActivity{Seq: 1, Delivery: int64(i), Undone: true}, at(11+i))
		want("undone", at(10), i)
	}
	lease(20)
	r = decided(t, r, ReleaseActivity{Seq: 1, Delivery: 4, Owner: "w", Why: ReturnedUnstarted}, at(21))
	want("returned in a drain before it began", at(10), 4)
	lease(22)
	r = decided(t, r, ReleaseActivity{Seq: 1, Delivery: 5, Owner: "w", Why: "no such file"}, at(23))
	want("handed back", at(10), 5)
	lease(24)
	r = decided(t, r, ReleaseActivity{Seq: 1, Delivery: 6, Owner: "w", Why: ReturnedDraining}, at(25))
	want("interrupted by a drain", at(25), 0)
	lease(26)
	r = decided(t, r, Lose{Tasks: []LostTask{{Seq: 1, Delivery: 7}}, Process: "w/", Leased: 2, Why: "gone"}, at(27))
	want("lost with its worker", at(27), 0)
	if a, _ := r.Activities.Get(1); a.Losses != 1 || a.Returns != 0 {
		t.Errorf("%d losses, %d returns towards poison", a.Losses, a.Returns)
	}
}

// The delivery size of a task is the size of what the worker receives, with and without a sticky cache.
func TestDeliverySizesCountWhatIsSent(t *testing.T) {
	h := Head{Bytes: 300_000, SeenBytes: 200_000, ArgumentBytes: 50_000, Task: &Task{}}
	for what, c := range map[string]struct{ got, want int64 }{
		"kept":     {h.DeliveryBytes(true), TaskBytes + 100_000},
		"not kept": {h.DeliveryBytes(false), TaskBytes + 350_000},
		"a long history is a page": {
			(&Head{Bytes: 100 << 20}).DeliveryBytes(false), TaskBytes + MaxPageBytes,
		},
		"a signal is next to the history": {
			(&Head{
				Bytes: 300_000, SeenBytes: 200_000, Task: &Task{Cause: Cause{Kind: "workflow_signal"}},
			}).DeliveryBytes(true),
			TaskBytes + 200_000,
		},
		"activity":       {(&Activity{Bytes: 40_000}).DeliveryBytes(), TaskBytes + 80_000},
		"large activity": {(&Activity{Bytes: 2 << 20}).DeliveryBytes(), TaskBytes + 2<<20 + MaxUnseenBytes},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d bytes, want %d", what, c.got, c.want)
		}
	}
}
