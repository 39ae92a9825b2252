package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func index(_ context.Context, path string) (int, error) { return len(path), nil }
func rebuild(context.Context) error                     { return nil }
func research(workflow.Context, string) error           { return nil }

func refused(t *testing.T, register func(*worker.Registry), words ...string) {
	t.Helper()
	defer func() {
		t.Helper()
		text := fmt.Sprint(recover())
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("got panic %q, want it to contain %q", text, w)
			}
		}
	}()
	r := worker.NewRegistry()
	register(r)
	t.Errorf("was accepted: %v %v", r.WorkflowTypes(), r.ActivityTypes())
}

func TestWrongSignaturesPanicAtRegistrationWithAReason(t *testing.T) {
	refused(t, func(r *worker.Registry) {
		r.Workflow("w", index)
	}, `workflow "w"`, "does not take a workflow.Context first", "worker_test.index")
	refused(t, func(r *worker.Registry) { r.Workflow("w", func(workflow.Context) {}) }, "returns 0 values")
	refused(t, func(r *worker.Registry) { r.Workflow("", research) }, "has no name")
	refused(t, func(r *worker.Registry) { r.WorkflowVersion("w", 0, research) }, "count from 1")
	refused(t, func(r *worker.Registry) {
		r.Workflow("w", research)
		r.Workflow("w", research)
	}, "version 1 is registered twice")
	refused(t, func(r *worker.Registry) {
		r.Activity("a", research)
	}, `activity "a"`, "does not take a context.Context first", "worker_test.research")
	refused(t, func(r *worker.Registry) { r.Activity("a", "index") }, "string is not a function")
	refused(t, func(r *worker.Registry) {
		r.Activity("a", index)
		r.Activity("a", rebuild)
	}, `activity "a" is registered twice`)
	refused(t, func(r *worker.Registry) {
		r.Activity("a", index, activity.Options{Recovery: &activity.SessionRecoveryPolicy{}})
	}, "RebuildActivity is empty")
}

func TestRegistryFindsByNameAndNamesByFunction(t *testing.T) {
	r := worker.NewRegistry()
	r.Workflow("research", research)
	r.WorkflowVersion("research", 3, research)
	r.Activity("index", index, activity.Isolated)
	r.Activity("rebuild", rebuild)
	if got := fmt.Sprint(r.WorkflowTypes(), r.ActivityTypes()); got != "[research] [index rebuild]" {
		t.Errorf("types: got %s", got)
	}
	if w, ok := r.FindWorkflow("research"); !ok || fmt.Sprint(w.Versions()) != "[1 3]" {
		t.Errorf("workflow: got %v, %v", w, ok)
	}
	a, ok := r.FindActivity("index")
	if !ok || !a.Options.Isolated {
		t.Fatalf("activity: got %+v, %v", a, ok)
	}
	args, err := payload.EncodeArgs("four")
	if err != nil {
		t.Fatal(err)
	}
	out, err := activitywire.Invoke(t.Context(), a, args, nil)
	var n int
	if err != nil || payload.Decode(out, &n) != nil || n != 4 {
		t.Errorf("invoke: got %d, %v", n, err)
	}
	if name, err := r.ActivityName(index); name != "index" || err != nil {
		t.Errorf("name: got %q, %v", name, err)
	}
	if name, err := r.WorkflowName(index); err == nil || !strings.Contains(err.Error(), "workflow function worker_test.index is not registered with this worker") {
		t.Errorf("an activity as a workflow: got %q, %v", name, err)
	}
	if name, err := r.WorkflowName(research); name != "research" || err != nil {
		t.Errorf("one function in two versions: got %q, %v", name, err)
	}
	if _, ok := r.FindActivity("nothing"); ok {
		t.Error("found an activity that is not registered")
	}
	if _, err := r.ActivityName(research); err == nil || !strings.Contains(err.Error(), "not registered") {
		t.Errorf("unregistered function: got %v", err)
	}
}

func TestFunctionUnderTwoNamesIsCalledByName(t *testing.T) {
	r := worker.NewRegistry()
	r.Activity("one", index)
	r.Activity("two", index)
	if _, err := r.ActivityName(index); err == nil || !strings.Contains(err.Error(), `["one" "two"]`) {
		t.Errorf("got %v", err)
	}
}

func TestRegistryChecksRebuildActivities(t *testing.T) {
	r := worker.NewRegistry()
	r.Activity("index", index, activity.Options{Recovery: &activity.SessionRecoveryPolicy{RebuildActivity: "rebuild"}})
	if err := r.Check(); err == nil || !strings.Contains(err.Error(), `"rebuild" is not registered`) {
		t.Errorf("got %v", err)
	}
	r.Activity("rebuild", rebuild)
	if err := r.Check(); err != nil {
		t.Errorf("got %v", err)
	}
	mixed := worker.NewRegistry()
	mixed.Activity(
		"index", index, activity.Isolated,
		activity.Options{Recovery: &activity.SessionRecoveryPolicy{RebuildActivity: "rebuild"}},
	)
	mixed.Activity("rebuild", rebuild)
	if err := mixed.Check(); err == nil || !strings.Contains(err.Error(), "must both be isolated") {
		t.Errorf("got %v", err)
	}
}

func TestDoublesReplaceCodeByItsRegisteredNames(t *testing.T) {
	original := func(context.Context) (string, error) { return "original", nil }
	flow := func(workflow.Context) error { return nil }
	r := worker.NewRegistry()
	r.Activity("a", original, activity.Isolated)
	r.Workflow("w", flow)
	r.ReplaceActivity("a", func(context.Context) (string, error) { return "double", nil })
	r.ReplaceWorkflow("w", func(workflow.Context) error { return errors.New("double") })
	d, _ := r.FindActivity("a")
	result, err := activitywire.Invoke(t.Context(), d, payload.Payload{}, nil)
	var text string
	if err = errors.Join(err, payload.Decode(result, &text)); err != nil || text != "double" || !d.Options.Isolated {
		t.Errorf("got %q with %+v, %v", text, d.Options, err)
	}
	if name, err := r.ActivityName(original); name != "a" || err != nil {
		t.Errorf("the first function has the name %q, %v", name, err)
	}
	if name, err := r.WorkflowName(flow); name != "w" || err != nil {
		t.Errorf("the first workflow has the name %q, %v", name, err)
	}
	for _, wrong := range []func(){
		func() { r.ReplaceActivity("none", original) }, func() { r.ReplaceActivity("a", 7) },
		func() { r.ReplaceWorkflow("none", flow) }, func() { r.ReplaceWorkflow("w", original) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("replacing an unregistered name, or with a wrong signature, did not panic")
				}
			}()
			wrong()
		}()
	}
}
