package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

func TestAScheduleIsCreatedChangedFiredAndDeleted(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c, ctx := asking(t, a.URL()), t.Context()
		o := client.ScheduleOptions{
			Spec:   client.ScheduleSpec{Cron: []string{"@yearly"}, TimeZone: "Europe/Berlin"},
			Action: client.ScheduleAction{WorkflowType: "basket", Args: client.Args{[]string{"milk"}}, RunTimeout: time.Hour},
			Jitter: 90 * time.Second, MaxRuns: 7, Note: "harvest",
		}
		s, err := c.CreateSchedule(ctx, "harvest", o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.CreateSchedule(ctx, "harvest", o); client.ReasonOf(err) != client.ReasonScheduleExists {
			t.Errorf("a second schedule with the ID: %v", err)
		}
		v, err := s.Describe(ctx)
		if err != nil || v.ID != "harvest" || v.WorkflowType != "basket" || v.Spec.TimeZone != "Europe/Berlin" ||
			v.Overlap != client.OverlapSkip || v.Remaining == nil || *v.Remaining != 7 || v.Paused || v.NextFireAt.IsZero() {
			t.Errorf("created: %+v, %v", v, err)
		}
		if err := s.Pause(ctx, "frost"); err != nil {
			t.Fatal(err)
		}
		overlap := client.OverlapAllowAll
		if err := s.Update(ctx, client.ScheduleChanges{Overlap: &overlap}); err != nil {
			t.Fatal(err)
		}
		v, err = s.Describe(ctx)
		if err != nil || !v.Paused || v.Note != "frost" || v.Overlap != client.OverlapAllowAll || len(v.Spec.Cron) != 1 {
			t.Errorf("paused: %+v, %v", v, err)
		}
		if fired, err := s.Trigger(ctx, ""); err != nil || fired.Outcome != "skipped" || fired.Reason == "" {
			t.Errorf("triggered while paused: %+v, %v", fired, err)
		}
		if err := s.Resume(ctx, ""); err != nil {
			t.Error(err)
		}
		fired, err := s.Trigger(ctx, "")
		if err != nil || fired.Outcome != "triggered" {
			t.Fatalf("triggered: %+v, %v", fired, err)
		}
		run, err := c.Handle(fired.WorkflowID, "").Describe(ctx)
		if err != nil || run.WorkflowType != "basket" || string(run.Input) != `[["milk"]]` || run.RunDeadline.IsZero() {
			t.Errorf("the run: %+v, %v", run, err)
		}
		from := time.Date(2020, 6, 1, 0, 0, 0, 0, time.UTC)
		firings, err := s.Backfill(ctx, from, from.AddDate(2, 0, 0), "")
		if err != nil || len(firings) != 2 || firings[0].At.Year() != 2020 {
			t.Errorf("backfill: %+v, %v", firings, err)
		}
		if all := collect(t, c.Schedules(ctx)); len(all) != 1 || all[0].Fires != 3 {
			t.Errorf("listed: %+v", all)
		}
		if err := s.Delete(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Schedule("none").Describe(ctx); client.ReasonOf(err) != client.ReasonScheduleNotFound {
			t.Errorf("an unknown schedule: %v", err)
		}
	})
}

