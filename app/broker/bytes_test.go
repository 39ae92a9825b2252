package broker_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// bulky returns a command that schedules an activity with an encoded argument of this many bytes.
func bulky(bytes int) protocol.Command {
	p, _ := payload.EncodeArgs(strings.Repeat("x", bytes*3/4-100))
	return protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "bulk", Arguments: p}
}

// bytesOf returns the encoded size of a response.
func (a *app) bytesOf(answer any) int {
	a.t.Helper()
	raw, err := json.Marshal(answer)
	if err != nil {
		a.t.Fatal(err)
	}
	return len(raw)
}

// fitsHalf fails the test if a response with several tasks is larger than half a frame, or a response with one task is
// larger than a frame.
func (a *app) fitsHalf(what string, tasks int, answer any) {
	a.t.Helper()
	a.fits(what, tasks, answer, socketio.DefaultMaxPayload/2)
}

func (a *app) fits(what string, tasks int, answer any, limit int) {
	a.t.Helper()
	if tasks < 2 {
		limit = socketio.DefaultMaxPayload
	}
	if n := a.bytesOf(answer); n > limit {
		a.t.Errorf("%s: a response with %d tasks has %d bytes, at most %d are sent", what, tasks, n, limit)
	}
}

func TestTheBudgetOfTasksIsHalfAFrame(t *testing.T) {
	if protocol.MaxTaskBytes != socketio.DefaultMaxPayload/2 {
		t.Errorf("%d bytes of tasks, a frame has %d", protocol.MaxTaskBytes, socketio.DefaultMaxPayload)
	}
}

// The response to a poll contains the tasks that fit its byte budget, whatever its maximum number of tasks. The other
// tasks stay ready and unleased, and the next poll receives them immediately. The test covers workflow and activity
// tasks, in plain polls and in polls that are sent with outcomes.
func TestAPollGetsWhatFitsIntoItsResponse(t *testing.T) {
	if testing.Short() {
		t.Skip("stores 60 payloads of the maximum size")
	}
	for _, c := range []struct{ runs, bytes int }{{200, 90_000}, {60, payload.MaxBytes}} {
		t.Run(fmt.Sprintf("%d of %d bytes", c.runs, c.bytes), func(t *testing.T) {
			apptest.Databases(t, func(t *testing.T, database string) {
				a := on(t, database)
				a.register("w")
				input, _ := json.Marshal([]string{strings.Repeat("x", c.bytes*3/4-100)})
				for i := range c.runs {
					must[protocol.StartResponse](t)(a.Start(t.Context(), protocol.StartRequest{
						WorkflowID: fmt.Sprint("run-", i), WorkflowType: "wf", Input: input,
					}))
				}
				polled := a.all("workflow tasks", protocol.KindWorkflow, c.runs)
				if len(polled) != c.runs {
					t.Fatalf("%d workflow tasks of %d", len(polled), c.runs)
				}
				for _, task := range polled {
					if task.Workflow.Attempt != 1 || len(task.Workflow.Events) != 1 || task.Workflow.Arguments.Blob == "" {
						t.Fatalf("a task of delivery %d with %d events", task.Workflow.Attempt, len(task.Workflow.Events))
					}
					if out := a.decide(&task, bulky(c.bytes)); out.Err != nil {
						t.Fatal(out.Err)
					}
				}
				// Poll for activities; every second poll is sent with an outcome.
				activities, seen := a.all("activities", protocol.KindActivity, c.runs/2), map[string]bool{}
				for len(activities) > 0 {
					task := activities[0]
					activities = activities[1:]
					if seen[task.Activity.TaskID] || !strings.HasSuffix(task.Activity.AttemptID, "-1") {
						t.Fatalf("attempt %s was delivered again", task.Activity.AttemptID)
					}
					seen[task.Activity.TaskID] = true
					out := must[protocol.CompleteBatchResponse](t)(a.Complete(t.Context(), protocol.CompleteRequest{
						Items: []protocol.CompleteItem{{
							Kind: protocol.KindActivity, TaskID: task.Activity.TaskID, Owner: "w", AttemptID: task.Activity.AttemptID,
						}},
						Next: &protocol.PollRequest{WorkerID: "w", Kinds: []protocol.TaskKind{protocol.KindActivity}, Max: 256},
					}))
					a.fitsHalf("outcomes", len(out.Next.Tasks), out)
					activities = append(activities, out.Next.Tasks...)
				}
				if len(seen) != c.runs {
					t.Errorf("%d activities of %d", len(seen), c.runs)
				}
			})
		})
	}
}

