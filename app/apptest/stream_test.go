package apptest_test

import (
	"bufio"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/internal/httpapi"
)

// stream is an open stream of server-sent events.
type stream struct {
	t testing.TB
	*bufio.Scanner
	res *http.Response
}

func (c caller) stream(workflow, run, last string) *stream {
	c.t.Helper()
	r, err := http.NewRequestWithContext(
		c.t.Context(), "GET", c.app.URL()+"/api/workflows/"+workflow+"/runs/"+run+"/history/stream", nil,
	)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("X-Namespace", c.ns)
	r.Header.Set(httpapi.VersionHeader, "2")
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		c.t.Fatalf("a stream: %d %v", res.StatusCode, res.Header)
	}
	return &stream{c.t, bufio.NewScanner(res.Body), res}
}

// next reads one event and returns its ID, name and data; all are empty at the end of the stream.
func (s *stream) next() (id, name, data string) {
	for s.Scan() {
		switch key, v, _ := strings.Cut(s.Text(), ": "); key {
		case "id":
			id = v
		case "event":
			name = v
		case "data":
			data = v
		case "":
			if data != "" {
				return id, name, data
			}
		}
	}
	return "", "", ""
}

func TestEventsOfAnOpenRunAreStreamed(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, "default"}
		run := c.want(
			201, "POST", "/api/workflows", `{"workflow_id":"f","workflow_type":"t","task_queue":"q","input":["x"]}`,
		).text("run_id")
		signal := func(name string) { c.want(202, "POST", "/api/workflows/f/signal/"+name, `{"input":[1]}`) }
		signal("one")
		s := c.stream("f", run, "")
		want := func(s *stream, id, about string) {
			t.Helper()
			if got, _, data := s.next(); got != id || !strings.Contains(data, about) {
				t.Fatalf("event %s: %s, want %s about %s", got, data, id, about)
			}
		}
		want(s, "1", "WorkflowStarted")
		want(s, "2", `"signal_name":"one"`)
		resumed := c.stream("f", run, "2")
		signal("two") // both wait for it
		want(s, "3", `"signal_name":"two"`)
		want(resumed, "3", `"signal_name":"two"`)
		c.want(200, "POST", "/api/workflows/f/terminate", `{}`)
		want(s, "4", "TerminateRequested")
		want(s, "5", "WorkflowTerminated")
		if _, name, data := s.next(); name != "end" || !strings.Contains(data, `"status":"terminated"`) {
			t.Errorf("the end is %s %s", name, data)
		}
		if id, name, data := s.next(); id+name+data != "" {
			t.Errorf("after the end: %s %s %s", id, name, data)
		}
		whole := c.stream("f", run, "")
		for i := 1; i <= 5; i++ {
			want(whole, fmt.Sprint(i), `"event_type"`)
		}
		if _, name, _ := whole.next(); name != "end" {
			t.Errorf("a closed run's stream goes on with %s", name)
		}
		c.want(422, "GET", "/api/workflows/f/runs/"+run+"/history/stream?after=soon", "")
		if got := c.want(404, "GET", "/api/workflows/f/runs/x/history/stream", ""); got.text("reason") != "run_not_found" {
			t.Error(got.raw)
		}
	})
}

// Streams of many readers cause no load while their runs are idle, and a shutdown ends them.
func TestIdleStreamsCostNoStatementAndEndWithTheApp(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c := caller{t, a, "default"}
	run := c.want(201, "POST", "/api/workflows", `{"workflow_id":"f","workflow_type":"t","task_queue":"q"}`).text("run_id")
	var streams []*stream
	for range 20 {
		s := c.stream("f", run, "")
		if id, _, _ := s.next(); id != "1" {
			t.Fatalf("begins with %s", id)
		}
		streams = append(streams, s)
	}
	before := a.Store().Stats()
	c.want(200, "GET", "/up", "") // any request would do as a round trip
	if after := a.Store().Stats(); after != before {
		t.Errorf("20 streams: %+v, before %+v", after, before)
	}
	a.Stop()
	for _, s := range streams {
		if id, name, data := s.next(); id+name+data != "" {
			t.Errorf("after the shutdown: %s %s %s", id, name, data)
		}
	}
}

