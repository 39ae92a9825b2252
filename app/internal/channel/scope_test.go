package channel_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

const keeper = "keeper-of-blue" // an id nothing else is called

// mint creates a restricted token of a worker.
func mint(t *testing.T, a *apptest.App, queue, group string) string {
	t.Helper()
	root := &auth.Principal{Name: "test", Roles: auth.Roles}
	made, err := a.Auth().Create(
		within(t), root,
		auth.TokenRequest{Name: queue + group, Roles: []auth.Role{auth.Worker}, Queues: []string{queue}, Group: group},
	)
	if err != nil {
		t.Fatal(err)
	}
	return made.Token
}

// enter connects and registers a worker with a token.
func enter(t *testing.T, a *apptest.App, token, id, queue string) *peer {
	t.Helper()
	p, err := dial(t, a, protocol.ChannelAuth{Token: token, WorkerID: id, Protocol: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.settings(map[string]any{"workerProps": map[string]any{"version": "test"}})
	call[protocol.RegisterResponse](p, protocol.MethodRegister, map[string]any{
		"task_queue": queue, "capabilities": []string{"worker_sessions"}, "supported_activity_types": []string{"work"},
		"supported_workflow_types": []string{"one"},
	})
	return p
}

// The restrictions of a token apply to its sockets with any worker ID, on every method and at every app: the other
// callers connect to an app that has no state of the worker.
func TestATokenIsABoundaryOnEveryMethod(t *testing.T) { apptest.Databases(t, tokenIsABoundary) }

func tokenIsABoundary(t *testing.T, database string) {
	a, b := apptest.Two(t, apptest.Options{Database: database, Change: withTokens})
	own, red, other := mint(t, a, "blue", "one"), mint(t, a, "red", "one"), mint(t, a, "blue", "two")
	k := enter(t, a, own, keeper, "blue")
	start := func() {
		if _, err := a.Broker().Start(within(t), protocol.StartRequest{WorkflowType: "one", TaskQueue: "blue"}); err != nil {
			t.Fatal(err)
		}
	}
	start()
	k.ok(
		k.job(nil),
		map[string]any{
			"commands": []protocol.Command{{Type: protocol.ScheduleActivity, ActivityType: "work", Queue: "blue"}},
		},
	)
	step := k.job(nil)
	start()
	flow := k.job(nil)
	call[protocol.SessionResponse](k, protocol.MethodCreateSession, map[string]any{"session_id": "s"})
	for _, token := range []string{red, other} {
		_, err := dial(t, b, protocol.ChannelAuth{Token: token, WorkerID: keeper, Protocol: 1}, nil)
		var refused *socketio.ConnectError
		if !errors.As(err, &refused) || refused.Reason != "worker_not_found" {
			t.Errorf("a socket with the keeper's id: got %v, want worker_not_found", err)
		}
	}
	// Arguments of each method for a task that another worker holds, with the expected reason.
	forged := func(j protocol.Job, owner string) map[string]any {
		g, ok := protocol.ParseToken(j.Token)
		if !ok {
			t.Fatalf("token %q", j.Token)
		}
		g.Owner = owner
		return map[string]any{
			"jobId": j.ID, "token": g.Token(), "status": "OK", "response": map[string]any{"commands": []any{}}, "reason": "x",
			"lines": []any{map[string]any{"level": "info", "source": "stdout", "text": "t"}}, "part": 1,
		}
	}
	type ask struct {
		reason string
		in     func(owner string) map[string]any
	}
	job := func(j protocol.Job) ask {
		return ask{"task_not_found", func(owner string) map[string]any { return forged(j, owner) }}
	}
	session := ask{"session_not_found", func(string) map[string]any { return map[string]any{"session_id": "s"} }}
	asked := map[string]ask{
		protocol.MethodExtendLock: job(step), protocol.MethodReportProgress: job(step), protocol.MethodCompleteJob: job(step),
		protocol.MethodReturnJob: job(step), protocol.MethodFetchHistory: job(flow), protocol.MethodUploadLogs: job(step),
		protocol.MethodCreateSession: session, protocol.MethodHeartbeatSession: session,
		protocol.MethodReleaseSession: session,
		protocol.MethodCloseSession:   session,
	}
	// These methods concern only the worker of the connection, whose ID was checked when it connected.
	self := map[string]bool{
		protocol.MethodSettings: true, protocol.MethodRegister: true, protocol.MethodDeregister: true,
		protocol.MethodPoll: true, protocol.MethodHeartbeat: true,
	}
	peers := map[string]*peer{"reds": enter(t, b, red, "reds", "red"), "others": enter(t, b, other, "others", "blue")}
	for method := range a.Channel().Handlers() {
		c, known := asked[method]
		if !known && !self[method] {
			t.Fatalf("the test does not know the method %s", method)
		}
		if self[method] {
			continue
		}
		for id, p := range peers {
			for _, owner := range []string{id, keeper} { // its own ID in the token, and the holder's ID
				before := a.Dump()
				e := p.refusal(c.reason, method, c.in(owner))
				if strings.Contains(e.Error()+text(e.Details), keeper) {
					t.Errorf("%s as %s: the refusal names the keeper: %v %v", method, id, e, e.Details)
				}
				if diff := before.Diff(a.Dump()); diff != "" {
					t.Errorf("%s as %s changed:\n%s", method, id, diff)
				}
			}
		}
	}
	beat := call[protocol.WorkerHeartbeatResponse](peers["reds"], protocol.MethodHeartbeat, map[string]any{
		"leases": []map[string]any{
			{"kind": "activity", "task_id": step.ID, "activity_attempt_id": step.Task.Activity.AttemptID, "lease_owner": keeper},
		},
		"sessions": []map[string]any{{"session_id": "s", "epoch": 1}},
	})
	if r := beat.Leases[0].Reason; r == nil || *r != "task_not_found" || beat.Sessions[0].Held ||
		strings.Contains(text(beat), keeper+`"`) && beat.Leases[0].Owner == keeper {
		t.Errorf("a heartbeat that names another's: %s", text(beat))
	}
	// Another token that covers the scope may continue the worker's tasks.
	k2 := enter(t, b, mint(t, a, "blue", "one"), keeper, "blue")
	k2.ok(step, map[string]any{"result": map[string]any{"codec": "avro", "blob": encode(t, "done")}})
	call[json.RawMessage](k2, protocol.MethodDeregister, nil)
}

// A notice is sent to the registered worker only, not to a connection that used its ID before the registration.
func TestNoticesOfAWorkerGoToItsScopeAlone(t *testing.T) {
	a := apptest.Start(t, apptest.Options{Change: withTokens})
	received := make(chan string, 10)
	listen := func(name string) func(*socketio.Socket) {
		notices := rpc.Handlers{}
		rpc.Handle(notices, protocol.NoticeCancel, func(context.Context, protocol.CancelNotice) (rpc.None, error) {
			received <- name
			return rpc.None{}, nil
		})
		return func(s *socketio.Socket) { rpc.Serve(s, notices, rpc.Serving{}) }
	}
	early, err := dial(
		t, a, protocol.ChannelAuth{Token: mint(t, a, "red", ""), WorkerID: keeper, Protocol: 1}, listen("red"),
	)
	if err != nil {
		t.Fatal(err)
	}
	early.settings(nil)
	k, err := dial(
		t, a, protocol.ChannelAuth{Token: mint(t, a, "blue", ""), WorkerID: keeper, Protocol: 1}, listen("blue"),
	)
	if err != nil {
		t.Fatal(err)
	}
	k.settings(nil)
	call[protocol.RegisterResponse](k, protocol.MethodRegister, map[string]any{"task_queue": "blue"})
	early.refusal("worker_not_found", protocol.MethodDeregister, nil)
	early.refusal("worker_not_found", protocol.MethodRegister, map[string]any{"task_queue": "red"})
	early.refusal("worker_not_found", protocol.MethodPoll, map[string]any{"timeoutMs": 0, "queues": []string{"red"}})
	for range 3 {
		a.Connections().Cancel("default", keeper, protocol.CancelNotice{TaskID: "x"})
		if name := <-received; name != "blue" {
			t.Errorf("a notice went to %s", name)
		}
	}
	if len(received) > 0 {
		t.Errorf("%d more notices", len(received))
	}
}

func text(v any) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}
