package broker_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestAStartThatNamesABuildGoesToIt(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		ctx := t.Context()
		for _, build := range []string{"one", "two"} {
			must[protocol.RegisterResponse](t)(a.Register(ctx, protocol.RegisterRequest{
				WorkerID: build, TaskQueue: "default", WorkflowTypes: []string{"wf"}, BuildID: build,
			}))
		}
		for _, in := range []protocol.StartRequest{
			{BuildID: "two"}, {Compatibility: "two"}, {BuildID: "two", Compatibility: "two"},
		} {
			in.WorkflowType = "wf"
			out := must[protocol.StartResponse](t)(a.Start(ctx, in))
			if len(out.Warnings) > 0 {
				t.Errorf("%+v warns: %+v", in, out.Warnings)
			}
			if task := a.poll("one", protocol.KindWorkflow, 0); task != nil {
				t.Errorf("%+v: the task was dispatched to another build", in)
			}
			task := a.poll("two", protocol.KindWorkflow, 5)
			if task == nil {
				t.Fatalf("%+v: the task was not dispatched to its build", in)
			}
			a.ok(a.decide(task, protocol.Command{Type: protocol.ContinueAsNew}))
			if task := a.poll("one", protocol.KindWorkflow, 0); task != nil {
				t.Errorf("%+v: the next run was dispatched to another build", in)
			}
			a.ok(a.decide(a.poll("two", protocol.KindWorkflow, 5), done()))
		}
		out := must[protocol.StartResponse](t)(a.Start(ctx, protocol.StartRequest{WorkflowType: "wf", BuildID: "three"}))
		if len(out.Warnings) != 1 || out.Warnings[0].Code != protocol.WarnUnknownBuild ||
			out.Warnings[0].Subject != "build_id" {
			t.Errorf("a build that no worker has registered: %+v", out.Warnings)
		}
		for _, in := range []protocol.StartRequest{
			{BuildID: "two", Compatibility: "one"}, {BuildID: "two", Cron: "@hourly", WorkflowID: "c"},
		} {
			in.WorkflowType = "wf"
			if _, err := a.Start(ctx, in); protocol.ReasonOf(err) != protocol.ReasonValidation {
				t.Errorf("%+v: %v", in, err)
			}
		}
		a.start("plain") // a start without a build runs on any build
		if a.poll("one", protocol.KindWorkflow, 5) == nil {
			t.Error("a start without a build was not delivered")
		}
	})
}
