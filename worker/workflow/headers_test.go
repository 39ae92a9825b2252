package workflow_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// relay is a workflow that passes the tenant of its caller on, and returns the tenants of all messages that it got.
func relay(ctx workflow.Context) ([]string, error) {
	seen := []string{workflow.Headers(ctx)["tenant"]}
	workflow.HandleUpdate(ctx, "u", func(ctx workflow.Context) error {
		seen = append(seen, workflow.Headers(ctx)["tenant"])
		return nil
	}, workflow.UpdateOptions{Validate: func(ctx workflow.Context) error {
		if workflow.Headers(ctx)["tenant"] == "" {
			return errors.New("no tenant")
		}
		return nil
	}})
	workflow.HandleQuery(ctx, "q", func(ctx workflow.Context) (string, error) {
		return workflow.Headers(ctx)["tenant"], nil
	})
	out := workflow.WithHeaders(workflow.WithHeaders(ctx, map[string]string{"tenant": "none", "via": "relay"}),
		map[string]string{"tenant": seen[0]})
	workflow.ExecuteActivity(out, "charge")
	workflow.StartChild(out, "ship")
	if err := workflow.SignalWorkflow(out, "other", "paid"); err != nil {
		return nil, err
	}
	workflow.ExecuteActivity(ctx, "plain")
	signals := workflow.Signal(ctx, "go")
	for range 2 {
		if err := signals.Receive(ctx); err != nil {
			return nil, err
		}
		seen = append(seen, signals.Headers()["tenant"])
	}
	return seen, nil
}

// startWithHeaders starts a run of relay for a tenant.
func startWithHeaders(t *testing.T, fn any, tenant string) *app {
	return startRun(t, define(t, fn), engine.Start{RunID: "RUN", Number: 1, Request: protocol.StartRequest{
		Namespace: "default", WorkflowID: "wf", WorkflowType: "flow", TaskQueue: "default",
		Headers: history.Headers{"tenant": tenant},
	}})
}

func TestCodeReadsAndSetsHeaders(t *testing.T) {
	a := startWithHeaders(t, relay, "acme")
	a.drain(nil)
	sent := a.batches[0].commands
	both := map[string]string{"tenant": "acme", "via": "relay"}
	for i, headers := range []map[string]string{both, both, both, nil} {
		want(t, "headers of "+string(sent[i].Type), map[string]string(sent[i].Headers), headers)
	}
	accepted := func(tenant string) string {
		a.decide(engine.AcceptUpdate{Name: "u", Headers: history.Headers{"tenant": tenant}})
		return a.events[len(a.events)-1].Data.(*history.UpdateAccepted).UpdateID
	}
	first := accepted("of the update")
	a.drain(nil)
	want(t, "update failed", a.answered(first).Failed, false)
	rejected := accepted("")
	a.drain(nil)
	want(t, "update without a tenant failed", a.answered(rejected).Failed, true)
	m := replay.New(a.def, replay.Options{ForQueries: true})
	defer m.Close()
	if _, err := m.Apply(a.task(len(a.events)), a.events); err != nil {
		t.Fatal(err)
	}
	p, err := m.Query("q", payload.Payload{}, map[string]string{"tenant": "of the query"})
	var tenant string
	if err = errors.Join(err, payload.Decode(p, &tenant)); err != nil || tenant != "of the query" {
		t.Errorf("query: %q, %v", tenant, err)
	}
	if err := m.Validate("u", payload.Payload{}, map[string]string{"tenant": "t"}); err != nil {
		t.Errorf("validation: %v", err)
	}
	if err := m.Validate("u", payload.Payload{}, nil); err == nil {
		t.Error("validation without headers: accepted")
	}
	for _, tenant := range []string{"of signal 1", "of signal 2"} {
		a.decide(engine.SignalRun{Name: "go", Headers: history.Headers{"tenant": tenant}})
	}
	a.drain(nil)
	want(t, "output", a.output(), any([]any{"acme", "of the update", "of signal 1", "of signal 2"}))
	a.replays()
}

// New code may set other headers, or none: a replay does not compare them, even if it compares arguments. Histories of
// earlier releases have none.
func TestAReplayDoesNotCompareHeaders(t *testing.T) {
	a := startWithHeaders(t, func(ctx workflow.Context) error {
		ctx = workflow.WithHeaders(ctx, map[string]string{"version": "1"})
		workflow.StartChild(ctx, "ship")
		return workflow.ExecuteActivity(ctx, "charge").Get(ctx, nil)
	}, "acme")
	a.drain(nil)
	a.complete(2, 1)
	a.drain(nil)
	for name, headers := range map[string]map[string]string{"other headers": {"version": "2"}, "no headers": nil} {
		def := define(t, func(ctx workflow.Context) error {
			if headers != nil {
				ctx = workflow.WithHeaders(ctx, headers)
			}
			workflow.StartChild(ctx, "ship")
			return workflow.ExecuteActivity(ctx, "charge").Get(ctx, nil)
		})
		stripped := slices.Clone(a.events)
		for i := range stripped {
			switch d := stripped[i].Data.(type) {
			case *history.WorkflowStarted:
				older := *d
				older.Headers, stripped[i].Data = nil, &older
			case *history.ActivityScheduled:
				older := *d
				older.Headers, stripped[i].Data = nil, &older
			}
		}
		for _, events := range [][]history.Event{a.events, stripped} {
			if err := replay.Events(def, replay.Options{CompareArguments: true}, events); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestTooManyHeadersFailTheCall(t *testing.T) {
	a := start(t, func(ctx workflow.Context) error {
		big := workflow.WithHeaders(ctx, map[string]string{"a": strings.Repeat("v", 8192)})
		for _, err := range []error{
			workflow.ExecuteActivity(big, "charge").Get(ctx, nil), workflow.StartChild(big, "ship").Get(ctx, nil),
			workflow.SignalWorkflow(big, "other", "s"), workflow.ContinueAsNew(big),
		} {
			if err == nil || !strings.Contains(err.Error(), "headers") || !errors.Is(err, workflow.ErrInvalidOptions) {
				t.Errorf("got %v", err)
			}
		}
		return nil
	})
	a.drain(nil)
}

func TestHeadersOfTheNextRun(t *testing.T) {
	a := startWithHeaders(t, func(ctx workflow.Context) error {
		return workflow.ContinueAsNew(workflow.WithHeaders(ctx, map[string]string{"hop": "2"}))
	}, "acme")
	a.drain(nil)
	want(t, "headers", map[string]string(a.next.Request.Headers), map[string]string{"hop": "2"})
}
