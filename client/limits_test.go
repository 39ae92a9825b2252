package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// first returns the first error of a list.
func first[T any](list iter.Seq2[T, error]) error {
	for _, err := range list {
		return err
	}
	return nil
}

// Each text and number that a method of the client sends is tried with a value that apps reject: the call must fail
// with ErrInvalidOptions before a request is sent. Values at the limit are sent. An unrelated run must not be affected.
func TestEveryCallChecksItsTextsAndNumbersBeforeItSends(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	var sent atomic.Int32
	c, err := client.New(client.Options{URLs: []string{a.URL()}, HTTP: &http.Client{
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			sent.Add(1)
			return http.DefaultTransport.RoundTrip(r)
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if _, err := c.Start(ctx, "x", nil, client.StartOptions{WorkflowID: "bystander"}); err != nil {
		t.Fatal(err)
	}
	start := func(change func(*client.StartOptions, string)) func(string) error {
		return func(text string) error {
			in := client.StartOptions{}
			change(&in, text)
			_, err := c.Start(ctx, "x", nil, in)
			return err
		}
	}
	activity := func(change func(*client.ActivityOptions, string)) func(string) error {
		return func(text string) error {
			in := client.ActivityOptions{}
			change(&in, text)
			_, err := c.StartActivity(ctx, "x", nil, in)
			return err
		}
	}
	schedule := func(change func(*protocol.ScheduleRequest, string)) func(string) error {
		return func(text string) error {
			in := protocol.ScheduleRequest{
				Spec: &protocol.ScheduleSpec{Cron: []string{"@yearly"}}, Action: &protocol.ScheduleAction{WorkflowType: "x"},
			}
			change(&in, text)
			return c.Call(ctx, http.MethodPost, "/api/schedules", in, nil)
		}
	}
	by := c.Handle("bystander", "")
	texts := map[string]struct {
		most int // longest text, in bytes, that the client sends; 0: no limit
		call func(text string) error
	}{
		"Start WorkflowID": {255, start(func(in *client.StartOptions, s string) { in.WorkflowID = s })},
		"Start WorkflowType": {255, func(s string) error {
			_, err := c.Start(ctx, s, nil, client.StartOptions{})
			return err
		}},
		"Start Queue":       {255, start(func(in *client.StartOptions, s string) { in.Queue = s })},
		"Start Idempotency": {255, start(func(in *client.StartOptions, s string) { in.IdempotencyKey = s })},
		"Start BusinessKey": {255, start(func(in *client.StartOptions, s string) { in.BusinessKey = s })},
		"Start BuildID":     {255, start(func(in *client.StartOptions, s string) { in.BuildID = s })},
		"Start FairnessKey": {64, start(func(in *client.StartOptions, s string) { in.FairnessKey = s })},
		"StartAndWait WorkflowID": {255, func(s string) error {
			brief, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := c.StartAndWait(brief, "x", nil, client.StartOptions{WorkflowID: s})
			return err
		}},
		"Execute WorkflowType": {255, func(s string) error {
			brief, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return c.Execute(brief, s, nil, nil, client.StartOptions{})
		}},
		"SignalWithStart WorkflowID": {255, func(s string) error {
			_, err := c.SignalWithStart(ctx, "x", nil, "s", nil, client.StartOptions{WorkflowID: s})
			return err
		}},
		"SignalWithStart name": {255, func(s string) error {
			_, err := c.SignalWithStart(ctx, "x", nil, s, nil, client.StartOptions{})
			return err
		}},
		"UpdateWithStart name": {255, func(s string) error {
			brief, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel() // no worker handles the update, so do not wait for it
			_, err := c.UpdateWithStart(brief, "x", nil, s, nil, nil, client.StartOptions{})
			return err
		}},
		"StartActivity type": {255, func(s string) error {
			_, err := c.StartActivity(ctx, s, nil, client.ActivityOptions{})
			return err
		}},
		"StartActivity WorkflowID": {255, activity(func(in *client.ActivityOptions, s string) {
			in.WorkflowID = s
		})},
		"StartActivity session": {255, activity(func(in *client.ActivityOptions, s string) { in.SessionID = s })},
		"StartActivity requirement": {0, activity(func(in *client.ActivityOptions, s string) {
			in.Requirements = []string{s}
		})},
		"Call schedule ID": {100, schedule(func(in *protocol.ScheduleRequest, s string) { in.ID = s })},
		"Call schedule type": {255, schedule(func(in *protocol.ScheduleRequest, s string) {
			in.Action.WorkflowType = s
		})},
		"Call namespace": {128, func(s string) error {
			return c.Call(ctx, http.MethodPost, "/api/namespaces", protocol.NamespaceRequest{Name: s}, nil)
		}},
		"CompleteActivity token": {255, func(s string) error { return c.CompleteActivity(ctx, s, nil) }},
		"FailActivity token":     {255, func(s string) error { return c.FailActivity(ctx, s, errors.New("x")) }},
		"HeartbeatActivity token": {255, func(s string) error {
			_, err := c.HeartbeatActivity(ctx, s, nil)
			return err
		}},
		"CompleteAwakeable ID": {255, func(s string) error { return c.CompleteAwakeable(ctx, s, nil) }},
		"FailAwakeable ID":     {255, func(s string) error { return c.FailAwakeable(ctx, s, errors.New("no")) }},
		"Signal name":          {255, func(s string) error { return by.Signal(ctx, s) }},
		"Query name":           {255, func(s string) error { return by.Query(ctx, s, nil) }},
		"Update name": {255, func(s string) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel() // no worker handles the update, so do not wait for it
			return by.Update(ctx, s, nil)
		}},
		"Cancel reason":    {1000, func(s string) error { return c.Handle("other", "").Cancel(ctx, s) }},
		"CancelNow reason": {1000, func(s string) error { return c.Handle("other", "").CancelNow(ctx, s) }},
		"Terminate reason": {1000, func(s string) error { return c.Handle("other", "").Terminate(ctx, s) }},
		"Delete reason":    {1000, func(s string) error { return c.Handle("other", "").Delete(ctx, s) }},
		"Runs filter":      {0, func(s string) error { return first(c.Runs(ctx, client.Filter(s))) }},
		"CreateSchedule ID": {100, func(s string) error {
			_, err := c.CreateSchedule(ctx, s, client.ScheduleOptions{
				Spec: client.ScheduleSpec{Cron: []string{"@yearly"}}, Action: client.ScheduleAction{WorkflowType: "x"},
			})
			return err
		}},
		"CreateSchedule type": {255, func(s string) error {
			_, err := c.CreateSchedule(ctx, "", client.ScheduleOptions{
				Spec: client.ScheduleSpec{Cron: []string{"@yearly"}}, Action: client.ScheduleAction{WorkflowType: s},
			})
			return err
		}},
		"StartUpdate name": {255, func(s string) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel() // no worker handles the update, so do not wait for it
			_, err := by.StartUpdate(ctx, s, nil, client.UpdateOptions{})
			return err
		}},
		"Schedule ID":    {255, func(s string) error { return c.Schedule(s).Delete(ctx) }},
		"Schedule note":  {0, func(s string) error { return c.Schedule("other").Pause(ctx, s) }},
		"Session ID":     {255, func(s string) error { _, err := c.Session(s).Describe(ctx); return err }},
		"Session reason": {1000, func(s string) error { return c.Session("other").Close(ctx, s) }},
		"StartBatch filter": {4096, func(s string) error {
			_, err := c.StartBatch(ctx, client.BatchOptions{Filter: client.Filter(s), Action: client.BatchRepair})
			return err
		}},
		"StartBatch signal": {255, func(s string) error {
			_, err := c.StartBatch(ctx, client.BatchOptions{Filter: "Amount = 1", Action: client.BatchSignal, Signal: s})
			return err
		}},
		"Find ID": {255, func(s string) error { _, err := c.Find(ctx, s); return err }},
		"PreviewBatch filter": {0, func(s string) error {
			_, err := c.PreviewBatch(ctx, client.Filter(s), client.BatchRepair)
			return err
		}},
		"BatchJob ID": {255, func(s string) error { _, err := c.BatchJob(s).Describe(ctx); return err }},
		"BatchJob reason": {1000, func(s string) error {
			_, err := c.BatchJob("other").Stop(ctx, s)
			return err
		}},
		"Pool name": {64, func(s string) error { _, err := c.Pool(s).Describe(ctx); return err }},
		"Pool definition": {200, func(s string) error {
			_, err := c.Pool("p").Set(ctx, client.PoolSettings{Definition: s, Queue: "q", Size: 1})
			return err
		}},
		"Pool queue": {255, func(s string) error {
			_, err := c.Pool("p").Set(ctx, client.PoolSettings{Definition: "d", Queue: s, Size: 1})
			return err
		}},
		"Queue name":  {255, func(s string) error { _, err := c.Queue(s).Describe(ctx); return err }},
		"Queue group": {255, func(s string) error { return c.Queue("other").SetGroup(ctx, s) }},
		"Deployment build": {200, func(s string) error {
			_, err := c.Deployment("q", s).Describe(ctx)
			return err
		}},
	}
	for name, call := range map[string]func(*client.Workflow) error{
		"Describe":  func(w *client.Workflow) error { _, err := w.Describe(ctx); return err },
		"Wait":      func(w *client.Workflow) error { _, err := w.Wait(ctx); return err },
		"Result":    func(w *client.Workflow) error { return w.Result(ctx, nil) },
		"Signal":    func(w *client.Workflow) error { return w.Signal(ctx, "s") },
		"Query":     func(w *client.Workflow) error { return w.Query(ctx, "q", nil) },
		"Update":    func(w *client.Workflow) error { return w.Update(ctx, "u", nil) },
		"Cancel":    func(w *client.Workflow) error { return w.Cancel(ctx, "") },
		"CancelNow": func(w *client.Workflow) error { return w.CancelNow(ctx, "") },
		"Terminate": func(w *client.Workflow) error { return w.Terminate(ctx, "") },
		"Delete":    func(w *client.Workflow) error { return w.Delete(ctx, "") },
		"Redrive":   func(w *client.Workflow) error { _, err := w.Redrive(ctx); return err },
		"Reset": func(w *client.Workflow) error {
			_, err := w.Reset(ctx, client.ResetOptions{Event: 2})
			return err
		},
		"History": func(w *client.Workflow) error { return first(w.History(ctx)) },
	} {
		entry := texts["Runs filter"]
		entry.most, entry.call = 255, func(s string) error {
			return call(c.Handle(strings.ReplaceAll(s, "x", "y"), "")) // an ID that no start here has
		}
		texts[name+" ID"] = entry
		entry.call = func(s string) error { return call(c.Handle("bystander", s)) }
		texts[name+" run ID"] = entry
	}
	covered := map[string]bool{
		"Call": true, "Handle": true, "Schedules": true, "Sessions": true, "Queues": true, "Deployments": true,
		"BatchJobs": true, "Pools": true,
	}
	for name, o := range texts {
		method, _, _ := strings.Cut(name, " ")
		covered[method] = true
		refused := func(what, text string) {
			t.Helper()
			before := sent.Load()
			if err := o.call(text); !errors.Is(err, client.ErrInvalidOptions) || sent.Load() != before {
				t.Errorf("%s, %s: %d requests, %v", name, what, sent.Load()-before, err)
			}
		}
		refused("NUL", "a\x00b")
		refused("invalid UTF-8", "a\xffb")
		if o.most > 0 {
			refused("too long", strings.Repeat("x", max(300, o.most+1)))
			before := sent.Load()
			_ = o.call(strings.Repeat("x", o.most)) // ignore the error; only whether the client sends a request matters
			if sent.Load() == before && name != "Update name" && name != "StartUpdate name" {
				t.Errorf("%s: %d bytes are not sent", name, o.most)
			}
		}
	}
	for _, of := range []reflect.Type{reflect.TypeFor[*client.Client](), reflect.TypeFor[*client.Workflow]()} {
		for i := range of.NumMethod() {
			if !covered[of.Method(i).Name] {
				t.Errorf("no case for %s of %s", of.Method(i).Name, of)
			}
		}
	}
	for name, o := range map[string]struct {
		least, most int64 // smallest and largest number that the client sends; most 0: no upper limit
		call        func(n int64) error
	}{
		"Start RunTimeout": {0, protocol.MaxSeconds, func(n int64) error {
			_, err := c.Start(ctx, "x", nil, client.StartOptions{RunTimeout: time.Duration(n) * time.Second})
			return err
		}},
		"Start ExecutionTimeout": {0, protocol.MaxSeconds, func(n int64) error {
			_, err := c.Start(ctx, "x", nil, client.StartOptions{ExecutionTimeout: time.Duration(n) * time.Second})
			return err
		}},
		"Start Delay": {0, protocol.MaxSeconds, func(n int64) error {
			_, err := c.Start(ctx, "x", nil, client.StartOptions{Delay: time.Duration(n) * time.Second})
			return err
		}},
		"Start Priority": {0, 9, func(n int64) error {
			_, err := c.Start(ctx, "x", nil, client.StartOptions{Priority: new(int(n))})
			return err
		}},
		"Start FairnessWeight": {0, 1000, func(n int64) error {
			_, err := c.Start(ctx, "x", nil, client.StartOptions{FairnessKey: "k", FairnessWeight: int(n)})
			return err
		}},
		"StartActivity MaxAttempts": {0, 0, func(n int64) error {
			_, err := c.StartActivity(ctx, "x", nil, client.ActivityOptions{
				Retry: &client.RetryPolicy{MaxAttempts: int(n)},
			})
			return err
		}},
		"Call schedule jitter": {0, 86400, func(n int64) error {
			return schedule(func(in *protocol.ScheduleRequest, _ string) { in.Jitter = &n })("")
		}},
		"Call retention days": {1, 365, func(n int64) error {
			in := protocol.NamespaceRequest{Name: fmt.Sprint("n", n), RetentionDays: new(int(n))}
			return c.Call(ctx, http.MethodPost, "/api/namespaces", in, nil)
		}},
		"Call budget": {1, 1_000_000_000, func(n int64) error {
			in := protocol.LimitRequest{Workflow: &protocol.Budget{MaxLeases: new(int(n))}}
			return c.Call(ctx, http.MethodPut, "/api/sojourn/task-queues/q/limits", in, nil)
		}},
	} {
		before := sent.Load()
		for _, n := range []int64{o.least - 1, o.most + 1, 1 << 32} {
			if n > o.most && o.most == 0 {
				continue
			}
			if err := o.call(n); !errors.Is(err, client.ErrInvalidOptions) || sent.Load() != before {
				t.Errorf("%s %d: %d requests, %v", name, n, sent.Load()-before, err)
			}
		}
		if err := o.call(max(o.least, 1)); err != nil && !strings.Contains(err.Error(), "not_found") {
			t.Errorf("%s %d: %v", name, max(o.least, 1), err)
		}
	}
	if v, err := by.Describe(ctx); err != nil || v.Closed {
		t.Errorf("the bystander: %+v %v", v, err)
	}
}

// The name of a signal, query or update may be missing from the request body, because the path contains it.
func TestABodyMayLeaveOutTheNameInItsPath(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c, ctx := asking(t, a.URL()), t.Context()
	if _, err := c.Start(ctx, "x", nil, client.StartOptions{WorkflowID: "w"}); err != nil {
		t.Fatal(err)
	}
	for path, in := range map[string]any{
		"/api/workflows/w/signal/s": protocol.SignalRequest{RequestID: "r"},
		"/api/workflows/w/query/q":  protocol.QueryRequest{},
		"/api/workflows/w/update/u": protocol.UpdateRequest{RequestID: "r"},
	} {
		if err := c.Call(ctx, http.MethodPost, path, in, nil); errors.Is(err, client.ErrInvalidOptions) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