// The action of a schedule has a field for each member that the API has, so that a change of the action loses none.
func TestAScheduleActionHasAllMembersOfTheAPI(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c, ctx := asking(t, a.URL()), t.Context()
	s, err := c.CreateSchedule(ctx, "all", client.ScheduleOptions{
		Spec: client.ScheduleSpec{Cron: []string{"@yearly"}}, Action: client.ScheduleAction{WorkflowType: "plain"},
	})
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]json.RawMessage{}
	for _, action := range []client.ScheduleAction{
		{
			WorkflowType: "basket", ExecutionTimeout: time.Hour, RunTimeout: time.Hour, ReusePolicy: client.AllowReuse,
			ConflictPolicy: client.TerminateExisting, Headers: map[string]string{"tenant": "a"},
		},
		{
			ActivityType: "wash", Args: client.Args{1}, WorkflowID: "laundry", Queue: "wet", BusinessKey: "b",
			Memo: map[string]any{"m": 1}, SearchAttributes: map[string]any{"Amount": 1},
			Retry: &client.RetryPolicy{MaxAttempts: 3}, StartToClose: time.Minute, ScheduleToClose: time.Hour,
			ScheduleToStart: time.Minute, Heartbeat: time.Second, MaxBlamedLosses: 2, Requirements: []string{"water"},
			SessionID: "sink", SessionFallback: time.Minute, SessionFailFast: true,
			Definition: &client.SessionDefinition{Name: "fill", Arguments: client.Args{2}, OnLost: "fail"},
		},
		{ActivityType: "wash", SessionID: "sink", Session: &client.SessionOptions{}},
	} {
		if err := s.Update(ctx, client.ScheduleChanges{Action: &action}); err != nil {
			t.Fatal(err)
		}
		var v struct {
			Action map[string]json.RawMessage `json:"action"`
		}
		if err := c.Call(ctx, http.MethodGet, "/api/schedules/all", nil, &v); err != nil {
			t.Fatal(err)
		}
		maps.Copy(stored, v.Action)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[protocol.ScheduleAction]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if _, ok := stored[name]; !ok && !f.Anonymous {
			t.Errorf("no field of client.ScheduleAction sets %s", name)
		}
	}
	for name, want := range map[string]string{
		"reuse_policy": `"allow"`, "conflict_policy": `"terminate-existing"`, "affinity": `"soft"`, "fail_fast": "true",
		"fallback_after_seconds": "60", "max_blamed_losses": "2", "requirements": `["water"]`,
		"headers": `{"tenant":"a"}`,
	} {
		if got := string(stored[name]); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// A list iterator reads all pages each time that it is ranged over, also by several goroutines at once.
func TestAListIsReadFromItsFirstPageEachTime(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c, ctx := asking(t, a.URL()), t.Context()
	const most = 201 // a page has 200
	for i := range most {
		if _, err := c.Start(ctx, "order", nil, client.StartOptions{WorkflowID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	runs := c.Runs(ctx, client.Where("WorkflowType").Is("order"))
	if n := len(collect(t, runs)); n != most {
		t.Errorf("the first range has %d runs, want %d", n, most)
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			n := 0
			for _, err := range runs {
				if err != nil {
					t.Error(err)
					return
				}
				n++
			}
			if n != most {
				t.Errorf("a further range has %d runs, want %d", n, most)
			}
		})
	}
	all.Wait()
}

func TestAnUpdateIsStartedAndAwaitedByItsHandle(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	work(t, a)
	c, ctx := asking(t, a.URL()), t.Context()
	w, err := c.Start(ctx, "basket", client.Args{[]string{"milk"}}, client.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o := client.UpdateOptions{RequestID: "add-tea"}
	for range 2 { // the second request is the first one again
		u, err := w.StartUpdate(ctx, "add", client.Args{"tea"}, o)
		if err != nil || u.ID == "" {
			t.Fatalf("%+v, %v", u, err)
		}
		var n int
		if err := u.Result(ctx, &n); err != nil || n != 2 {
			t.Errorf("got %d, %v, want 2", n, err)
		}
	}
	_, err = w.StartUpdate(ctx, "add", client.Args{"bread"}, o)
	if client.ReasonOf(err) != client.ReasonRequestConflict {
		t.Errorf("the request ID with other content: %v", err)
	}
	u, err := w.StartUpdate(ctx, "add", client.Args{""}, client.UpdateOptions{})
	if err == nil {
		err = u.Result(ctx, nil)
	}
	if client.ReasonOf(err) != client.ReasonUpdateFailed {
		t.Errorf("an update that fails: %v", err)
	}
}

func TestSessionsQueuesAndDeploymentsAreOperatedByTheirHandles(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c, ctx := asking(t, a.URL()), t.Context()
	r := worker.NewRegistry()
	r.Activity("wash", func(context.Context) error { return nil })
	w, err := worker.New(workeropt.Over(link.Local{Join: a.Connections().Join}, worker.Options{
		Registry: r, WorkerID: "w1", BuildID: "v1", Release: "test",
		Logger:    slogbridge.Slog(apptest.Log(t)),
		Sessions:  worker.SessionOptions{Max: 5},
		Executors: worker.ExecutorOptions{Disabled: true},
	}))
	if err != nil {
		t.Fatal(err)
	}
	working, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(working) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	run, err := c.StartActivity(ctx, "wash", nil, client.ActivityOptions{SessionID: "sink/1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Result(ctx, nil); err != nil {
		t.Fatal(err)
	}

	s := c.Session("sink/1")
	v, err := s.Describe(ctx)
	if err != nil || v.ID != "sink/1" || v.WorkerID != "w1" || v.Status != "active" || v.Epoch == 0 {
		t.Errorf("session: %+v, %v", v, err)
	}
	attempts := collect(t, s.Attempts(ctx, v.Epoch))
	if len(attempts) != 1 || attempts[0].ActivityType != "wash" || attempts[0].Outcome != "completed" {
		t.Errorf("attempts: %+v", attempts)
	}
	if events := collect(t, s.Timeline(ctx)); len(events) == 0 || events[0].WorkerID != "w1" || events[0].At.IsZero() {
		t.Errorf("timeline: %+v", events)
	}
	if err := s.Close(ctx, "clean"); err != nil {
		t.Error(err)
	}
	if v, err := s.Describe(ctx); err != nil || v.Status != "closed" || v.ClosedAt.IsZero() {
		t.Errorf("closed session: %+v, %v", v, err)
	}
	if err := s.Forget(ctx, true, ""); err != nil {
		t.Error(err)
	}
	if err := s.Migrate(ctx, "", false, ""); client.ReasonOf(err) != client.ReasonSessionNotFound {
		t.Errorf("a forgotten session: %v", err)
	}

	q := c.Queue("default")
	limits := client.QueueLimits{Activities: client.TaskLimits{MaxLeases: new(3)}}
	if err := q.SetLimits(ctx, limits); err != nil {
		t.Fatal(err)
	}
	got, err := q.Limits(ctx)
	if n := got.Activities.MaxLeases; err != nil || n == nil || *n != 3 || got.WorkflowTasks.MaxLeases != nil {
		t.Errorf("limits: %+v, %v", got, err)
	}
	if err := q.SetGroup(ctx, "gpu"); err != nil {
		t.Fatal(err)
	}
	state, err := q.Describe(ctx)
	if err != nil || state.Group != "gpu" || len(state.BuildIDs) != 1 || state.BuildIDs[0].BuildID != "v1" {
		t.Errorf("queue: %+v, %v", state, err)
	}
	if all := collect(t, c.Queues(ctx)); len(all) != 1 || all[0].Name != "default" {
		t.Errorf("queues: %+v", all)
	}

	d := c.Deployment("default", "v1")
	if result, err := d.Promote(ctx); err != nil || result.Outcome != "promoted" || !result.Selected {
		t.Errorf("promoted: %+v, %v", result, err)
	}
	if _, err := d.Rollback(ctx); client.ReasonOf(err) != client.ReasonNoEarlierDeployment {
		t.Errorf("without an earlier deployment: %v", err)
	}
	if all := collect(t, c.Deployments(ctx)); len(all) != 1 || all[0].Name != d.Name || !all[0].Selected {
		t.Errorf("deployments: %+v", all)
	}
	if result, err := d.Drain(ctx); err != nil || result.Outcome != "drained" {
		t.Errorf("drained: %+v, %v", result, err)
	}
	if result, err := d.Resume(ctx); err != nil || result.Outcome != "resumed" {
		t.Errorf("resumed: %+v, %v", result, err)
	}
	if v, err := d.Describe(ctx); err != nil || v.BuildID != "v1" || v.Queue != "default" || v.ActiveWorkers != 1 {
		t.Errorf("deployment: %+v, %v", v, err)
	}
	if _, err := d.Rollback(ctx); client.ReasonOf(err) != client.ReasonNotPromoted {
		t.Errorf("a deployment that is not promoted: %v", err)
	}
	if _, err := c.Deployment("default", "v9").Describe(ctx); client.ReasonOf(err) != client.ReasonDeploymentNotFound {
		t.Errorf("an unknown build: %v", err)
	}
}

func TestFiltersSelectRunsByTheirValues(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c, ctx := asking(t, a.URL()), t.Context()
	for i, customer := range []string{"Ada", `O'Neill \ "Bob"`, "Ada-Marie", ""} {
		o := client.StartOptions{WorkflowID: fmt.Sprint(i), SearchAttributes: map[string]any{"Amount": 100 * i}}
		if customer != "" {
			o.SearchAttributes["Customer"] = customer
		}
		if _, err := c.Start(ctx, "order", nil, o); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Start(ctx, "other", nil, client.StartOptions{WorkflowID: "other"}); err != nil {
		t.Fatal(err)
	}
	type cents int
	type name string
	orders, customer, amount := client.Where("WorkflowType").Is("order"), client.Where("Customer"), client.Where("Amount")
	for want, f := range map[string]client.Filter{
		"3 2 1 0":       orders,
		"other 3 2 1 0": "",
		"1":             customer.Is(`O'Neill \ "Bob"`),
		"2 0":           customer.StartsWith("Ada"),
		"3":             orders.And(customer.Missing()),
		"2 1":           customer.IsNot("Ada").And(orders).And(customer.Missing().Not()),
		"2":             amount.Above(100).And(amount.AtMost(200)),
		"3 0":           amount.In(0, 300),
		"1 0":           amount.In(cents(100), time.Duration(0)),
		"0":             customer.Is(name("Ada")).And(orders),
		"3 1 0":         amount.Below(100).Or(amount.AtLeast(300)).Or(client.Where("WorkflowId").Is("1")),
		"other":         orders.Not().And(client.Where("StartTime").Above(time.Now().Add(-time.Hour))),
	} {
		got := ""
		for _, run := range collect(t, c.Runs(ctx, f)) {
			got += " " + run.WorkflowID
		}
		if got != " "+want {
			t.Errorf("%s selects%s, want %s", f, got, want)
		}
	}
	if err := first(c.Runs(ctx, client.Where("a`b c").Is(1))); errors.Is(err, client.ErrInvalidOptions) {
		t.Errorf("a name with a backquote: %v", err)
	}
}

func TestABatchJobIsPreviewedCreatedAndStopped(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c, ctx := asking(t, a.URL()), t.Context()
		for i := range 5 {
			if _, err := c.Start(ctx, "basket", nil, client.StartOptions{WorkflowID: fmt.Sprint("b", i)}); err != nil {
				t.Fatal(err)
			}
		}
		filter := client.Where("WorkflowType").Is("basket")
		n, err := c.PreviewBatch(ctx, filter, client.BatchSignal)
		if err != nil || n.Runs != 5 || !n.Complete {
			t.Errorf("preview: %+v, %v", n, err)
		}
		job, err := c.StartBatch(ctx, client.BatchOptions{
			Filter: filter, Action: client.BatchSignal, Signal: "add", Args: client.Args{"milk"}, Limit: 4,
			RatePerSecond: 1000,
		})
		if err != nil {
			t.Fatal(err)
		}
		v, err := job.Wait(ctx)
		if err != nil || v.State != client.BatchCompleted || v.Done != 4 || v.Signal != "add" || v.ID != job.ID {
			t.Errorf("the job: %+v, %v", v, err)
		}
		if _, err := job.Stop(ctx, ""); client.ReasonOf(err) != client.ReasonBatchJobClosed {
			t.Errorf("a completed job was stopped: %v", err)
		}
		if done := collect(t, job.Results(ctx, "done")); len(done) != 4 || done[0].WorkflowID == "" || done[0].At.IsZero() {
			t.Errorf("results: %+v", done)
		}
		slow, err := c.StartBatch(ctx, client.BatchOptions{Filter: filter, Action: client.BatchCancel, RatePerSecond: 1})
		if err != nil {
			t.Fatal(err)
		}
		if v, err := slow.Stop(ctx, "wrong filter"); err != nil || v.State != client.BatchStopped ||
			v.EndReason != "wrong filter" {
			t.Errorf("stopped: %+v, %v", v, err)
		}
		if all := collect(t, c.BatchJobs(ctx)); len(all) != 2 || all[0].ID != slow.ID {
			t.Errorf("listed: %+v", all)
		}
		if _, err := c.BatchJob("none").Describe(ctx); client.ReasonOf(err) != client.ReasonBatchJobNotFound {
			t.Errorf("an unknown job: %v", err)
		}
	})
}
