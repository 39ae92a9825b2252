package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The app that executes a batch job is killed (SIGKILL) in the middle of the job. With SQLite the restarted app
// continues the job, with PostgreSQL another app does. Each run received one signal.
func TestABatchJobSurvivesAKilledApp(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.app["SOJOURN_TOKEN"] = "sjn_bootstrap_of_this_test_and_long_enough"
			f.client.token = f.app["SOJOURN_TOKEN"]
			if kind == "postgres" {
				f.app["SOJOURN_DATABASE_URL"] = apptest.Postgres(t)
			}
			p := &plant{fleet: f, node: map[string]*process{}}
			p.app = launch(t, f.dir, f.app, "app")
			f.client.up()
			const runs = 200
			for i := range runs {
				p.client.must(http.MethodPost, "/api/workflows", map[string]any{
					"workflow_id": fmt.Sprintf("run-%d", i), "workflow_type": "waiting", "task_queue": "nobody",
				}, nil)
			}
			var job protocol.BatchJobView
			p.client.must(http.MethodPost, "/api/sojourn/batch-jobs", map[string]any{
				"query": "WorkflowType = 'waiting'", "action": "signal", "signal_name": "go", "rate_per_second": 40,
			}, &job)
			path := "/api/sojourn/batch-jobs/" + job.JobID
			until(t, "the job has signalled some runs", func() bool {
				p.client.must(http.MethodGet, path, nil, &job)
				return job.Done >= 20
			})
			p.app.kill()
			if kind == "postgres" {
				_, p.client.base = p.another("app-2", address(t))
			} else {
				p.app = launch(t, f.dir, f.app, "app")
				f.client.up()
			}
			p.client.must(http.MethodGet, path, nil, &job)
			if job.Pending == 0 {
				t.Fatal("the app was killed after the end of the job")
			}
			until(t, "the job completes", func() bool {
				job = protocol.BatchJobView{}
				p.client.must(http.MethodGet, path, nil, &job)
				return job.ClosedAt != nil
			})
			if job.State != protocol.BatchCompleted || job.Runs != runs || job.Done != runs || job.Refused != 0 {
				t.Errorf("job: %+v", job)
			}
			for i := range runs {
				id := fmt.Sprintf("run-%d", i)
				var history struct {
					Events []struct {
						Type string `json:"event_type"`
					} `json:"events"`
				}
				p.client.must(
					http.MethodGet, "/api/workflows/"+id+"/runs/"+p.client.describe(id).RunID+"/history", nil, &history,
				)
				signals := 0
				for _, e := range history.Events {
					if e.Type == "SignalReceived" {
						signals++
					}
				}
				if signals != 1 {
					t.Errorf("%s received %d signals", id, signals)
				}
			}
		})
	}
}

// Commands with --query create a batch job after a confirmation, show its progress, and print its end.
func TestBatchJobsFromAShell(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	for i := range 6 {
		s.try(0, "started_new", "workflow", "start", "unserved", "--queue", "nobody", "--id", fmt.Sprintf("bulk-%d", i))
	}
	const query = "WorkflowType = 'unserved'"
	s.try(2, "type yes to confirm, or pass --yes", "workflow", "terminate", "--query", query)
	s.try(2, "--limit requires --query", "workflow", "terminate", "bulk-0", "--limit", "1")
	s.try(2, "cannot be combined with --query", "workflow", "terminate", "--query", query, "--run", "x")
	s.try(2, "--query is required", "batch", "start", "cancel")
	s.try(1, "query", "batch", "start", "cancel", "--query", "WorkflowType =", "--yes")
	s.try(1, "action", "batch", "start", "pause", "--query", query, "--yes")
	s.try(0, "6 of 6 runs done, 0 refused", "workflow", "signal", "--query", query, "go", "--yes")
	s.try(
		0, "2 of 2 runs done", "batch", "start", "cancel", "--query", query, "--limit", "2", "--yes", "--reason", "enough",
	)
	var job protocol.BatchJobView
	if out := s.try(0, "", "workflow", "cancel", "--now", "--query", query, "--yes", "--json"); json.Unmarshal(
		[]byte(out), &job,
	) != nil || job.Done != 4 || job.Action != protocol.BatchCancel {
		t.Errorf("printed %s", out)
	}
	s.try(0, "4 of 4 runs done", "batch", "describe", job.JobID)
	if out := s.try(0, "done", "batch", "results", job.JobID); strings.Count(out, "bulk-") != 4 {
		t.Errorf("results: %s", out)
	}
	s.try(0, "none", "batch", "results", job.JobID, "--state", "refused")
	s.try(1, "batch_job_closed", "batch", "stop", job.JobID)
	s.try(1, "batch_job_not_found", "batch", "describe", "none")
	s.try(0, "6 of 6 runs done", "workflow", "archive", "--query", query, "--yes")
	s.try(0, "6 of 6 runs done", "workflow", "delete", "--query", query, "--yes")
	if out := s.try(0, "delete", "batch"); strings.Count(out, "completed") != 5 {
		t.Errorf("list: %s", out)
	}
	for i := range 3 {
		s.try(0, "started_new", "workflow", "start", "unserved", "--queue", "nobody", "--id", fmt.Sprintf("slow-%d", i))
	}
	if out := s.try(
		0, "collecting", "workflow", "terminate", "--query", query, "--yes", "--rate", "1", "--no-wait",
	); out != "" {
		id := strings.TrimSuffix(strings.Fields(out)[1], ":")
		s.try(0, "stopped "+id, "batch", "stop", id, "--reason", "wrong filter")
		s.try(0, "wrong filter", "batch", "describe", id)
	}
}
