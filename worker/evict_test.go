package worker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

// When the memory of the executors is scarce, the worker first releases an idle session at the app and then ends its
// executor. The next activity of that session runs under a higher epoch and finds no state, which its recovery policy
// rebuilds as after any loss. The worker does not evict sessions that a workflow started, nor sessions with
// NoReacquire, even if they were used longer ago.
func TestAnEvictedSessionIsReleasedAndRebuilt(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
		o.Executors.Memory = 195 << 20
		// high limits: no executor may reach its own limit first
		o.Executors.Limits = map[string]worker.Limits{sandbox.RuntimeNative: {Memory: 1 << 30, Data: -1}}
	})
	view := func(id string) protocol.SessionView {
		v, err := a.View().Session(t.Context(), "", id)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	kept, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "keep", WorkflowID: "keep"})
	if err != nil {
		t.Fatal(err)
	}
	count := func(typ string) (n int) {
		for _, e := range events(t, a, kept.RunID) {
			if e.Type() == typ {
				n++
			}
		}
		return n
	}
	for late := time.Now().Add(ceiling); count("ActivityCompleted") < 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("the sessions that must not be evicted did not start")
		}
	}
	// each session takes 60 MiB and the memory of a Go process: both together exceed the limit
	for _, id := range []string{"one", "two"} {
		if got := result[int](t, run(t, a, "talk", id)); got != 60 {
			t.Fatalf("%s has %d MiB", id, got)
		}
	}
	before := view("one").Epoch
	for late := time.Now().Add(ceiling); view("one").LeaseOwner != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("the least recently used session was not evicted")
		}
	}
	if v := view("one"); v.Status != protocol.SessionExpired || v.EndedReason != "released" ||
		v.Timeline[len(v.Timeline)-1].Why != "evicted_pressure" {
		t.Errorf("the evicted session is %s, its timeline %+v", v.Status, v.Timeline)
	}
	for range 2 {
		if _, err := a.Broker().Signal(t.Context(), protocol.SignalRequest{
			Target: protocol.Target{WorkflowID: "keep"}, SignalName: "go",
		}); err != nil {
			t.Fatal(err)
		}
	}
	end(t, a, kept.RunID)
	if n := count("SessionRecovered"); n != 2 { // one recovery for the first use of each session
		t.Errorf("the state of sessions that must not be evicted was built %d times, want 2", n)
	}
	second, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "talk", Input: []byte(`["one"]`)})
	if err != nil {
		t.Fatal(err)
	}
	if got := result[int](t, end(t, a, second.RunID)); got != 60 {
		t.Errorf("after the eviction the executors use %d MiB", got)
	}
	var why []string
	for _, e := range events(t, a, second.RunID) {
		if d, ok := e.Data.(*history.SessionRecovered); ok {
			why = append(why, d.Outcome+" "+d.Reason)
		}
	}
	if want := []string{"rebuilt evicted_pressure"}; !slices.Equal(why, want) {
		t.Errorf("history contains %q, want %q", why, want)
	}
	v := view("one")
	if v.Epoch <= before {
		t.Errorf("epoch %d after %d", v.Epoch, before)
	}
	var what []string
	for _, e := range v.Timeline {
		if e.What != "renewed" {
			what = append(what, e.What)
		}
	}
	if want := []string{"claimed", "released", "reclaimed"}; !slices.Equal(what[:3], want) {
		t.Errorf("the session's timeline has %v, want %v", what, want)
	}
}
