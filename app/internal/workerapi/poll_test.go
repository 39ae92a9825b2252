package workerapi_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func task(events int) protocol.Task {
	w := &protocol.WorkflowTask{TaskID: "r-1-workflow", PayloadCodec: "avro", TotalEvents: int64(events)}
	for i := range events {
		w.Events = append(
			w.Events,
			history.Event{Seq: int64(i + 1), At: history.At(time.Unix(1, 0)), Data: &history.WorkflowStarted{WorkflowType: "w"}},
		)
	}
	return protocol.Task{Kind: protocol.KindWorkflow, Workflow: w}
}

func leased(
	undo func(), tasks ...protocol.Task,
) func(context.Context, protocol.PollRequest) (protocol.PollResponse, error) {
	return func(context.Context, protocol.PollRequest) (protocol.PollResponse, error) {
		return protocol.PollResponse{Status: protocol.PollLeased, Tasks: tasks, Undo: undo}, nil
	}
}

func TestAPollAsksForOneTaskOfOneKind(t *testing.T) {
	f := &fake{}
	s := server(t, f, nil)
	ask(t, s, "POST", "/api/worker/workflow-tasks/poll",
		`{"worker_id":"w","task_queue":"q","build_id":"b","poll_request_id":"p",
		"timeout_seconds":35,"history_page_size":500,"task_kinds":["workflow"],"max":50,"kinds":["activity"],"free":{"workflow":9}}`,
		map[string]string{"X-Namespace": "Blue"})
	got := last[protocol.PollRequest](t, f)
	if got.WorkerID != "w" || got.TaskQueue != "q" || got.BuildID != "b" || got.PollID != "p" || *got.Timeout != 35 ||
		got.PageSize != 500 ||
		got.Namespace != "blue" || got.Max != 1 || got.Free != nil || got.Gated ||
		!slices.Equal(got.Kinds, []protocol.TaskKind{protocol.KindWorkflow}) {
		t.Errorf("got %+v", got)
	}
	ask(
		t, s, "POST", "/api/worker/tasks/poll", `{"worker_id":"w","max":8,"kinds":["activity"]}`,
		map[string]string{workerapi.ReleaseHeader: "1.2.3"},
	)
	got = last[protocol.PollRequest](t, f)
	if got.Max != 8 || got.Release != "1.2.3" || !got.Gated || got.Namespace != "default" {
		t.Errorf("batch: got %+v", got)
	}
	ask(t, s, "POST", "/api/worker/tasks/poll", `{"worker_id":"w"}`, map[string]string{workerapi.ReleaseHeader: " "})
	if got = last[protocol.PollRequest](t, f); !got.Gated {
		t.Error("a worker of ours that cannot read its release passed the gate")
	}
}

