package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/httpapi"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

const secret = "bootstrap-of-the-test"

// fake replaces the broker in tests of the transport: it records the calls and returns the configured results.
type fake struct {
	mu    sync.Mutex
	calls []any
	notes []store.Audit

	err     error
	ready   error
	start   protocol.StartResponse
	receipt protocol.CommandReceipt
	update  protocol.UpdateResponse
	query   protocol.QueryResponse
	run     protocol.RunView
	history protocol.HistoryPage
	drained chan struct{} // nil: the app does not drain
	waited  time.Duration // timeout of the last request for a result
	full    bool
	blow    bool
	listing chan chan struct{} // receives for each search the channel that ends it; nil: all end at once
}

func (f *fake) saw(in any) error {
	if f.blow {
		panic("a bug")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, in)
	return f.err
}

func (f *fake) called() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

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

type ended struct {
	verb string
	protocol.EndRequest
}

func (f *fake) end(verb string, in protocol.EndRequest) (protocol.CommandReceipt, error) {
	return f.receipt, f.saw(ended{verb, in})
}

func (f *fake) Start(_ context.Context, in protocol.StartRequest) (protocol.StartResponse, error) {
	return f.start, f.saw(in)
}

func (f *fake) StartActivity(_ context.Context, in protocol.ActivityRequest) (protocol.ActivityResponse, error) {
	return protocol.ActivityResponse{
		WorkflowID: in.WorkflowID, RunID: "01ARZ3NDEKTSV4RRFFQ69G5FAV", ActivityType: in.ActivityType,
		Namespace: in.Namespace, Status: "running", Outcome: "started_new", New: true,
	}, f.saw(in)
}

func (f *fake) Signal(_ context.Context, in protocol.SignalRequest) (protocol.CommandReceipt, error) {
	return f.receipt, f.saw(in)
}

func (f *fake) SignalWithStart(
	_ context.Context, in protocol.SignalWithStartRequest,
) (protocol.SignalWithStartResponse, error) {
	return protocol.SignalWithStartResponse{CommandReceipt: f.receipt, StartOutcome: "started_new"}, f.saw(in)
}

func (f *fake) UpdateWithStart(
	_ context.Context, in protocol.UpdateWithStartRequest,
) (protocol.UpdateWithStartResponse, error) {
	return protocol.UpdateWithStartResponse{UpdateResponse: f.update, StartOutcome: "started_new"}, f.saw(in)
}

func (f *fake) Update(_ context.Context, in protocol.UpdateRequest) (protocol.UpdateResponse, error) {
	return f.update, f.saw(in)
}

func (f *fake) Query(_ context.Context, in protocol.QueryRequest) (protocol.QueryResponse, error) {
	return f.query, f.saw(in)
}

func (f *fake) Cancel(_ context.Context, in protocol.EndRequest) (protocol.CommandReceipt, error) {
	return f.end("cancel", in)
}

func (f *fake) Terminate(_ context.Context, in protocol.EndRequest) (protocol.CommandReceipt, error) {
	return f.end("terminate", in)
}

func (f *fake) RequestCancellation(_ context.Context, in protocol.EndRequest) (protocol.CommandReceipt, error) {
	return f.end("request_cancellation", in)
}

func (f *fake) Repair(_ context.Context, in protocol.EndRequest) (protocol.CommandReceipt, error) {
	return f.end("repair", in)
}

func (f *fake) DescribeValues(
	_ context.Context, in protocol.Target, _ protocol.Values,
) (protocol.RunView, error) {
	return f.run, f.saw(in)
}

func (f *fake) Result(_ context.Context, in protocol.Target, most time.Duration, full bool) (protocol.RunView, error) {
	f.waited, f.full = most, full
	return f.run, f.saw(in)
}

// WatchStart is not called: tests that wait for a started run use a real app.
func (f *fake) WatchStart(string, string) *view.ResultWatch { return nil }

