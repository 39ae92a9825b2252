package broker_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker with a run in its sticky cache gets only new events; a worker without it gets the full history.
func TestWorkerWithACachedRunReceivesNewEventsOnly(t *testing.T) {
	for _, kept := range []bool{true, false} {
		a := newApp(t)
		a.register("w")
		a.start("one")
		first := a.poll("w", protocol.KindWorkflow, 5).Workflow
		item := protocol.CompleteItem{
			Kind: protocol.KindWorkflow, TaskID: first.TaskID, Owner: "w", Attempt: first.Attempt,
			Commands: []protocol.Command{greet()},
		}
		if kept {
			item.Kept = first.LastSequence
		}
		a.complete(item)
		a.result(a.poll("w", protocol.KindActivity, 5), "hello Ada")
		next := a.poll("w", protocol.KindWorkflow, 5).Workflow
		events, from := 3, int64(1)
		if kept {
			events, from = 2, 2
		}
		if len(next.Events) != events || next.Events[0].Seq != from || next.Arguments.IsZero() != kept {
			t.Errorf("cached %v: got %d events and arguments %v", kept, len(next.Events), !next.Arguments.IsZero())
		}
	}
}

// If several workers share the tasks of a run, each worker gets every event once. A worker that evicted the run, or
// restarted, gets the full history.
func TestWorkersThatShareARunAreEachShownAnEventOnce(t *testing.T) {
	goRound(t, newApp(t), nil)
}

// Each app remembers only the sticky workers that complete tasks through it.
func TestWorkersOfTwoAppsAreEachShownAnEventOnce(t *testing.T) {
	database := apptest.Postgres(t)
	goRound(t, on(t, database), on(t, database))
}

// goRound lets three workers complete one workflow task each, the last one through the other app if there is one.
func goRound(t *testing.T, a, other *app) {
	ids := []string{"a", "b", "c"}
	through := map[string]*app{"a": a, "b": a, "c": a}
	if other != nil {
		through["c"] = other
	}
	for _, id := range ids {
		through[id].register(id)
	}
	a.start("one")
	seen := map[string]int64{}
	for i := range 15 {
		id := ids[i%len(ids)]
		at := through[id]
		if i == 9 { // a new process of worker a
			at.register(id)
			seen[id] = 0
		}
		task := at.poll(id, protocol.KindWorkflow, 20).Workflow
		if first, last := task.Events[0].Seq, task.Events[len(task.Events)-1].Seq; first != seen[id]+1 ||
			last != task.LastSequence {
			t.Errorf(
				"task %d: worker %s, which has seen %d events, receives %d to %d of %d", i, id, seen[id], first, last,
				task.LastSequence,
			)
		}
		item := protocol.CompleteItem{
			Kind: protocol.KindWorkflow, TaskID: task.TaskID, Owner: id, Attempt: task.Attempt, Kept: task.LastSequence,
			Commands: []protocol.Command{greet()},
		}
		if i == 7 { // worker b evicts the run, since its commands are rejected
			bad := item
			bad.Commands = []protocol.Command{{Type: protocol.ScheduleActivity}}
			if at.complete(bad).Err == nil {
				t.Fatal("a command without its type was accepted")
			}
			item.Kept = 0
		}
		seen[id] = item.Kept
		if c := at.complete(item); c.Err != nil {
			t.Fatal(c.Err)
		}
		a.result(a.poll("a", protocol.KindActivity, 20), "hello")
	}
}

