package workerconn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/app/internal/workerconn"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/link/linktest"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// spy is a fake app that records the arguments of its calls and returns the configured results.
type spy struct {
	protocol.WorkerVerbs
	polled     protocol.PollRequest
	completed  []protocol.CompleteRequest
	registered protocol.RegisterRequest
	task       *protocol.ActivityTask
	panics     bool
}

func (s *spy) Register(_ context.Context, in protocol.RegisterRequest) (protocol.RegisterResponse, error) {
	s.registered = in
	return protocol.RegisterResponse{Incarnation: in.Incarnation}, nil
}

func (s *spy) Deregister(context.Context, protocol.DeregisterRequest) (protocol.DeregisterResponse, error) {
	return protocol.DeregisterResponse{}, nil
}

func (s *spy) WorkerHeartbeat(context.Context, protocol.WorkerHeartbeat) (protocol.WorkerHeartbeatResponse, error) {
	return protocol.WorkerHeartbeatResponse{}, nil
}

func (s *spy) Poll(_ context.Context, in protocol.PollRequest) (protocol.PollResponse, error) {
	if s.panics {
		panic("a mistake of ours")
	}
	s.polled = in
	return protocol.PollResponse{Tasks: []protocol.Task{{Kind: protocol.KindActivity, Activity: s.task}}}, nil
}

func (s *spy) Complete(_ context.Context, in protocol.CompleteRequest) (a protocol.CompleteBatchResponse, _ error) {
	s.completed = append(s.completed, in)
	for _, item := range in.Items {
		a.Items = append(a.Items, protocol.CompleteResponse{TaskID: item.TaskID, Outcome: "completed", Recorded: true})
	}
	return a, nil
}