func TestARunIsArchivedOnceItHasClosed(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), "default"}
		run := c.want(201, "POST", "/api/workflows", `{"workflow_id":"f","workflow_type":"t"}`).text("run_id")
		before := c.want(200, "GET", "/api/workflows/f/runs/"+run, "").raw
		if got := c.want(409, "POST", "/api/workflows/f/archive", `{}`); got.text("reason") != "run_not_closed" ||
			got.text("outcome") != "rejected_run_not_closed" {
			t.Error(got.raw)
		}
		if after := c.want(200, "GET", "/api/workflows/f/runs/"+run, "").raw; after != before {
			t.Errorf("a refused call changed the run:\n%s\n%s", before, after)
		}
		c.want(200, "POST", "/api/workflows/f/cancel", `{}`)
		events := c.want(200, "GET", "/api/workflows/f/runs/"+run+"/history", "").raw
		if got := c.want(200, "GET", "/api/workflows/f", ""); got.body["actions"].(map[string]any)["can_archive"] != true ||
			got.body["archived_at"] != nil {
			t.Error(got.raw)
		}
		if got := c.want(
			200, "POST", "/api/workflows/f/runs/"+run+"/archive", `{"reason":"done with"}`,
		); got.text("outcome") != "archived" {
			t.Error(got.raw)
		}
		if got := c.want(200, "POST", "/api/workflows/f/archive", `{}`); got.text("outcome") != "archive_not_needed" {
			t.Error(got.raw)
		}
		got := c.want(200, "GET", "/api/workflows/f", "")
		if got.text("archived_at") == "" || got.text("archive_reason") != "done with" ||
			got.body["actions"].(map[string]any)["can_archive"] != false {
			t.Error(got.raw)
		}
		if after := c.want(200, "GET", "/api/workflows/f/runs/"+run+"/history", "").raw; after != events {
			t.Error("archiving changed the history")
		}
		if got := c.want(404, "POST", "/api/workflows/f/runs/x/archive", `{}`); got.text("reason") != "run_not_found" {
			t.Error(got.raw)
		}
		if got := c.want(200, "GET", "/api/audit", ""); !strings.Contains(got.raw, "workflow.archive") {
			t.Error(got.raw)
		}
	})
}

func TestDebugAndWhyShowWaitReasons(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), "default"}
		debug := func(status string, codes ...string) response {
			t.Helper()
			got := c.want(200, "GET", "/api/workflows/f/debug", "")
			var found []string
			for _, f := range got.body["findings"].([]any) {
				found = append(found, f.(map[string]any)["code"].(string))
			}
			if got.text("diagnostic_status") != status || !slices.Equal(found, codes) {
				t.Errorf("diagnosis %s with %v, want %s with %v: %s", got.text("diagnostic_status"), found, status, codes, got.raw)
			}
			return got
		}
		run := c.want(201, "POST", "/api/workflows", `{"workflow_id":"f","workflow_type":"t","task_queue":"q"}`).
			text("run_id")
		if got := debug("waiting_for_worker", "waiting_for_worker"); !strings.Contains(
			got.text("wait_reason"), `no live worker is polling queue "q"`,
		) {
			t.Error(got.raw)
		}
		why := func(task, about string) {
			t.Helper()
			if got := c.want(200, "GET", "/api/tasks/"+task+"/why", ""); !strings.Contains(got.text("why"), about) ||
				got.text("workflow_id") != "f" {
				t.Errorf("%s: %s, want %s", task, got.raw, about)
			}
		}
		flow, step := run+"-1-workflow", run+"-1"
		why(flow, `no live worker is polling queue "q"`)
		c.want(201, "POST", "/api/worker/register", `{"worker_id":"w","task_queue":"q","supported_workflow_types":["t"]}`)
		c.want(200, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":0}`)
		debug("running")
		why(flow, "is running on worker w")
		c.want(200, "POST", "/api/worker/workflow-tasks/"+flow+"/complete", `{"lease_owner":"w","workflow_task_attempt":1,
			"commands":[{"type":"schedule_activity","activity_type":"turn","queue":"gpu"}]}`)
		why(step, `no live worker is polling queue "gpu"`)
		debug("waiting_for_worker", "waiting_for_worker")
		for _, gone := range []string{flow, run + "-7", "nonsense"} {
			if got := c.want(404, "GET", "/api/tasks/"+gone+"/why", ""); got.text("reason") != "task_not_found" {
				t.Error(got.raw)
			}
		}
		c.want(200, "POST", "/api/workflows/f/terminate", `{"reason":"enough"}`)
		if got := debug("closed", "failed"); got.body["control_plane"].(map[string]any)["run_id"] != run {
			t.Error(got.raw)
		}
		c.want(404, "GET", "/api/tasks/"+step+"/why", "")
	})
}

// A stream also sends the commits of other apps on the same database.
func TestStreamIncludesCommitsOfOtherApps(t *testing.T) {
	database := apptest.Postgres(t)
	here := caller{t, apptest.Start(t, apptest.Options{Database: database}), "default"}
	there := caller{t, apptest.Start(t, apptest.Options{Database: database}), "default"}
	run := here.want(201, "POST", "/api/workflows", `{"workflow_id":"f","workflow_type":"t"}`).text("run_id")
	s := here.stream("f", run, "1")
	there.want(202, "POST", "/api/workflows/f/signal/far", `{}`)
	if id, _, data := s.next(); id != "2" || !strings.Contains(data, `"far"`) {
		t.Errorf("event %s: %s", id, data)
	}
	there.want(200, "POST", "/api/workflows/f/terminate", `{}`)
	for _, want := range []string{"3", "4", ""} {
		if id, name, _ := s.next(); id != want || want == "" && name != "end" {
			t.Errorf("event %s %s, want %s", id, name, want)
		}
	}
}
