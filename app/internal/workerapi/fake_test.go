package workerapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

const secret = "bootstrap-of-the-test"

// fake replaces the broker in tests of the transport: it records the calls and returns the configured results.
type fake struct {
	mu    sync.Mutex
	calls []any

	err      error
	poll     func(context.Context, protocol.PollRequest) (protocol.PollResponse, error)
	complete protocol.CompleteResponse
	next     *protocol.PollResponse
	beat     protocol.HeartbeatResponse
	session  protocol.SessionResponse
	sdk      string
}

func (f *fake) saw(in any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, in)
	return f.err
}

// last returns the request of the last call.
func last[T any](t *testing.T, f *fake) T {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.calls) == 0 {
		t.Fatal("the broker was not called")
	}
	in, ok := f.calls[len(f.calls)-1].(T)
	if !ok {
		t.Fatalf("the broker was called with %T", f.calls[len(f.calls)-1])
	}
	return in
}

func (f *fake) called() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

func (f *fake) SDK(context.Context, string, string) string { return f.sdk }

func (f *fake) Register(_ context.Context, in protocol.RegisterRequest) (protocol.RegisterResponse, error) {
	return protocol.RegisterResponse{
		WorkerID: in.WorkerID, Registered: true, Namespace: in.Namespace, TaskQueue: in.TaskQueue,
	}, f.saw(in)
}

func (f *fake) Deregister(_ context.Context, in protocol.DeregisterRequest) (protocol.DeregisterResponse, error) {
	return protocol.DeregisterResponse{WorkerID: in.WorkerID, Outcome: "deregistered"}, f.saw(in)
}

func (f *fake) WorkerHeartbeat(
	_ context.Context, in protocol.WorkerHeartbeat,
) (protocol.WorkerHeartbeatResponse, error) {
	return protocol.WorkerHeartbeatResponse{WorkerID: in.WorkerID, Acknowledged: true}, f.saw(in)
}

func (f *fake) Poll(ctx context.Context, in protocol.PollRequest) (protocol.PollResponse, error) {
	if err := f.saw(in); err != nil || f.poll == nil {
		return protocol.PollResponse{Status: protocol.PollEmpty, Undo: func() {}}, err
	}
	return f.poll(ctx, in)
}

func (f *fake) Complete(_ context.Context, in protocol.CompleteRequest) (protocol.CompleteBatchResponse, error) {
	if err := f.saw(in); err != nil {
		return protocol.CompleteBatchResponse{}, err
	}
	out := protocol.CompleteBatchResponse{Next: f.next}
	for _, item := range in.Items {
		a := f.complete
		a.TaskID, a.Attempt, a.AttemptID = item.TaskID, item.Attempt, item.AttemptID
		out.Items = append(out.Items, a)
	}
	return out, nil
}

func (f *fake) HeartbeatTask(_ context.Context, in protocol.HeartbeatRequest) (protocol.HeartbeatResponse, error) {
	return f.beat, f.saw(in)
}

func (f *fake) LeaseTask(_ context.Context, in protocol.LeaseRequest) (protocol.PollResponse, error) {
	return protocol.PollResponse{Status: protocol.PollLeased, Undo: func() {}}, f.saw(in)
}

func (f *fake) LeaseStatus(_ context.Context, in protocol.LeaseRequest) (protocol.LeaseStatus, error) {
	return protocol.LeaseStatus{TaskID: in.TaskID}, f.saw(in)
}

func (f *fake) RecordLogs(_ context.Context, in protocol.LogsRequest) (protocol.LogsResponse, error) {
	return protocol.LogsResponse{Items: make([]protocol.LogReceipt, len(in.Items))}, f.saw(in)
}

func (f *fake) AttemptStatus(_ context.Context, in protocol.HeartbeatRequest) (protocol.AttemptStatus, error) {
	return protocol.AttemptStatus{}, f.saw(in)
}

func (f *fake) HistoryPage(_ context.Context, in protocol.HistoryRequest) (protocol.HistoryPage, error) {
	return protocol.HistoryPage{TaskID: in.TaskID}, f.saw(in)
}

func (f *fake) CreateSession(_ context.Context, in protocol.SessionCreate) (protocol.SessionResponse, error) {
	return f.session, f.saw(in)
}

func (f *fake) HeartbeatSession(_ context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return f.session, f.saw(in)
}

func (f *fake) ReleaseSession(_ context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return f.session, f.saw(in)
}

func (f *fake) CloseSession(_ context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return f.session, f.saw(in)
}

// tokens is a store that holds tokens alone.
type tokens struct {
	store.Reader
	kept map[string]store.Token
}

func (s tokens) Token(_ context.Context, id string) (store.Token, error) {
	if t, ok := s.kept[id]; ok {
		return t, nil
	}
	return store.Token{}, store.ErrNotFound
}

func (s tokens) View(_ context.Context, fn func(store.Reader) error) error { return fn(s) }

func (s tokens) Commit(context.Context, store.Transaction) (any, error) {
	return nil, store.ErrUnavailable
}

// served is an app that serves the worker protocol.
type served interface {
	protocol.WorkerVerbs
	workerapi.Claims
	workerapi.Workers
}

// server serves the worker protocol over a broker.
func server(t testing.TB, b served, kept map[string]store.Token) *httptest.Server {
	t.Helper()
	return serverWith(t, workerapi.Options{
		Verbs: b, Claims: b, Workers: b, Auth: auth.New(auth.Options{Store: tokens{kept: kept}, Bootstrap: secret}),
	})
}

// serverWith returns a server with these options; without an Auth only the bootstrap token is valid.
func serverWith(t testing.TB, o workerapi.Options) *httptest.Server {
	t.Helper()
	if o.Auth == nil {
		o.Auth = auth.New(auth.Options{Store: tokens{}, Bootstrap: secret})
	}
	s := httptest.NewServer(workerapi.New(o))
	t.Cleanup(s.Close)
	return s
}

// bounded is server for an app that holds few polls at once.
func bounded(t testing.TB, b served, polls int) *httptest.Server {
	t.Helper()
	a := auth.New(auth.Options{Store: tokens{}, Bootstrap: secret})
	s := httptest.NewServer(workerapi.New(workerapi.Options{Verbs: b, Claims: b, Workers: b, Auth: a, MaxPolls: polls}))
	t.Cleanup(s.Close)
	return s
}

// response is a response as a client receives it.
type response struct {
	status int
	header http.Header
	body   map[string]any
}

func (s response) text(member string) string {
	v, _ := s.body[member].(string)
	return v
}

// ask sends a request with all required headers; headers in set replace them, and an empty value removes a header.
func ask(t testing.TB, s *httptest.Server, method, path, body string, set map[string]string) response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	headers := map[string]string{
		"Authorization": "Bearer " + secret, workerapi.VersionHeader: "1.20", "Content-Type": "application/json",
		"Accept-Encoding": "identity",
	}
	for name, v := range set {
		headers[name] = v
	}
	for name, v := range headers {
		if v != "" {
			r.Header.Set(name, v)
		}
	}
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := response{status: res.StatusCode, header: res.Header}
	if err := json.Unmarshal(raw, &out.body); err != nil {
		t.Fatalf("%s %s: %v in %.200q", method, path, err, raw)
	}
	return out
}
