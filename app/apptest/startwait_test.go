package apptest_test

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// startAndWait starts a run of type flow with wait_seconds and further members of the body, in the background.
func (c caller) startAndWait(id, more string) <-chan response {
	c.t.Helper()
	got := make(chan response, 1)
	go func() {
		got <- c.ask("POST", "/api/workflows", `{"workflow_id":"`+id+`","workflow_type":"flow","task_queue":"`+handQueue+`"`+
			more+`}`)
	}()
	return got
}

// sum returns a number of the app's metrics.
func (c caller) sum(metric string) float64 {
	c.t.Helper()
	for line := range strings.SplitSeq(c.want(200, "GET", "/metrics", "").raw, "\n") {
		if value, ok := strings.CutPrefix(line, metric+" "); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				c.t.Fatal(err)
			}
			return n
		}
	}
	return 0
}

// A start with wait_seconds returns the outcome of the run, or of the run that continues it, in the members that the
// result route has. It says whether it started the run.
func TestAStartThatWaitsReturnsWhatTheResultRouteReturns(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		c, elsewhere := caller{t, a, ""}, caller{t, b, ""}
		w := register(c, "w", "")
		result := `{"type":"complete_workflow","result":` + envelope(t, `{"total":7}`) + `}`
		late := 0
		for _, end := range []struct {
			name, status string
			at           caller // the app that the second caller calls
			commands     []string
		}{
			{"completes", "completed", c, []string{result}},
			{"fails", "failed", c, []string{`{"type":"fail_workflow","message":"no stock","exception_class":"Empty"}`}},
			{"continues", "completed", c, []string{`{"type":"continue_as_new"}`, `{"type":"continue_as_new"}`, result}},
			{"elsewhere", "completed", elsewhere, []string{`{"type":"continue_as_new"}`, result}},
		} {
			first := c.startAndWait(end.name, `,"wait_seconds":60,"input":[1],"business_key":"b","memo":{"m":1}`)
			task := w.poll("workflow")
			changes := end.at.sum("sojourn_store_changes_total")
			second := end.at.startAndWait(end.name, `,"wait_seconds":60,"duplicate_policy":"use-existing"`)
			until(t, "the second start is decided", func() bool { return end.at.sum("sojourn_store_changes_total") > changes })
			for i, command := range end.commands {
				if i > 0 {
					task = w.poll("workflow")
				}
				w.decide(task, command)
			}
			want := c.want(200, "GET", "/api/sojourn/workflows/"+end.name+"/result", "").body
			s := <-first
			outcome := s.text("outcome")
			delete(s.body, "control_plane")
			delete(s.body, "outcome")
			if s.status != 201 || outcome != "started_new" || s.text("status") != end.status ||
				!reflect.DeepEqual(s.body, want) {
				t.Errorf("%s: got %d %s\nwant %v", end.name, s.status, s.raw, want)
			}
			switch s = <-second; {
			case s.status == 409: // another change was counted, and the start arrived after the end
				late++
			case s.status != 200 || s.text("outcome") != "returned_existing_active" || s.text("run_id") != want["run_id"] ||
				s.body["is_terminal"] != true:
				t.Errorf("%s, the second start: got %d %s", end.name, s.status, s.raw)
			}
		}
		if late == 4 {
			t.Error("no second start came before the end of its run")
		}
		s := c.ask("POST", "/api/workflows", `{"workflow_id":"fails","workflow_type":"flow","wait_seconds":60}`)
		if s.status != 409 || s.text("reason") != "duplicate_not_allowed" {
			t.Errorf("an ID that was used: %d %s", s.status, s.raw)
		}
	})
}

// When the time ends, the response is the open run. The duration of the operation does not include the wait, and the
// bytes of the request are free while it waits.
func TestAStartWhoseWaitEndsReturnsTheOpenRun(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), ""}
		const wait = 6
		large := strings.Repeat("x", 1<<20)
		held := c.startAndWait("w", fmt.Sprintf(`,"wait_seconds":%d,"input":[%q]`, wait, large))
		until(t, "the run is started", func() bool { return c.ask("GET", "/api/workflows/w", "").status == 200 })
		until(t, "the bytes of the request are free", func() bool { return c.sum("sojourn_inflight_bytes") < float64(len(large)) })
		if len(held) > 0 {
			t.Error("the bytes of the request were free only after the wait")
		}
		s := <-held
		if s.status != 201 || s.body["is_terminal"] != false || s.text("outcome") != "started_new" ||
			s.text("status") != "pending" || s.body["output_envelope"] != nil || s.text("run_id") == "" {
			t.Errorf("got %d %s", s.status, s.raw)
		}
		if took := c.sum(`sojourn_http_seconds_sum{operation="start"}`); took == 0 || took >= wait {
			t.Errorf("the start is counted with %v s, and it waited for %d s", took, wait)
		}
		if s := c.want(201, "POST", "/api/workflows", `{"workflow_type":"flow","wait_seconds":0}`); s.body["is_terminal"] != nil {
			t.Errorf("without a wait: %s", s.raw)
		}
	})
}

func TestAStartWithAnInvalidWaitStartsNothing(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c := caller{t, a, ""}
	for wait, more := range map[string]string{
		"-1": "", "61": "", "1.5": "", `"5"`: "", "true": "", "[]": "", "9223372036854775808": "", "5": `,"cron":"@daily"`,
	} {
		unchanged(t, a, "a wait of "+wait, func() {
			s := c.ask("POST", "/api/workflows", `{"workflow_id":"w","workflow_type":"flow","wait_seconds":`+wait+more+`}`)
			if fields, _ := s.body["errors"].(map[string]any); s.status != 422 || s.text("reason") != "validation_failed" ||
				fields["wait_seconds"] == nil {
				t.Errorf("a wait of %s%s: %d %s", wait, more, s.status, s.raw)
			}
		})
	}
}

// A draining app returns the open run at once, to callers that already wait and to callers that start a run.
func TestADrainingAppReturnsStartsWithTheOpenRun(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		before := c.startAndWait("before", `,"wait_seconds":60`)
		until(t, "the run is started", func() bool { return c.ask("GET", "/api/workflows/before", "").status == 200 })
		a.Broker().Drain()
		after := c.startAndWait("after", `,"wait_seconds":60`)
		for _, got := range []<-chan response{before, after} {
			if s := <-got; s.status != 201 || s.body["is_terminal"] != false || s.text("outcome") != "started_new" {
				t.Errorf("got %d %s", s.status, s.raw)
			}
		}
	})
}

// Starts that wait hold no commit: other starts, and the runs of others, proceed.
func TestStartsThatWaitDelayNoOtherStart(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), ""}
		w := register(c, "w", "")
		var held []<-chan response
		for i := range 50 {
			held = append(held, c.startAndWait(fmt.Sprint("held-", i), `,"wait_seconds":60`))
		}
		var tasks []handTask
		for range held {
			tasks = append(tasks, w.poll("workflow"))
		}
		bystander := c.startAndWait("bystander", `,"wait_seconds":60`)
		w.decide(w.poll("workflow"), finish)
		if s := <-bystander; s.text("status") != "completed" {
			t.Errorf("the bystander: %d %s", s.status, s.raw)
		}
		for _, got := range held {
			if len(got) > 0 {
				t.Errorf("a start returned before the end of its run: %s", (<-got).raw)
			}
		}
		for _, task := range tasks {
			w.decide(task, finish)
		}
		for _, got := range held {
			if s := <-got; s.status != 201 || s.text("status") != "completed" {
				t.Errorf("got %d %s", s.status, s.raw)
			}
		}
	})
}