func (f *fake) List(_ context.Context, in protocol.ListRequest) (protocol.ListResponse, error) {
	if f.listing != nil && in.Query != "" {
		end := make(chan struct{})
		f.listing <- end
		<-end
	}
	return protocol.ListResponse{Workflows: []protocol.RunView{f.run}, Count: 1}, f.saw(in)
}

func (f *fake) Runs(_ context.Context, in protocol.Target) ([]protocol.RunView, error) {
	return []protocol.RunView{f.run}, f.saw(in)
}

func (f *fake) History(_ context.Context, in protocol.HistoryQuery) (protocol.HistoryPage, error) {
	return f.history, f.saw(in)
}

func (f *fake) Outlines(
	_ context.Context, in protocol.HistoryQuery, _ protocol.Values,
) ([]history.Outline, *string, error) {
	return nil, nil, f.saw(in)
}

func (f *fake) Workers(_ context.Context, namespace, queue, status string) ([]protocol.WorkerView, error) {
	return nil, f.saw([]string{namespace, queue, status})
}

func (f *fake) Worker(_ context.Context, namespace, id string) (protocol.WorkerView, error) {
	return protocol.WorkerView{WorkerID: id, Namespace: namespace}, f.saw(id)
}

func (f *fake) RemoveWorker(_ context.Context, _, id string) (protocol.DeregisterResponse, error) {
	return protocol.DeregisterResponse{WorkerID: id, Outcome: "deregistered"}, f.saw(id)
}

func (f *fake) OperateFleet(_ context.Context, in protocol.FleetRequest) (protocol.FleetDrainState, error) {
	return protocol.FleetDrainState{
		Namespace: in.Namespace, FleetTarget: in.FleetTarget, State: protocol.DrainEnded, Members: []protocol.DrainedWorker{},
	}, f.saw(in)
}

func (f *fake) SetFleet(
	_ context.Context, in protocol.FleetSettingsRequest,
) (protocol.FleetSettingsState, error) {
	return protocol.FleetSettingsState{
		Namespace: in.Namespace, FleetSettings: in.FleetSettings, Pending: []string{},
	}, f.saw(in)
}

func (f *fake) FleetSettings(_ context.Context, ns string) (protocol.FleetSettingsState, error) {
	return protocol.FleetSettingsState{Namespace: ns, Pending: []string{}}, f.saw(ns)
}

func (f *fake) FleetDrains(_ context.Context, namespace string) (protocol.FleetDrains, error) {
	return protocol.FleetDrains{Namespace: namespace, Drains: []protocol.FleetDrainState{}}, f.saw(namespace)
}

func (f *fake) Sessions(_ context.Context, in protocol.SessionList) (protocol.SessionPage, error) {
	return protocol.SessionPage{Namespace: in.Namespace, Sessions: []protocol.SessionView{}}, f.saw(in)
}

func (f *fake) Session(_ context.Context, namespace, id string) (protocol.SessionView, error) {
	return protocol.SessionView{SessionID: id, Namespace: namespace}, f.saw(id)
}

func (f *fake) SessionTimeline(_ context.Context, in protocol.SessionTimeline) (protocol.SessionTimelinePage, error) {
	return protocol.SessionTimelinePage{
		Namespace: in.Namespace, SessionID: in.SessionID, Timeline: []protocol.SessionEvent{},
	}, f.saw(in)
}

func (f *fake) SessionAttempts(_ context.Context, in protocol.SessionAttempts) (protocol.SessionAttemptPage, error) {
	return protocol.SessionAttemptPage{
		Namespace: in.Namespace, SessionID: in.SessionID, Attempts: []protocol.SessionAttempt{},
	}, f.saw(in)
}

func (f *fake) OperateSession(_ context.Context, in protocol.SessionOperation) (protocol.SessionView, error) {
	return protocol.SessionView{
		SessionID: in.SessionID,
	}, f.saw([]string{in.Namespace, in.SessionID, in.Verb, in.Identity, in.Reason})
}

