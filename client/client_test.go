package client_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// basket is a workflow that collects items by updates. The signal "pay" selects how it closes: completed, continued as
// new ("later") or failed ("never").
func basket(ctx workflow.Context, items []string) ([]string, error) {
	workflow.HandleUpdate(ctx, "add", func(_ workflow.Context, item string) (int, error) {
		if item == "" {
			return 0, errors.New("an item must have a name")
		}
		items = append(items, item)
		return len(items), nil
	})
	workflow.HandleQuery(ctx, "items", func(workflow.Context) ([]string, error) { return items, nil })
	how, err := workflow.ReceiveSignal[string](ctx, "pay")
	switch {
	case err != nil:
		return nil, err
	case how == "later":
		return nil, workflow.ContinueAsNew(ctx, items)
	case how == "never":
		return nil, errors.New("nothing to pay with")
	}
	return items, nil
}

// work runs a worker with the workflow "basket" for an app until the test ends.
func work(t *testing.T, a *apptest.App) {
	t.Helper()
	r := worker.NewRegistry()
	r.Workflow("basket", basket)
	attempts := 0
	r.Activity("charge", func(context.Context) (int, error) {
		if attempts++; attempts == 1 {
			return 0, activity.NewError("declined", "the card was declined", activity.NonRetryable)
		}
		return attempts, nil
	})
	r.Workflow("order", func(ctx workflow.Context) (int, error) { return workflow.Execute[int](ctx, "charge") })
	w, err := worker.New(workeropt.Over(link.Local{Join: a.Connections().Join}, worker.Options{
		Registry: r, Release: "test",
		Logger:    slogbridge.Slog(apptest.Log(t)),
		Executors: worker.ExecutorOptions{Disabled: true},
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func asking(t *testing.T, urls ...string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URLs: urls})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func collect[T any](t *testing.T, list iter.Seq2[T, error]) (all []T) {
	t.Helper()
	for v, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

func TestAWorkflowIsStartedQueriedAndEnds(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	work(t, a)
	c, ctx := asking(t, a.URL()+"/"), t.Context()
	in := client.StartOptions{WorkflowID: "a/b ü%", SearchAttributes: map[string]any{}}
	w, err := c.Start(ctx, "basket", client.Args{[]string{"milk"}}, in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Start(ctx, "basket", nil, in); client.ReasonOf(err) != client.ReasonWorkflowIDInUse {
		t.Errorf("a second start with the workflow ID: %v", err)
	}
	current := c.Handle(w.ID, "")
	var n int
	if err := current.Update(ctx, "add", &n, "tea"); err != nil || n != 2 {
		t.Errorf("update: %d, %v", n, err)
	}
	if err := current.Update(ctx, "add", nil, ""); client.ReasonOf(err) != client.ReasonUpdateFailed ||
		!strings.Contains(err.Error(), "must have a name") {
		t.Errorf("an update that fails: %v", err)
	}
	var items []string
	if err := current.Query(ctx, "items", &items); err != nil || strings.Join(items, " ") != "milk tea" {
		t.Errorf("query: %q, %v", items, err)
	}
	if err := w.Query(ctx, "none", nil); client.ReasonOf(err) == "" {
		t.Errorf("an unknown query: %v", err)
	}
	for _, how := range []string{"later", "cash"} {
		if err := current.Signal(ctx, "pay", how); err != nil {
			t.Fatal(err)
		}
		if how == "later" {
			for v := (client.RunInfo{}); v.RunNumber < 2; {
				if v, err = current.Describe(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	items = nil
	if err := w.Result(ctx, &items); err != nil || strings.Join(items, " ") != "milk tea" {
		t.Errorf("the result, through another run: %q, %v", items, err)
	}
	events := collect(t, w.History(ctx))
	var first []any
	if err := events[0].Decode("arguments", &first); err != nil || fmt.Sprint(first) != "[[milk]]" {
		t.Errorf("arguments of the first event: %v, %v", first, err)
	}
	if err := current.Result(ctx, nil); err != nil {
		t.Fatal(err)
	}
	items = nil
	all := collect(t, current.History(ctx))
	if err := all[len(all)-1].Decode("output", &items); err != nil || strings.Join(items, " ") != "milk tea" {
		t.Errorf("output of the last event: %q, %v", items, err)
	}
	if err := all[0].Decode("none", &items); err != nil || len(items) != 2 {
		t.Errorf("a member that the event does not have: %q, %v", items, err)
	}
	if last := events[len(events)-1]; last.Type != "WorkflowContinuedAsNew" || events[0].Sequence != 1 {
		t.Errorf("the first run: %d events, the last a %s", len(events), last.Type)
	}
}

func TestWarningsOfResponsesReachTheProgram(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	var got []string
	c, err := client.New(client.Options{URLs: []string{a.URL()}, Warned: func(list []client.Warning) {
		for _, w := range list {
			got = append(got, w.Code+" "+w.Subject)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	memo := map[string]any{"warnings": []any{map[string]any{"code": "none"}}}
	w, err := c.Start(ctx, "basket", nil, client.StartOptions{Memo: memo})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Describe(ctx); err != nil {
		t.Fatal(err)
	}
	if len(got) != 0 {
		t.Errorf("without a reason: %q", got)
	}
	_, err = c.Start(ctx, "basket", nil, client.StartOptions{BuildID: "none"})
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]any{"workflow_type": "basket", "tsak_queue": "q"}
	if err := c.Call(ctx, http.MethodPost, "/api/workflows", in, nil); err != nil {
		t.Fatal(err)
	}
	if strings.Join(got, ", ") != "unknown_build build_id, unknown_member tsak_queue" {
		t.Errorf("got %q", got)
	}
}

func TestErrorOfAnUnsuccessfulWorkflowNamesItsStatus(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	work(t, a)
	c, ctx := asking(t, a.URL()), t.Context()
	for how, status := range map[string]client.Status{
		"never": client.StatusFailed, "cancel": client.StatusCancelled, "cancel now": client.StatusCancelled,
		"terminate": client.StatusTerminated,
	} {
		w, err := c.Start(ctx, "basket", client.Args{nil}, client.StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		switch how {
		case "cancel":
			err = w.Update(ctx, "add", nil, "tea") // waits for a worker of the type, without which Cancel is not supported
			if err != nil {
				t.Fatal(err)
			}
			err = w.Cancel(ctx, "enough")
		case "cancel now":
			err = w.CancelNow(ctx, "enough")
		case "terminate":
			err = w.Terminate(ctx, "enough")
		default:
			err = w.Signal(ctx, "pay", how)
		}
		if err != nil {
			t.Fatal(err)
		}
		var ended *client.NotCompleted
		if err := w.Result(ctx, nil); !errors.As(err, &ended) || ended.Run.Status != status ||
			!strings.Contains(err.Error(), string(status)) {
			t.Errorf("%s: %v", how, err)
		}
	}
	if n := len(collect(t, c.Runs(ctx, "WorkflowType = 'basket'"))); n != 4 {
		t.Errorf("%d runs are listed, want 4", n)
	}
	for _, err := range c.Runs(ctx, "WorkflowType =") {
		if client.ReasonOf(err) == "" {
			t.Errorf("a filter that is none: %v", err)
		}
	}
	if s, l := collect(t, c.Schedules(ctx)), collect(t, c.Sessions(ctx)); len(s)+len(l) != 0 {
		t.Errorf("schedules %v, sessions %v", s, l)
	}
}

// Workers of the published SDKs do not support requests for cancellation. An activity run has no workflow code.
func TestCancelIsRefusedWhereNoWorkerSupportsItAndCancelNowEndsTheRun(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c, ctx := asking(t, a.URL()), t.Context()
	if _, err := a.Broker().Register(ctx, protocol.RegisterRequest{
		WorkerID: "python", TaskQueue: "default", WorkflowTypes: []string{"basket"},
	}); err != nil {
		t.Fatal(err)
	}
	w, err := c.Start(ctx, "basket", client.Args{nil}, client.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Cancel(ctx, ""); !errors.Is(err, client.ErrCancelNotSupported) {
		t.Errorf("got %v, want ErrCancelNotSupported", err)
	}
	if v, err := w.Describe(ctx); err != nil || v.Closed || v.Pending.Cancellation != nil {
		t.Errorf("after the refusal: %+v, %v", v, err)
	}
	if err := w.CancelNow(ctx, "enough"); err != nil {
		t.Error(err)
	}
	alone, err := c.StartActivity(ctx, "wash", nil, client.ActivityOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := alone.Cancel(ctx, "enough"); err != nil {
		t.Error(err)
	}
	for _, ended := range []*client.Workflow{w, alone} {
		if v, err := ended.Describe(ctx); err != nil || v.Status != client.StatusCancelled {
			t.Errorf("got %s, %v", v.Status, err)
		}
	}
}

// Redrive continues the failed run: the activity that failed runs again, and the handle of the workflow ID returns the
// result of the new run.
func TestARedrivenRunCompletes(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	work(t, a)
	c, ctx := asking(t, a.URL()), t.Context()
	w, err := c.Start(ctx, "order", nil, client.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := w.Wait(ctx); err != nil || v.Status != client.StatusFailed {
		t.Fatalf("got %s, %v", v.Status, err)
	}
	next, err := c.Handle(w.ID, "").Redrive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var attempt int
	if err := next.Result(ctx, &attempt); err != nil || attempt != 2 || next.RunID == w.RunID {
		t.Errorf("result %d of run %s, %v", attempt, next.RunID, err)
	}
	if _, err := next.Redrive(ctx); client.ReasonOf(err) != client.ReasonRunNotFailed {
		t.Errorf("a completed run: %v", err)
	}
	if _, err := w.Redrive(ctx); client.ReasonOf(err) != client.ReasonNotCurrentRun {
		t.Errorf("the failed run again: %v", err)
	}
}

// Reset continues a run from the end of its first workflow task, open or closed: the activity runs again, and a handle
// of the workflow ID returns the result of the new run.
func TestARunThatWasResetCompletes(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	work(t, a)
	c, ctx := asking(t, a.URL()), t.Context()
	w, err := c.Start(ctx, "order", nil, client.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := w.Wait(ctx); err != nil || v.Status != client.StatusFailed {
		t.Fatalf("got %s, %v", v.Status, err)
	}
	if _, err := w.Reset(ctx, client.ResetOptions{Event: 1}); client.ReasonOf(err) != client.ReasonResetPoint {
		t.Errorf("an event that ends no workflow task: %v", err)
	}
	if _, err := w.Reset(ctx, client.ResetOptions{}); client.ReasonOf(err) != client.ReasonInvalid {
		t.Errorf("without a point: %v", err)
	}
	next, err := c.Handle(w.ID, "").Reset(ctx, client.ResetOptions{To: client.ResetToFirstTask, NoReapply: true})
	if err != nil {
		t.Fatal(err)
	}
	var attempt int
	if err := next.Result(ctx, &attempt); err != nil || attempt != 2 || next.RunID == w.RunID {
		t.Errorf("result %d of run %s, %v", attempt, next.RunID, err)
	}
	if _, err := w.Reset(ctx, client.ResetOptions{Event: 2}); client.ReasonOf(err) != client.ReasonNotCurrentRun {
		t.Errorf("the first run again: %v", err)
	}
}

// Delete deletes only closed runs: the named run, or the current run of a workflow ID. Other runs remain.
func TestDeleteRemovesOneClosedRun(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c, ctx := asking(t, a.URL()), t.Context()
	var runs []*client.Workflow
	for range 3 {
		w, err := c.Start(ctx, "basket", client.Args{nil}, client.StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, w)
	}
	if err := runs[0].Delete(ctx, ""); client.ReasonOf(err) != client.ReasonRunNotClosed {
		t.Errorf("an open run: %v, want %s", err, client.ReasonRunNotClosed)
	}
	for _, w := range runs {
		if err := w.CancelNow(ctx, ""); err != nil {
			t.Fatal(err)
		}
	}
	named, current := runs[0], c.Handle(runs[1].ID, "")
	for _, w := range []*client.Workflow{named, current} {
		if err := w.Delete(ctx, "personal data"); err != nil {
			t.Error(err)
		}
	}
	for i, w := range runs {
		_, err := w.Describe(ctx)
		if gone := client.ReasonOf(err) == client.ReasonWorkflowNotFound; gone != (i < 2) {
			t.Errorf("run %d: %v", i+1, err)
		}
	}
}

// If the response to a start is lost, the client sends the start to the next app, and there is one run.
func TestALostAnswerStartsNothingTwice(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	to, err := url.Parse(a.URL())
	if err != nil {
		t.Fatal(err)
	}
	lost := atomic.Int32{}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ModifyResponse = func(*http.Response) error { lost.Add(1); panic(http.ErrAbortHandler) }
	loses := httptest.NewServer(proxy)
	defer loses.Close()
	c, ctx := asking(t, loses.URL, a.URL()), t.Context()
	w, err := c.Start(ctx, "basket", nil, client.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Signal(ctx, "pay", "cash"); err != nil {
		t.Fatal(err)
	}
	direct := asking(t, a.URL())
	if runs := collect(t, direct.Runs(ctx, "")); lost.Load() != 2 || len(runs) != 1 || runs[0].RunID != w.RunID {
		t.Errorf("%d answers were lost; runs: %+v", lost.Load(), runs)
	}
	signals := 0
	for _, e := range collect(t, direct.Handle(w.ID, w.RunID).History(ctx)) {
		if e.Type == "SignalReceived" {
			signals++
		}
	}
	if signals != 1 {
		t.Errorf("the signal arrived %d times", signals)
	}
}

func TestACallEndsWithItsCaller(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c := asking(t, a.URL())
	w, err := c.Start(t.Context(), "basket", nil, client.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := w.Result(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a result nobody waits for any more: %v", err)
	}
	unreachable := asking(t, "http://127.0.0.1:1")
	if _, err := unreachable.Handle("x", "").Describe(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "no app answers at http://127.0.0.1:1") {
		t.Errorf("no app: %v", err)
	}
	if _, err := client.New(client.Options{}); err == nil {
		t.Error("a client of no app was made")
	}
}

// If the outcome of a call is unknown, the error reports this and how to repeat the call.
func TestUnknownOutcomeHasAReadableError(t *testing.T) {
	body := ""
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(body))
	}))
	defer app.Close()
	const away = `{"reason":"backend_unavailable","message":"away"`
	for _, c := range []struct{ body, want string }{
		{away + `,"outcome":"unknown","workflow_id":"w-1","control_plane":{"operation":"start"}}`, "workflow ID w-1 is safe"},
		{
			away + `,"outcome":"unknown","workflow_id":"w-1","control_plane":{"operation":"signal"}}`,
			"check before you repeat it",
		},
		{away + `}`, "away"},
	} {
		body = c.body
		err := asking(t, app.URL).Handle("w-1", "").Signal(t.Context(), "go")
		doubt := strings.Contains(c.body, "unknown")
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "is unknown") != doubt {
			t.Errorf("%s: the error is %v, want %q", c.body, err, c.want)
		}
	}
}

// roundTripper is the network.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A call that waits for a result retries for a minute while the app is unavailable, unless the app never responded
// before.
func TestWaitForAResultSurvivesAnOutageOfTheApp(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("refused")}
	for name, c := range map[string]struct {
		errs  []error // one after another, the last one again and again; nil is the end of the run
		after time.Duration
		want  string
	}{
		"comes back": {[]error{io.EOF, refused, refused, nil}, 3 * time.Second, ""},
		"stays away": {[]error{io.EOF, refused}, time.Minute, "no app answers at http://app: refused; no response for 1m0s"},
		"is none":    {[]error{refused}, 0, "no app answers at http://app: refused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answer := httptest.NewRecorder()
				_, _ = answer.WriteString(`{"is_terminal":true,"status":"completed"}`)
				app, err := client.New(client.Options{URLs: []string{"http://app"}, HTTP: &http.Client{Transport: roundTripper(
					func(*http.Request) (*http.Response, error) {
						err := c.errs[0]
						c.errs = c.errs[min(1, len(c.errs)-1):]
						if err != nil {
							return nil, err
						}
						return answer.Result(), nil
					},
				)}})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				err = app.Handle("w-1", "").Result(t.Context(), nil)
				if text := fmt.Sprint(err); text != cmp.Or(c.want, "<nil>") || time.Since(began) != c.after {
					t.Errorf("ended after %s with %s, want %q after %s", time.Since(began), text, c.want, c.after)
				}
			})
		})
	}
}

// An app that is stopping responds at once that the run is open. The client waits a second before the next request.
func TestAStoppingAppIsPolledOncePerSecond(t *testing.T) {
	asked := make(chan time.Time, 2)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- time.Now()
		open := `{"is_terminal":false}`
		if len(asked) == cap(asked) {
			open = `{"is_terminal":true,"status":"completed"}`
		}
		_, _ = w.Write([]byte(open))
	}))
	defer app.Close()
	if err := asking(t, app.URL).Handle("w-1", "").Result(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	first, second := <-asked, <-asked
	if apart := second.Sub(first); apart < 900*time.Millisecond { // the first is noted after the client's second began
		t.Errorf("asked again after %s", apart)
	}
}