// Only what cannot be read is refused here; the limits of a poll are the broker's.
func TestPollTimeoutsMustBeIntegers(t *testing.T) {
	f := &fake{}
	s := server(t, f, nil)
	poll := func(more string) response {
		return ask(t, s, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q",`+more+`}`, nil)
	}
	for more, member := range map[string]string{
		`"timeout_seconds":1.5`: "timeout_seconds", `"timeout_seconds":"30"`: "timeout_seconds",
	} {
		got := poll(more)
		if errors, _ := got.body["errors"].(map[string]any); got.status != 422 || errors[member] == nil || len(errors) != 1 {
			t.Errorf("%s: got %d %v", more, got.status, got.body)
		}
	}
	if f.called() != 0 {
		t.Error("the broker was called")
	}
	if got := poll(`"timeout_seconds":3600`); got.status != 200 {
		t.Errorf("an hour: got %d %v", got.status, got.body)
	}
	if got := last[protocol.PollRequest](t, f); got.Timeout == nil || *got.Timeout != 60 {
		t.Errorf("an hour is asked for as %v, want 60 s", got.Timeout)
	}
}

func TestPollOutcomeIsInStatusAndBody(t *testing.T) {
	draining := func(context.Context, protocol.PollRequest) (protocol.PollResponse, error) {
		return protocol.PollResponse{}, fmt.Errorf("wait: %w", dispatch.ErrDraining)
	}
	value := func(s protocol.PollStatus, reason string) func(
		context.Context, protocol.PollRequest,
	) (protocol.PollResponse, error) {
		return func(context.Context, protocol.PollRequest) (protocol.PollResponse, error) {
			return protocol.PollResponse{
				Status: s, Reason: reason, RetryAfter: 7, Tasks: []protocol.Task{}, Undo: func() {},
			}, nil
		}
	}
	refusal := func(e error) func(context.Context, protocol.PollRequest) (protocol.PollResponse, error) {
		return func(context.Context, protocol.PollRequest) (protocol.PollResponse, error) {
			return protocol.PollResponse{}, e
		}
	}
	for _, c := range []struct {
		name         string
		poll         func(context.Context, protocol.PollRequest) (protocol.PollResponse, error)
		status       int
		poll_status  string
		reason       string
		batch        int
		batch_status string
	}{
		{"empty", value(protocol.PollEmpty, ""), 200, "empty", "", 200, "empty"},
		{"throttled", value(protocol.PollThrottled, "budget"), 200, "throttled", "budget", 200, "throttled"},
		{
			"unavailable", value(protocol.PollUnavailable, "x"), 503, "backend_unavailable", "backend_unavailable", 200,
			"unavailable",
		},
		{"draining", value(protocol.PollDraining, ""), 409, "draining", "worker_draining", 200, "draining"},
		{"the app goes away while it waits", draining, 503, "backend_unavailable", "backend_unavailable", 200, "unavailable"},
		{
			"mismatch", value(protocol.PollMismatch, "releases differ"), 409, "version_mismatch", "version_mismatch", 200,
			"version_mismatch",
		},
		{
			"wrong queue", refusal(protocol.Refuse(protocol.ReasonQueueMismatch, "no").With("registered_task_queue", "q")), 409,
			"", "task_queue_mismatch", 409, "",
		},
		{
			"unknown", refusal(protocol.Refuse(protocol.ReasonWorkerNotRegistered, "no")), 412, "", "worker_not_registered", 412,
			"",
		},
		{
			"superseded", refusal(protocol.Refuse(protocol.ReasonStaleRegistration, "no")),
			409, "stale_worker_registration", "stale_worker_registration", 409, "stale_worker_registration",
		},
	} {
		s := server(t, &fake{poll: c.poll}, nil)
		got := ask(t, s, "POST", "/api/worker/activity-tasks/poll", `{"worker_id":"w","task_queue":"q"}`, nil)
		null, there := got.body["task"]
		if got.status != c.status || got.text("poll_status") != c.poll_status || got.text("reason") != c.reason ||
			null != nil || !there {
			t.Errorf("%s: got %d %v", c.name, got.status, got.body)
		}
		wantEnvelope200(t, c.name, got)
		got = ask(t, s, "POST", "/api/worker/tasks/poll", `{"worker_id":"w","queues":["q"]}`, nil)
		if got.status != c.batch || got.text("poll_status") != c.batch_status {
			t.Errorf("%s, batch: got %d %v", c.name, got.status, got.body)
		}
	}
}

func wantEnvelope200(t *testing.T, what string, s response) {
	t.Helper()
	if s.text("protocol_version") != workerapi.Version {
		t.Errorf("%s: no envelope: %v", what, s.body)
	}
}

func TestALeasedTaskIsTheAnswer(t *testing.T) {
	s := server(t, &fake{poll: leased(func() { t.Error("undone") }, task(2))}, nil)
	got := ask(t, s, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w"}`, nil)
	w, _ := got.body["task"].(map[string]any)
	if got.text("poll_status") != "leased" || w["task_id"] != "r-1-workflow" || w["payload_codec"] != "avro" ||
		len(w["history_events"].([]any)) != 2 {
		t.Errorf("got %v", got.body)
	}
	if _, there := w["resume_source_kind"]; !there {
		t.Error("the resume context is missing")
	}
}

func TestALongHistoryIsCompressedOnRequest(t *testing.T) {
	for encoding, open := range map[string]func(io.Reader) (io.Reader, error){
		"gzip":    func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
		"deflate": func(r io.Reader) (io.Reader, error) { return flate.NewReader(r), nil },
	} {
		for events, packed := range map[int]bool{49: false, 50: true} {
			s := server(t, &fake{poll: leased(func() {}, task(events))}, nil)
			got := ask(
				t, s, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","accept_history_encoding":"br, `+encoding+`"}`,
				nil,
			)
			w := got.body["task"].(map[string]any)
			if !packed {
				if len(w["history_events"].([]any)) != events || w["history_events_encoding"] != nil {
					t.Errorf("%d events: %v", events, w)
				}
				continue
			}
			if len(w["history_events"].([]any)) != 0 || w["history_events_encoding"] != encoding ||
				w["task_id"] != "r-1-workflow" {
				t.Fatalf("%s: %v", encoding, w)
			}
			raw, err := base64.StdEncoding.DecodeString(w["history_events_compressed"].(string))
			if err != nil {
				t.Fatal(err)
			}
			z, err := open(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			var list []history.Event
			if err := json.NewDecoder(z).Decode(&list); err != nil || len(list) != events ||
				list[events-1].Seq != int64(events) {
				t.Errorf("%s: %d events, %v", encoding, len(list), err)
			}
		}
	}
}

func TestTaskIsReturnedIfItsCallerDisconnected(t *testing.T) {
	for _, path := range []string{"/api/worker/workflow-tasks/poll", "/api/worker/tasks/poll"} {
		undone := make(chan struct{})
		polled := make(chan struct{})
		f := &fake{}
		f.poll = func(ctx context.Context, in protocol.PollRequest) (protocol.PollResponse, error) {
			close(polled)
			<-ctx.Done() // the task becomes ready at the moment when the caller disconnects
			return leased(func() { close(undone) }, task(1))(ctx, in)
		}
		s := server(t, f, nil)
		at, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", at.Host)
		if err != nil {
			t.Fatal(err)
		}
		const body = `{"worker_id":"w","timeout_seconds":60}`
		fmt.Fprintf(c,
			"POST %s HTTP/1.1\r\nHost: app\r\nAuthorization: Bearer %s\r\n%s: 1.20\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			path, secret, workerapi.VersionHeader, len(body), body)
		wait(t, "the poll", polled)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		wait(t, "the task to be given back", undone)
	}
}

// broken is a connection that cannot be written to, as seen by a handler.
type broken struct{ header http.Header }

func (b broken) Header() http.Header       { return b.header }
func (b broken) WriteHeader(int)           {}
func (b broken) Write([]byte) (int, error) { return 0, net.ErrClosed }

func TestTaskIsReturnedIfItsResponseFails(t *testing.T) {
	undone := 0
	f := &fake{poll: leased(func() { undone++ }, task(1)), next: &protocol.PollResponse{
		Status: protocol.PollLeased, Tasks: []protocol.Task{task(1)}, Undo: func() { undone++ },
	}}
	h := handler(f)
	for i, c := range []struct{ path, body string }{
		{"/api/worker/workflow-tasks/poll", `{"worker_id":"w"}`},
		{"/api/worker/tasks/poll", `{"worker_id":"w"}`},
		{"/api/worker/tasks/complete", `{"items":[{"task_id":"t"}],"next":{"worker_id":"w"}}`},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", c.path, bytes.NewReader([]byte(c.body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(workerapi.VersionHeader, "1.20")
		h.ServeHTTP(broken{http.Header{}}, r)
		if undone != i+1 {
			t.Errorf("%s: given back %d times", c.path, undone-i)
		}
	}
}

func wait(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(2 * time.Minute):
		t.Fatalf("waited 2 min for %s", what)
	}
}