// A workflow task that the worker answers with "waiting" also counts as seen: a run that waits for many activities does
// not receive the ends of all of them with each task.
func TestWaitingForHistoryKeepsTheSeenEvents(t *testing.T) {
	a := newApp(t)
	a.register("w")
	a.start("one")
	var seen int64
	for i := range 4 {
		if i > 0 {
			a.result(a.poll("w", protocol.KindActivity, 5), "hello")
		}
		task := a.poll("w", protocol.KindWorkflow, 5).Workflow
		if task.Events[0].Seq != seen+1 {
			t.Errorf("task %d has %d events from %d on, and %d were seen", i, len(task.Events), task.Events[0].Seq, seen)
		}
		seen = task.LastSequence
		item := protocol.CompleteItem{
			Kind: protocol.KindWorkflow, TaskID: task.TaskID, Owner: "w", Attempt: task.Attempt, Kept: seen,
		}
		if i == 0 {
			item.Commands = []protocol.Command{greet(), greet(), greet()}
		} else {
			item.Failure = &protocol.Failure{Type: protocol.FailureWaiting, Message: "waits"}
		}
		if c := a.complete(item); c.Err != nil {
			t.Fatal(c.Err)
		}
	}
}

// awaits returns a command that waits for a signal.
func awaits() protocol.Command {
	return protocol.Command{Type: protocol.OpenSignalWait, SignalName: "more"}
}

// A workflow task is dispatched to a waiting worker with the run in its sticky cache. If that worker cannot run tasks
// well (it drains, is superseded, …), it has no preference.
func TestWorkflowTaskGoesToAnEligibleStickyWorker(t *testing.T) {
	for name, c := range map[string]struct {
		between func(o *harness, a *app) // called after worker "keeper" has cached the run, before the polls
		wait    time.Duration            // time since the workers polled
		want    string
	}{
		"fit":          {want: "keeper"},
		"heard lately": {wait: 20 * time.Second, want: "keeper"},
		"silent":       {wait: 40 * time.Second, want: "other"},
		"restarted":    {between: func(o *harness, a *app) { o.join(a, "keeper", "2") }, want: "other"},
		"drains": {between: func(o *harness, a *app) {
			must[protocol.WorkerHeartbeatResponse](o.t)(a.WorkerHeartbeat(
				o.t.Context(), protocol.WorkerHeartbeat{WorkerID: "keeper", Draining: true},
			))
		}, want: "other"},
		"held by the gate": {between: func(o *harness, a *app) {
			none := int64(0)
			must[protocol.PollResponse](o.t)(a.Poll(
				o.t.Context(), protocol.PollRequest{WorkerID: "keeper", Gated: true, Release: "other", Timeout: &none},
			))
		}, want: "other"},
	} {
		// the workers wait when the task is created, or poll for it afterwards
		for _, waits := range []bool{true, false} {
			inBubble(t, fmt.Sprint(name, ", waits ", waits), func(o *harness) {
				a, _ := o.app("a", false)
				o.join(a, "keeper", "1")
				o.join(a, "other", "1")
				run := a.start("one").RunID
				task := a.poll("keeper", protocol.KindWorkflow, 0).Workflow
				a.complete(protocol.CompleteItem{
					Kind: protocol.KindWorkflow, TaskID: task.TaskID, Owner: "keeper", Attempt: task.Attempt, Kept: task.LastSequence,
					Commands: []protocol.Command{awaits()},
				})
				if c.between != nil {
					c.between(o, a)
				}
				signal := func() {
					must[protocol.CommandReceipt](o.t)(a.Signal(
						o.t.Context(), protocol.SignalRequest{Target: protocol.Target{WorkflowID: "one"}, SignalName: "more"},
					))
				}
				if !waits {
					if c.wait > 0 {
						return // a new poll counts as a heartbeat
					}
					signal()
				}
				var polls sync.WaitGroup
				poll := func(id string) {
					hold := int64(60)
					polls.Go(func() {
						_, _ = a.Poll(
							o.t.Context(),
							protocol.PollRequest{WorkerID: id, Kinds: []protocol.TaskKind{protocol.KindWorkflow}, Timeout: &hold},
						)
					})
				}
				poll("other") // this poll waits longest
				synctest.Wait()
				poll("keeper")
				synctest.Wait()
				time.Sleep(c.wait)
				if waits {
					signal()
					synctest.Wait()
				}
				if got := o.owner(run); got != c.want && (waits || c.want == "other") {
					o.t.Errorf("the task was dispatched to %q, want %s", got, c.want)
				}
				a.Drain()
				polls.Wait()
			})
		}
	}
}
