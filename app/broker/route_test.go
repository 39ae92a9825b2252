package broker_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// of registers a worker with a token of the group.
func (a *app) of(group, id string) {
	a.t.Helper()
	ctx := auth.With(a.t.Context(), &auth.Principal{
		TokenID: "t", Name: "t", Roles: []auth.Role{auth.Worker}, Group: group,
	})
	must[protocol.RegisterResponse](a.t)(a.Register(ctx, protocol.RegisterRequest{
		WorkerID: id, TaskQueue: "default", WorkflowTypes: []string{"wf"}, AnyActivity: true,
	}))
}

func (a *app) route(queue, group string) protocol.RouteState {
	a.t.Helper()
	return must[protocol.RouteState](a.t)(a.Route(a.t.Context(), protocol.RouteRequest{
		Queue: queue, Identity: "op", Group: group,
	}))
}

// If an operator routes a queue to a group at one app, only workers of this group get its tasks, at every app and also
// on polls that already wait. Without a live worker in the group, the tasks wait and report the reason. A route of the
// namespace applies to all queues without a group.
func TestAQueueIsRoutedToAGroup(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		sender, at := twoApps(t, database)
		wait := func(want protocol.WaitReason, group string) {
			t.Helper()
			for name, a := range map[string]*app{"the app that sent it": sender, "the workers' app": at} {
				v := must[protocol.RunView](t)(a.Describe(t.Context(), protocol.Target{WorkflowID: "one"}))
				if v.Wait == nil || v.Wait.Reason != want || v.Wait.Group != group || v.Wait.Queue != "default" {
					t.Errorf("%s the run waits for %+v, want %s", name, v.Wait, want)
				}
			}
		}
		at.of("east", "e")
		open := make(chan *protocol.Task, 1)
		go func() { open <- at.poll("e", protocol.KindWorkflow, 30) }()
		at.eventually("a poll is held", func() bool {
			waiting := 0
			for _, q := range at.Dispatch().Queues() {
				waiting += q.Waiting
			}
			return waiting > 0
		})
		if r := sender.route("default", "west"); r.Group != "west" || r.Workers != 0 || r.FromNamespace {
			t.Errorf("routed: %+v", r)
		}
		at.eventually("the other app knows", func() bool {
			return must[protocol.QueueState](t)(at.Queue(t.Context(), "", "default")).Group == "west" && !polled(at)
		})
		sender.start("one")
		wait(protocol.WaitGroupOffline, "west")
		if task := at.poll("e", protocol.KindWorkflow, 0); task != nil {
			t.Errorf("a worker of another group gets %+v", task.Workflow)
		}
		state := must[protocol.QueueState](t)(sender.Queue(t.Context(), "", "default"))
		waiting := must[[]protocol.TaskWhy](t)(sender.QueueWaiting(t.Context(), "", "default"))
		if len(waiting) != 1 || waiting[0].Wait == nil || waiting[0].Wait.Reason != protocol.WaitGroupOffline ||
			state.Admission.Workflow.Slots != 0 {
			t.Errorf("the queue has %+v, %d slots", waiting, state.Admission.Workflow.Slots)
		}

		at.of("west", "w")
		if r := must[protocol.RouteState](t)(sender.Routed(t.Context(), "", "default")); r.Workers != 1 {
			t.Errorf("with a worker of the group: %+v", r)
		}
		at.taken(at.decide(at.task("w", protocol.KindWorkflow, "one"), greet()))
		if task := at.poll("e", protocol.KindActivity, 0); task != nil {
			t.Errorf("a worker of another group gets %+v", task.Activity)
		}

		// route to the other group: the poll that already waits gets the activity, without another poll
		sender.route("default", "east")
		select {
		case task := <-open:
			t.Fatalf("the poll that is held ends with %+v", task)
		default:
		}
		at.taken(at.result(at.task("e", protocol.KindActivity, "one"), "done"))
		if task := <-open; task == nil || task.Workflow == nil || task.Workflow.WorkflowID != "one" {
			t.Fatalf("the waiting poll gets %+v", task)
		} else {
			at.taken(at.decide(task, greet()))
		}

		// the route of the namespace applies to queues without a group
		sender.route("", "west")
		if task := at.poll("w", protocol.KindActivity, 0); task != nil {
			t.Errorf("the queue's own group does not count: %+v", task.Activity)
		}
		if r := sender.route("default", ""); r.Group != "west" || !r.FromNamespace || r.Workers != 1 {
			t.Errorf("with the namespace's: %+v", r)
		}
		at.eventually("the namespace's group gets it", func() bool {
			task := at.poll("w", protocol.KindActivity, 1)
			if task != nil {
				at.taken(at.result(task, "done"))
			}
			return task != nil
		})
		if task := at.poll("e", protocol.KindWorkflow, 0); task != nil {
			t.Errorf("a worker of another group than the namespace's gets %+v", task.Workflow)
		}
		if r := sender.route("", ""); r.Group != "" {
			t.Errorf("after the route was removed: %+v", r)
		}
		at.eventually("every group gets work again", func() bool { return at.poll("e", protocol.KindWorkflow, 1) != nil })
		for _, bad := range []string{strings.Repeat("g", 256), "a\x00b"} {
			_, err := sender.Route(t.Context(), protocol.RouteRequest{Queue: "default", Group: bad})
			if protocol.ReasonOf(err) != protocol.ReasonValidation {
				t.Errorf("%.10q: %v", bad, err)
			}
		}
		audits, err := sender.Audits(t.Context(), "default", false, 10)
		if err != nil || len(audits) != 5 || audits[0].Action != "namespace.route" ||
			audits[4].Action != "task_queue.route" || audits[4].Detail != "to group west" {
			t.Errorf("noted: %+v, %v", audits, err)
		}
	})
}

// polled reports whether a poll waits at the queue.
func polled(a *app) bool {
	for _, q := range a.Dispatch().Queues() {
		if q.Waiting > 0 {
			return true
		}
	}
	return false
}