// all polls for tasks of a kind until it has most of them or no task is left.
func (a *app) all(what string, kind protocol.TaskKind, most int) (tasks []protocol.Task) {
	a.t.Helper()
	return a.every(what, kind, most, socketio.DefaultMaxPayload/2)
}

func (a *app) every(what string, kind protocol.TaskKind, most, bytes int) (tasks []protocol.Task) {
	a.t.Helper()
	for len(tasks) < most {
		p := must[protocol.PollResponse](a.t)(a.Poll(a.t.Context(), protocol.PollRequest{
			WorkerID: "w", Kinds: []protocol.TaskKind{kind}, Max: 256, Timeout: new(int64(5)),
		}))
		a.fits(what, len(p.Tasks), p, bytes)
		if len(p.Tasks) == 0 {
			break
		}
		tasks = append(tasks, p.Tasks...)
	}
	return tasks
}

// Eager workflow tasks, their results and the following activities share one response with the next poll. Activities
// that do not fit are not leased. An eager workflow task whose events do not fit is accepted, but the response does not
// contain its events.
func TestEagerTasksShareTheBytesOfTheirResponse(t *testing.T) {
	a := newApp(t)
	a.fuses("w1")
	const n, bytes = 12, 700_000
	var items []protocol.CompleteItem
	for i := range n {
		act, at := a.first(fmt.Sprint("run-", i), "w1")
		items = append(items, withEagerTask(act, "w1", protocol.EagerTask{
			SeenThrough: 2, At: at, Commands: []protocol.Command{bulky(bytes)}, Slot: true,
		}))
	}
	next := along("w1")
	next.Max = 20
	out := must[protocol.CompleteBatchResponse](t)(
		a.Complete(t.Context(), protocol.CompleteRequest{Next: next, Items: items}),
	)
	shown, leased := 0, len(out.Next.Tasks)
	for i, item := range out.Items {
		if item.Err != nil || !item.Recorded {
			t.Fatalf("outcome %d: %+v", i, item)
		}
		if item.Eager != nil {
			shown++
			if item.Eager.Next != nil {
				leased++
			}
		}
	}
	if got := a.bytesOf(out); got > socketio.DefaultMaxPayload*7/8 || shown == 0 || leased == 0 {
		t.Errorf("the response has %d bytes, %d eager tasks and %d activities", got, shown, leased)
	}
	// All activities are scheduled, and each was delivered at most once, except those whose eager workflow task did not
	// fit.
	var tasks []protocol.Task
	for len(tasks) < n-leased {
		more := a.all("the rest", protocol.KindActivity, n-leased-len(tasks))
		if len(more) == 0 {
			break
		}
		tasks = append(tasks, more...)
	}
	if len(tasks) != n-leased {
		t.Fatalf("%d activities are left of %d", len(tasks), n-leased)
	}
	for _, task := range tasks {
		if task.Activity.Attempt != 1 {
			t.Errorf("attempt %d of %s", task.Activity.Attempt, task.Activity.TaskID)
		}
	}
}

// If the transport rejects a response, its tasks are released with their original ready time, and the next poll of the
// process gets only one task. After three consecutive returns, the task's wait reason reports them.
func TestAfterARefusedResponseThePollGetsOneTask(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		for i := range 5 {
			a.start(fmt.Sprint("run-", i))
		}
		first := a.readySince("run-0")
		poll := func() protocol.PollResponse {
			return must[protocol.PollResponse](t)(a.Poll(t.Context(), protocol.PollRequest{
				WorkerID: "w", Kinds: []protocol.TaskKind{protocol.KindWorkflow}, Max: 10, Timeout: new(int64(5)),
			}))
		}
		for i, want := range []int{5, 1, 1} {
			p := poll()
			if len(p.Tasks) != want || p.Tasks[0].Workflow.WorkflowID != "run-0" {
				t.Fatalf("poll %d got %d tasks, want %d", i, len(p.Tasks), want)
			}
			p.Undo()
			eventually(t, "the tasks are back", func() bool {
				run := a.open("run-0")
				return run.Task.State == engine.Ready && run.Task.Returned == i+1
			})
			if since := a.readySince("run-0"); since != first {
				t.Errorf("the task was returned %d times and is ready since %s, first since %s", i+1, since, first)
			}
		}
		v := must[protocol.RunView](t)(a.Describe(t.Context(), protocol.Target{WorkflowID: "run-0"}))
		if v.Wait == nil || v.Wait.Reason != protocol.WaitUnstarted || v.Wait.Used != 3 || !v.Wait.Attention {
			t.Errorf("the task waits for %+v", v.Wait)
		}
		if other := a.open("run-1").Task; other.Returned != 1 {
			t.Errorf("another task was returned %d times", other.Returned)
		}
		if got := len(poll().Tasks); got != 1 {
			t.Errorf("after another refusal %d tasks", got)
		}
		if got := len(poll().Tasks); got != 4 {
			t.Errorf("after a response that arrived %d tasks, want the other 4", got)
		}
	})
}