func (f *fake) Find(_ context.Context, in protocol.FindRequest) (protocol.FindResponse, error) {
	return protocol.FindResponse{Matches: []protocol.Found{}, Prefixes: []protocol.Found{}}, f.saw(in)
}

func (f *fake) RunCounts(_ context.Context, namespace string) (protocol.RunCounts, error) {
	return protocol.RunCounts{Runs: map[string]int{}}, f.saw(namespace)
}

func (f *fake) ExactOverview(ctx context.Context, namespace string) (protocol.Overview, error) {
	return f.Overview(ctx, namespace)
}

func (f *fake) Overview(_ context.Context, namespace string) (protocol.Overview, error) {
	return protocol.Overview{Release: "1.2.3"}, f.saw(namespace)
}

func (f *fake) Release() string { return "1.2.3" }

func (f *fake) Ready(context.Context) error { return f.ready }

func (f *fake) Drained() <-chan struct{} { return f.drained }

func (f *fake) Audit(_ context.Context, a store.Audit) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notes = append(f.notes, a)
	return nil
}

func (f *fake) Audits(context.Context, string, bool, int) ([]store.Audit, error) { return f.notes, nil }

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

func (s tokens) Tokens(context.Context) ([]store.Token, error) { return nil, nil }

func (s tokens) View(_ context.Context, fn func(store.Reader) error) error { return fn(s) }

func (s tokens) Commit(context.Context, store.Transaction) (any, error) {
	return nil, store.ErrUnavailable
}

// fakeServer serves the complete HTTP API over a broker.
func fakeServer(t testing.TB, f *fake, o auth.Options) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handler(f, o, zerolog.Nop()))
	t.Cleanup(s.Close)
	return s
}

func handler(f *fake, o auth.Options, log zerolog.Logger) *httpapi.API {
	if o.Store == nil {
		o.Store = tokens{}
	}
	o.Bootstrap = secret
	a := auth.New(o)
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<title>page</title>")
	})
	return httpapi.New(httpapi.Options{
		Starts: f, Runs: f, Continuations: f, Outcomes: f,
		Schedules: f, BatchJobs: f, Pools: f, PoolViews: f,
		Namespaces: f, Attributes: f, Retention: f, Operations: f, WorkerOperations: f, Process: f,
		RunViews: f, Fleet: f, Queues: f, ScheduleViews: f, System: f,
		BatchJobViews: f,
		Auth:          a, WorkerAPI: workerapi.New(workerapi.Options{Auth: a}), Dashboard: page, App: "app-1",
		Socket: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }),
		Log:    log,
	})
}

// response is a response as a client receives it.
type response struct {
	status  int
	header  http.Header
	cookies []*http.Cookie
	raw     []byte
	body    map[string]any
}

func (s response) text(member string) string {
	v, _ := s.body[member].(string)
	return v
}

// plane returns the control_plane object of a response.
func (s response) plane() map[string]any {
	m, _ := s.body["control_plane"].(map[string]any)
	return m
}

// ask sends a request with all required headers; headers in set replace them, and an empty value removes a header.
func ask(t testing.TB, s *httptest.Server, method, path, body string, set map[string]string) response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	headers := map[string]string{
		"Authorization": "Bearer " + secret, httpapi.VersionHeader: "2", "Content-Type": "application/json",
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
	client := *s.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	out := response{status: res.StatusCode, header: res.Header, cookies: res.Cookies()}
	if out.raw, err = io.ReadAll(res.Body); err != nil {
		t.Fatal(err)
	}
	if res.Header.Get("Content-Type") == "application/json" {
		if err := json.Unmarshal(out.raw, &out.body); err != nil {
			t.Fatalf("%s %s: %v in %.200q", method, path, err, out.raw)
		}
	}
	return out
}

func (f *fake) ReserveHistory(ctx context.Context, _ protocol.Target) (context.Context, error) {
	return ctx, nil
}
