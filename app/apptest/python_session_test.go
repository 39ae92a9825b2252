package apptest_test

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// counted is the result of an activity that counts its calls in the state of its session.
type counted struct {
	Worker string `json:"worker"`
	IsNew  bool   `json:"is_new"`
	Calls  int    `json:"calls"`
}

// sojourn_session.py stores state for the session and epoch of an attempt, with the oldest and the newest SDK. If
// another worker held the session in between, the code gets new state, and the old state is closed.
func TestSessionStateOfAPythonWorker(t *testing.T) {
	t.Parallel()
	python(t)
	for _, list := range []string{"requirements-2.0.txt", "requirements.txt"} {
		t.Run(list, func(t *testing.T) {
			t.Parallel()
			interpreter := pythonWith(t, list)
			apptest.Databases(t, func(t *testing.T, database string) {
				sessionState(t, startPython(t, database, ""), interpreter)
			})
		})
	}
}

func sessionState(t *testing.T, a *apptest.App, interpreter string) {
	workers := map[string]*pythonWorker{}
	for _, id := range []string{"py-1", "py-2"} {
		c := exec.Command(interpreter, "session_worker.py", a.URL(), pythonToken, pythonQueue, id)
		c.Dir = pythonDir
		workers[id] = launchWorker(t, a, id, c)
	}
	call := func(activityType, session string, into any) {
		t.Helper()
		s, err := a.Broker().StartActivity(t.Context(), protocol.ActivityRequest{
			ActivityType: activityType, TaskQueue: pythonQueue, ActivityOptions: protocol.ActivityOptions{SessionID: session},
		})
		if err != nil {
			t.Fatal(err)
		}
		output(t, a, protocol.Target{WorkflowID: s.WorkflowID, RunID: s.RunID}, into)
	}
	turn := func(activityType, session string, isNew bool, calls int) string {
		t.Helper()
		var got counted
		if call(activityType, session, &got); got.IsNew != isNew || got.Calls != calls {
			t.Errorf("%s in session %s: %+v, want new %t and %d calls", activityType, session, got, isNew, calls)
		}
		return got.Worker
	}
	move := func(to string) {
		t.Helper()
		_, err := a.Broker().OperateSession(t.Context(), protocol.SessionOperation{
			SessionID: "chat", Verb: "migrate", To: to, Identity: "test",
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	holder := turn("state.async", "chat", true, 1)
	turn("state.sync", "chat", false, 2)
	turn("state.async", "other", true, 1) // two sessions of one worker do not share state
	other := map[string]string{"py-1": "py-2", "py-2": "py-1"}[holder]
	move(other)
	if at := turn("state.async", "chat", true, 1); at != other {
		t.Fatalf("the session was moved to %s and ran on %s", other, at)
	}
	move(holder)
	if at := turn("state.sync", "chat", true, 1); at != holder {
		t.Fatalf("the session was moved back to %s and ran on %s", holder, at)
	}
	lateDelivery(t, a, workers[holder], other, move)
	if at := turn("state.async", "chat", false, 2); at != other {
		t.Fatalf("the session moved to %s and ran on %s", other, at)
	}
	move(holder)
	if at := turn("state.async", "chat", true, 1); at != holder {
		t.Fatalf("the session was moved back to %s and ran on %s", holder, at)
	}
	var text string
	call("state.none", "", &text)
	if !strings.Contains(text, "this attempt has no session") {
		t.Errorf("an activity without a session gets %q", text)
	}
	resumed(t, a)
	setUp(t, a)
	workers[other].stop()
	var closed []map[string]int
	call("state.closed", "", &closed)
	if len(closed) != 2 || closed[0]["calls"] != 2 || closed[1]["calls"] != 1 {
		t.Errorf("%s closed %v, want states with 2 calls and 1 call: a late delivery ran", holder, closed)
	}
	workers[holder].stop()
	for id, w := range workers {
		if message := fmt.Sprint(w.output); !strings.Contains(message, "closed at the end: [{") {
			t.Errorf("worker %s did not close its state: %s", id, message)
		}
	}
}

// lateDelivery freezes the holder of the session until a delivery waits in its open poll, the attempt ended and the
// session moved. The holder reads the delivery after that and must not start it.
func lateDelivery(t *testing.T, a *apptest.App, frozen *pythonWorker, to string, move func(string)) {
	t.Helper()
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := frozen.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	attempts := 10
	signal(syscall.SIGSTOP)
	s, err := a.Broker().StartActivity(t.Context(), protocol.ActivityRequest{
		ActivityType: "state.async", TaskQueue: pythonQueue, ActivityOptions: protocol.ActivityOptions{
			SessionID: "chat", StartToClose: 2, RetryPolicy: &retry.Policy{MaxAttempts: &attempts},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	target := protocol.Target{WorkflowID: s.WorkflowID, RunID: s.RunID}
	if at := pendingOn(t, a, target, "state.async"); at != frozen.id {
		t.Fatalf("the activity was delivered to %s, want %s", at, frozen.id)
	}
	until(t, "the first attempt ends", func() bool {
		v, err := a.View().Describe(t.Context(), target)
		return err == nil && v.Pending != nil && len(v.Pending.Activities) == 1 && v.Pending.Activities[0].Worker == ""
	})
	move(to)
	var got counted
	if output(t, a, target, &got); got.Worker != to || !got.IsNew {
		t.Errorf("the second attempt ran as %+v, want %s", got, to)
	}
	signal(syscall.SIGCONT)
}

// resumed runs an activity that reports a position in its first attempt and returns what the second attempt finds.
func resumed(t *testing.T, a *apptest.App) {
	t.Helper()
	attempts := 2
	s, err := a.Broker().StartActivity(t.Context(), protocol.ActivityRequest{
		ActivityType: "heartbeat.resume", TaskQueue: pythonQueue,
		ActivityOptions: protocol.ActivityOptions{RetryPolicy: &retry.Policy{MaxAttempts: &attempts}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]int
	output(t, a, protocol.Target{WorkflowID: s.WorkflowID, RunID: s.RunID}, &got)
	if got["position"] != 17 || got["attempt"] != 1 {
		t.Errorf("the second attempt finds %v", got)
	}
}

// setUp runs activities in sessions with a definition. Concurrent activities of an epoch share one set-up, which may
// take longer than their start_to_close timeout; the next owner sets the session up with the same arguments.
func setUp(t *testing.T, a *apptest.App) {
	t.Helper()
	type book struct {
		Tenant   string   `json:"tenant"`
		Pages    int      `json:"pages"`
		Worker   string   `json:"worker"`
		Attempt  int      `json:"attempt"`
		SetUps   int      `json:"set_ups"`
		TornDown []string `json:"torn_down"`
		Fence    struct {
			Namespace string `json:"namespace"`
			Session   string `json:"session_id"`
			Epoch     int64  `json:"epoch"`
		} `json:"fence"`
	}
	lost := ""
	start := func(activityType, definition, tenant, arguments string) protocol.Target {
		t.Helper()
		attempts := 5
		s, err := a.Broker().StartActivity(t.Context(), protocol.ActivityRequest{
			ActivityType: activityType, TaskQueue: pythonQueue, ActivityOptions: protocol.ActivityOptions{
				SessionID: tenant, StartToClose: 2, RetryPolicy: &retry.Policy{MaxAttempts: &attempts},
				SessionDefinition: &protocol.ActivitySession{Name: definition, Arguments: []byte(arguments), OnLost: lost},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return protocol.Target{WorkflowID: s.WorkflowID, RunID: s.RunID}
	}
	read := func(run protocol.Target) (got book) {
		t.Helper()
		output(t, a, run, &got)
		return got
	}
	var runs []protocol.Target
	for _, kind := range []string{"async", "sync", "async"} {
		runs = append(runs, start("book."+kind, "book", "acme", `["acme", 7]`))
	}
	first := read(runs[0])
	for _, run := range runs {
		if got := read(run); got.SetUps != 1 || got.Attempt != 1 || got.Pages != 7 || got.Worker != first.Worker {
			t.Errorf("after one set-up an activity finds %+v", got)
		}
	}
	other := map[string]string{"py-1": "py-2", "py-2": "py-1"}
	for _, to := range []string{other[first.Worker], first.Worker} {
		_, err := a.Broker().OperateSession(t.Context(), protocol.SessionOperation{
			SessionID: "acme", Verb: "migrate", To: to, Identity: "test",
		})
		if err != nil {
			t.Fatal(err)
		}
		want := 1
		if to == first.Worker {
			want = 2
		}
		got := read(start("book.sync", "book", "acme", `["acme", 9]`))
		if got.SetUps != want || got.Attempt != 1 || got.Pages != 7 || got.Worker != to || len(got.TornDown) != want-1 {
			t.Errorf("on %s, after %d set-ups, an activity finds %+v", to, want, got)
		}
	}
	if got := read(start("book.async", "broken", "weak", `["weak"]`)); got.SetUps != 3 || got.Attempt != 3 {
		t.Errorf("after a failed set-up, and one that timed out, an activity finds %+v", got)
	}
	row, err := a.View().Session(t.Context(), "", "acme")
	if err != nil {
		t.Fatal(err)
	}
	if got := read(start("book.async", "book", "acme", `["acme", 7]`)); got.Fence.Epoch != row.Epoch ||
		got.Fence.Session != "acme" || got.Fence.Namespace != "default" {
		t.Errorf("the fence is %+v, the session has epoch %d", got.Fence, row.Epoch)
	}
	// One worker fails to set the session up and passes it on.
	if got := read(start("book.async", "gpu", "gpu", `["gpu"]`)); got.Worker != "py-2" || got.Attempt > 2 {
		t.Errorf("the activity ran as %+v, want py-2", got)
	}
	// The workflow requests failures for lost state: the first attempt at the next owner fails, and the second sets the
	// session up.
	lost = protocol.OnLostFail
	at := read(start("book.sync", "book", "asks", `["asks", 3]`)).Worker
	_, err = a.Broker().OperateSession(t.Context(), protocol.SessionOperation{
		SessionID: "asks", Verb: "migrate", To: other[at], Identity: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := read(start("book.sync", "book", "asks", `["asks", 3]`)); got.Worker != other[at] || got.Attempt != 2 {
		t.Errorf("after a loss the activity ran as %+v", got)
	}
}