// open returns the stored row of the current run of a workflow ID.
func (a *app) open(workflow string) *engine.Run {
	a.t.Helper()
	v := must[protocol.RunView](a.t)(a.Describe(a.t.Context(), protocol.Target{WorkflowID: workflow}))
	return a.run(v.RunID)
}

func (a *app) readySince(workflow string) string {
	a.t.Helper()
	return a.open(workflow).Task.ReadyAt.String()
}

// A page of history has at most 4 MiB, whatever the sizes of its events.
func TestAPageOfHistoryHasFourMiBAtMost(t *testing.T) {
	a := newApp(t)
	a.register("w")
	a.start("long")
	value, _ := json.Marshal([]string{strings.Repeat("x", 1_000_000)})
	for i := range 8 {
		must[protocol.CommandReceipt](t)(a.Signal(t.Context(), protocol.SignalRequest{
			Target: protocol.Target{WorkflowID: "long"}, SignalName: fmt.Sprint("s", i), Input: value,
		}))
	}
	p := must[protocol.PollResponse](t)(a.Poll(t.Context(), protocol.PollRequest{
		WorkerID: "w", Kinds: []protocol.TaskKind{protocol.KindWorkflow}, Max: 1, PageSize: 1000,
	}))
	task := p.Tasks[0].Workflow
	events, token := len(task.Events), task.NextPageToken
	if n := a.bytesOf(task.Events); n > transaction.MaxPageSize || events < 2 {
		t.Errorf("the first page has %d events of %d bytes", events, n)
	}
	for token != nil {
		page := must[protocol.HistoryPage](t)(a.HistoryPage(t.Context(), protocol.HistoryRequest{
			TaskID: task.TaskID, Owner: "w", Attempt: task.Attempt, PageToken: *token, PageSize: 1000,
		}))
		if n := a.bytesOf(page.Events); n > transaction.MaxPageSize || len(page.Events) == 0 {
			t.Errorf("a page has %d events of %d bytes", len(page.Events), n)
		}
		events, token = events+len(page.Events), page.NextPageToken
	}
	if events != 9 {
		t.Errorf("%d events of 9", events)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// An earlier build stored no sizes of runs. Such runs count as small when they are leased, and tasks that do not fit
// into the response are released again.
func TestABacklogOfAnEarlierBuildIsWorkedOff(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		const runs, bytes = 100, 90_000
		old := apptest.Start(t, apptest.Options{Database: database})
		input, _ := json.Marshal([]string{strings.Repeat("x", bytes)})
		for i := range runs {
			must[protocol.StartResponse](t)(old.Broker().Start(t.Context(), protocol.StartRequest{
				WorkflowID: fmt.Sprint("run-", i), WorkflowType: "wf", Input: input,
			}))
		}
		old.Stop()
		db := separateConnection(t, database)
		cut := `UPDATE runs SET state = json_remove(state, '$.bytes', '$.argument_bytes')`
		if !strings.HasPrefix(database, "sqlite:") {
			cut = `UPDATE runs SET state = (state::jsonb - 'bytes' - 'argument_bytes')::text`
		}
		if _, err := db.Exec(cut); err != nil {
			t.Fatal(err)
		}
		db.Close()
		a := on(t, database)
		a.register("w")
		tasks := a.every("tasks", protocol.KindWorkflow, runs, socketio.DefaultMaxPayload*7/8)
		if len(tasks) != runs {
			t.Fatalf("%d tasks of %d", len(tasks), runs)
		}
		for _, task := range tasks { // a page may be short; fetch the rest
			if task.Workflow.Arguments.Blob == "" && task.Workflow.NextPageToken == nil && len(task.Workflow.Events) != 1 {
				t.Errorf("task %s has %d events", task.Workflow.TaskID, len(task.Workflow.Events))
			}
		}
	})
}
