package server_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/server"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// statements is the number of statements and reads of an app in one idle hour, in which it removes its dead worker, and
// while it serves polls and timers.
type statements struct{ idle, served int64 }

// withPending counts the statements of an app with pending attempts, half of which have a heartbeat timeout.
func withPending(t *testing.T, attempts int) (n statements) {
	synctest.Test(t, func(t *testing.T) {
		p := apptest.OpenServer(t, "", server.Options{})
		b := p.Broker()
		register := func() {
			t.Helper()
			if _, err := b.Register(t.Context(), protocol.RegisterRequest{
				WorkerID: "w", TaskQueue: "default", WorkflowTypes: []string{"wf"}, AnyActivity: true,
			}); err != nil {
				t.Fatal(err)
			}
		}
		poll := func(kind protocol.TaskKind, wait int64) *protocol.Task {
			t.Helper()
			got, err := b.Poll(t.Context(), protocol.PollRequest{
				WorkerID: "w", Kinds: []protocol.TaskKind{kind}, Timeout: &wait,
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Tasks) == 0 {
				return nil
			}
			return &got.Tasks[0]
		}
		complete := func(item protocol.CompleteItem) {
			t.Helper()
			out, err := b.Complete(t.Context(), protocol.CompleteRequest{Items: []protocol.CompleteItem{item}})
			if err != nil || out.Items[0].Err != nil {
				t.Fatal(err, out.Items[0].Err)
			}
		}
		decide := func(c protocol.Command) {
			t.Helper()
			w := poll(protocol.KindWorkflow, 30).Workflow
			complete(protocol.CompleteItem{
				Kind: protocol.KindWorkflow, TaskID: w.TaskID, Owner: "w", Attempt: w.Attempt, Commands: []protocol.Command{c},
			})
		}
		spent := func(work func()) int64 {
			t.Helper()
			synctest.Wait()
			before := p.Store().Stats()
			work()
			synctest.Wait()
			after := p.Store().Stats()
			return after.Statements - before.Statements + after.Reads - before.Reads
		}

		register()
		for i := range attempts {
			in := protocol.ActivityRequest{ActivityType: "ask"}
			if in.StartToClose = 12 * 3600; i%2 == 0 {
				in.Heartbeat = 6 * 3600
			}
			if _, err := b.StartActivity(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			a := poll(protocol.KindActivity, 0).Activity
			complete(protocol.CompleteItem{
				Kind: protocol.KindActivity, TaskID: a.TaskID, Owner: "w", AttemptID: a.AttemptID,
				Failure: protocol.PendingFailure(),
			})
		}
		n.idle = spent(func() { time.Sleep(time.Hour) })
		register()
		time.Sleep(time.Second)
		n.served = spent(func() {
			for range 20 {
				if task := poll(protocol.KindActivity, 0); task != nil {
					t.Fatalf("an activity task: %+v", task.Activity)
				}
				if _, err := b.Start(t.Context(), protocol.StartRequest{WorkflowType: "wf"}); err != nil {
					t.Fatal(err)
				}
				decide(protocol.Command{Type: protocol.StartTimer, Delay: new(int64(1))})
				decide(protocol.Command{Type: protocol.CompleteWorkflow})
			}
		})
	})
	return n
}

// An idle hour of an app, and its polls and timers, need as many statements with 400 pending attempts as with 40.
func TestPendingAttemptsCostPollsAndTimersNoStatement(t *testing.T) {
	few, many := withPending(t, 40), withPending(t, 400)
	t.Logf("idle and while serving: %v with 40 pending attempts, %v with 400", few, many)
	if few.served < 20*4 {
		t.Errorf("20 runs with a timer need %d statements: they are not counted", few.served)
	}
	// how many timers the app reads at once varies by a few statements
	if few.idle != many.idle || many.served > few.served+20 {
		t.Errorf("statements with 40 pending attempts: %+v, with 400: %+v", few, many)
	}
}