func newRegistry(t *testing.T, verbs protocol.WorkerVerbs) *workerconn.Registry {
	t.Helper()
	s := workerconn.New(verbs, workerconn.Options{Release: "test", Log: zerolog.Nop()})
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func join(t *testing.T, s *workerconn.Registry, id string) protocol.WorkerConnection {
	t.Helper()
	c, leave, err := s.Join(
		protocol.ChannelAuth{WorkerID: id, Protocol: protocol.ChannelVersion}, linktest.IgnoreNotices{},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leave)
	return c
}

// A worker in the app's process gets the task value that the app created, and the app the command values of the worker:
// nothing is encoded, parsed or copied.
func TestInOneProcessNothingIsEncoded(t *testing.T) {
	app := &spy{task: &protocol.ActivityTask{TaskID: "r-1", AttemptID: "r-1-1", LeaseOwner: "w"}}
	l, err := link.New(link.Options{
		Carrier: link.Local{Join: newRegistry(t, app).Join}, WorkerID: "w", Incarnation: "one", Release: "test",
		Heartbeat: time.Hour,
		Register:  func() protocol.RegisterRequest { return protocol.RegisterRequest{AnyActivity: true} },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	free := map[protocol.TaskKind]int{protocol.KindActivity: 1}
	got, err := l.Poll(t.Context(), protocol.PollRequest{Free: free, EagerTasks: true})
	if err != nil || len(got.Tasks) != 1 || got.Tasks[0].Activity != app.task {
		t.Fatalf("got %+v, %v, want the app's own task", got, err)
	}
	asked := app.polled
	if asked.WorkerID != "w" || asked.Incarnation != "one" || asked.Release != "test" || !asked.Gated ||
		!asked.EagerTasks {
		t.Errorf("the app was asked %+v", asked)
	}
	if free[protocol.KindActivity] = 7; asked.Free[protocol.KindActivity] != 7 {
		t.Error("what the app was asked for is a copy")
	}
	turn := &protocol.EagerTask{Commands: []protocol.Command{{Type: protocol.CompleteWorkflow}}}
	a, err := l.Complete(t.Context(), protocol.CompleteRequest{Items: []protocol.CompleteItem{{
		Kind: protocol.KindActivity, TaskID: "r-1", AttemptID: "r-1-1", Owner: "w", Eager: turn,
	}}})
	if err != nil || len(a.Items) != 1 || !a.Items[0].Recorded {
		t.Fatalf("got %+v, %v", a, err)
	}
	item := app.completed[0].Items[0]
	if item.Eager != turn || item.Namespace != "default" || item.Incarnation != "one" {
		t.Errorf("the app was told %+v", item)
	}
}

// In a batch, tasks that the caller does not hold are rejected, and the other outcomes are stored.
func TestOnlyTheHolderOfATaskCompletesIt(t *testing.T) {
	app := &spy{}
	c := join(t, newRegistry(t, app), "w")
	large := payload.Payload{Blob: string(make([]byte, payload.MaxBytes+1))}
	a, err := c.Complete(t.Context(), protocol.CompleteRequest{Items: []protocol.CompleteItem{
		{Kind: protocol.KindActivity, TaskID: "theirs", Owner: "other"},
		{Kind: protocol.KindActivity, TaskID: "mine", Owner: "w"},
		{Kind: protocol.KindActivity, TaskID: "large", Owner: "w", Result: large},
		{Kind: protocol.KindWorkflow, TaskID: "run", Owner: "w", Commands: []protocol.Command{{Result: large}}},
	}})
	if err != nil || len(a.Items) != 4 {
		t.Fatalf("got %+v, %v", a, err)
	}
	if r := a.Items[0]; r.Error == nil || r.Error.Reason != protocol.ReasonLeaseOwnerMismatch || r.Outcome != "rejected" {
		t.Errorf("of another's: %+v", r)
	}
	if r := a.Items[2]; r.Error == nil || r.Error.Reason != protocol.ReasonPayloadTooLarge {
		t.Errorf("of a large one: %+v", r)
	}
	if !a.Items[1].Recorded || !a.Items[3].Recorded {
		t.Errorf("of its own: %+v", a.Items)
	}
	if got := app.completed[0].Items; len(got) != 2 || got[0].TaskID != "mine" ||
		protocol.ReasonOf(got[1].Malformed) != protocol.ReasonPayloadTooLarge {
		t.Errorf("the app was told %+v", got)
	}
	for name, err := range map[string]error{
		"history":   second(c.HistoryPage(t.Context(), protocol.HistoryRequest{Owner: "other"})),
		"heartbeat": second(c.HeartbeatTask(t.Context(), protocol.HeartbeatRequest{Owner: "other"})),
	} {
		if protocol.ReasonOf(err) != protocol.ReasonLeaseOwnerMismatch {
			t.Errorf("%s: got %v", name, err)
		}
	}
	logs, err := c.RecordLogs(t.Context(), protocol.LogsRequest{Items: []protocol.AttemptLogs{{Owner: "other"}}})
	if err != nil || logs.Items[0].Reason != protocol.ReasonLeaseOwnerMismatch {
		t.Errorf("logs: got %+v, %v", logs, err)
	}
}

func second[T any](_ T, err error) error { return err }

// A panic in the handler of a call fails this call only, with an unknown outcome. The process, which app and worker may
// share, keeps running.
func TestAPanicFailsOnlyItsCall(t *testing.T) {
	app := &spy{panics: true}
	c := join(t, newRegistry(t, app), "w")
	_, err := c.Poll(t.Context(), protocol.PollRequest{})
	if err == nil || !link.Lost(err) {
		t.Errorf("got %v", err)
	}
	app.panics = false
	if _, err := c.Poll(t.Context(), protocol.PollRequest{}); err != nil {
		t.Errorf("the next call: %v", err)
	}
	if !app.registered.AnyActivity {
		t.Errorf("a worker that never registered was made one: %+v", app.registered)
	}
}

// hearer is a fake worker that records cancellations.
type hearer struct {
	linktest.IgnoreNotices
	received chan string
	fails    error
}

func (h hearer) CancelAttempt(_ context.Context, n protocol.CancelNotice) error {
	h.received <- n.AttemptID
	return h.fails
}

func TestNoticesGoToTheWorkersOfAnIdAndANamespace(t *testing.T) {
	s := newRegistry(t, &spy{})
	enter := func(id, namespace string, fails error) hearer {
		h := hearer{received: make(chan string, 4), fails: fails}
		_, leave, err := s.Join(protocol.ChannelAuth{WorkerID: id, Namespace: namespace, Protocol: 1}, h)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(leave)
		return h
	}
	mine, theirs, other := enter("w", "", nil), enter("w", "elsewhere", nil), enter("v", "", errors.New("busy"))
	s.Cancel("default", "w", protocol.CancelNotice{AttemptID: "a"})
	if got := <-mine.received; got != "a" {
		t.Errorf("heard %s", got)
	}
	s.Cancel("default", "v", protocol.CancelNotice{AttemptID: "b"})
	<-other.received
	if s.YieldSession("default", "nobody", protocol.SessionNotice{}) {
		t.Error("there was nobody to tell")
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := s.Stats().Unconfirmed; n != 1 {
		t.Errorf("%d notices were not taken, want 1", n)
	}
	if len(theirs.received)+len(mine.received)+len(other.received) > 0 {
		t.Error("somebody heard what was not for them")
	}
	if _, _, err := s.Join(protocol.ChannelAuth{WorkerID: "late", Protocol: 1}, linktest.IgnoreNotices{}); err == nil {
		t.Error("a closing registry accepted a connection")
	}
}
