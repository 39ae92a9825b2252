package channel_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

const ceiling = 2 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// within returns a context with the time limit of a test.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ceiling)
	t.Cleanup(cancel)
	return ctx
}

// peer is a worker that is not written in Go: a plain socket.
type peer struct {
	*socketio.Client
	rpc.SocketCaller
	t *testing.T
}

// dial connects a worker without fetching its settings.
func dial(t *testing.T, a *apptest.App, auth any, on func(*socketio.Socket)) (*peer, error) {
	t.Helper()
	c, err := socketio.Dial(within(t), a.URL(), protocol.NamespaceWorkers, auth, socketio.DialOptions{OnSocket: on})
	if err != nil {
		return nil, err
	}
	p := &peer{Client: c, SocketCaller: rpc.SocketCaller{Socket: c.Socket}, t: t}
	t.Cleanup(p.hangUp)
	return p, nil
}

func (p *peer) hangUp() {
	p.Client.Close(nil)
	ctx, cancel := context.WithTimeout(context.Background(), ceiling)
	defer cancel()
	if err := p.Wait(ctx); err != nil {
		p.t.Error(err)
	}
}

// join connects a worker and fetches its settings.
func join(t *testing.T, a *apptest.App, id, version string) *peer {
	t.Helper()
	p, err := dial(t, a, protocol.ChannelAuth{WorkerID: id, Protocol: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.settings(map[string]any{
		"workerId": id, "cpuUsagePercentage": 1.5, "workerProps": map[string]any{"version": version, "WORKER_CONCURRENCY": 3},
	})
	return p
}

func (p *peer) settings(machine any) protocol.WorkerSettings {
	p.t.Helper()
	ack, err := p.EmitWithAck(within(p.t), protocol.EventFetchSettings, machine)
	if err != nil {
		p.t.Fatal(err)
	}
	var s protocol.WorkerSettings
	if err := json.Unmarshal(ack[0], &s); err != nil {
		p.t.Fatalf("%s: %v", ack[0], err)
	}
	return s
}

// call calls a method whose result has the type T.
func call[T any](p *peer, method string, in any) T {
	p.t.Helper()
	var out T
	if err := p.Call(within(p.t), method, in, &out); err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
	return out
}

// refusal calls a method that must be rejected with a code.
func (p *peer) refusal(code, method string, in any) *rpc.Error {
	p.t.Helper()
	err := p.Call(within(p.t), method, in, nil)
	var e *rpc.Error
	if !errors.As(err, &e) || e.Code != code {
		p.t.Fatalf("%s: got %v, want %s", method, err, code)
	}
	return e
}

// job polls until it receives a job.
func (p *peer) job(extra map[string]any) protocol.Job {
	p.t.Helper()
	in := map[string]any{"timeoutMs": 20_000}
	for k, v := range extra {
		in[k] = v
	}
	out := call[*protocol.Job](p, protocol.MethodPoll, in)
	if out == nil {
		p.t.Fatal("no job")
	}
	return *out
}

// scheduler returns a worker for workflow "one": a single activity with the given policy, which the test runs.
func scheduler(t *testing.T, a *apptest.App) *peer {
	t.Helper()
	p := join(t, a, "scheduler", "test")
	slots, none := 5, 0
	call[protocol.RegisterResponse](p, protocol.MethodRegister, protocol.RegisterRequest{
		Runtime: "other", WorkflowTypes: []string{"one"}, WorkflowSlots: &slots, ActivitySlots: &none,
	})
	return p
}

// schedule starts a run and decides its first task, which schedules its activity.
func schedule(t *testing.T, a *apptest.App, s *peer, maxAttempts int) (run string) {
	t.Helper()
	answer, err := a.Broker().Start(within(t), protocol.StartRequest{WorkflowType: "one"})
	if err != nil {
		t.Fatal(err)
	}
	j := s.job(nil)
	if j.Kind != protocol.KindWorkflow || j.Task.Workflow.RunID != answer.RunID {
		t.Fatalf("got %+v", j)
	}
	args, err := payload.EncodeArgs("x")
	if err != nil {
		t.Fatal(err)
	}
	s.ok(j, map[string]any{"commands": []protocol.Command{{
		Type: protocol.ScheduleActivity, ActivityType: "work", Arguments: args,
		RetryPolicy: &retry.Policy{MaxAttempts: &maxAttempts, BackoffSeconds: []int{0}},
	}}})
	return answer.RunID
}

// ok completes a job.
func (p *peer) ok(j protocol.Job, response any) {
	p.t.Helper()
	in := map[string]any{"jobId": j.ID, "token": j.Token, "status": "OK", "response": response}
	if err := p.Call(within(p.t), protocol.MethodCompleteJob, in, nil); err != nil {
		p.t.Fatal(err)
	}
}

// has waits until the run has an event of the type, and returns it.
func has[T history.Data](t *testing.T, a *apptest.App, run string) T {
	t.Helper()
	changed, stop := a.Dispatch().WatchRun(run)
	defer stop()
	for late := time.After(ceiling); ; {
		page, err := a.View().History(within(t), protocol.HistoryQuery{Target: protocol.Target{RunID: run}})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			if d, ok := e.Data.(T); ok {
				return d
			}
		}
		select {
		case <-changed:
		case <-late:
			raw, _ := json.Marshal(page.Events)
			t.Fatalf("no %T in %s", *new(T), raw)
		}
	}
}

func withTokens(o *app.Options) { o.NoAuth, o.Token = false, "sjn_bootstrap_secretsecretsecretsecret" }
