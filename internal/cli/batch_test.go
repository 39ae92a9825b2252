package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The app that executes a batch job is killed (SIGKILL), or stopped (SIGSTOP) for longer than the job's lease, in the
// middle of the job. With SQLite the restarted app continues the job, with PostgreSQL another app does. A stopped app
// resumes (SIGCONT) while the other app executes the job. Each run received one signal.
func TestABatchJobSurvivesAKilledOrFrozenApp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ postgres, freeze bool }{
		"killed on sqlite": {}, "killed on postgres": {postgres: true}, "frozen on postgres": {postgres: true, freeze: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.app["SOJOURN_TOKEN"] = "sjn_bootstrap_of_this_test_and_long_enough"
			f.client.token = f.app["SOJOURN_TOKEN"]
			if c.postgres {
				f.app["SOJOURN_DATABASE_URL"] = apptest.Postgres(t)
			}
			p := &plant{fleet: f, node: map[string]*process{}}
			p.app = launch(t, f.dir, f.app, "app")
			f.client.up()
			const runs = 200
			for i := range runs {
				p.client.must(http.MethodPost, "/api/workflows", map[string]any{
					"workflow_id": fmt.Sprintf("run-%d", i), "workflow_type": "waiting", "task_queue": "unserved",
				}, nil)
			}
			var job protocol.BatchJobView
			p.client.must(http.MethodPost, "/api/sojourn/batch-jobs", map[string]any{
				"query": "WorkflowType = 'waiting'", "action": "signal", "signal_name": "go", "rate_per_second": 40,
			}, &job)
			until(t, "the job has signalled some runs", func() bool { return p.batchJob(job.JobID).Done >= 20 })
			first := p.client
			if c.freeze {
				p.signalApp(syscall.SIGSTOP)
			} else {
				p.app.kill()
			}
			if c.postgres {
				_, p.client.base = p.another("app-2", address(t))
			} else {
				p.app = launch(t, f.dir, f.app, "app")
				f.client.up()
			}
			before := p.batchJob(job.JobID)
			if before.Pending == 0 {
				t.Fatal("the app was killed or stopped after the end of the job")
			}
			if c.freeze {
				until(t, "the other app continues the job", func() bool { return p.batchJob(job.JobID).Done > before.Done })
				p.signalApp(syscall.SIGCONT)
				if p.batchJob(job.JobID).Pending == 0 {
					t.Fatal("the app resumed after the end of the job")
				}
				first.up()
			}
			until(t, "the job completes", func() bool {
				job = p.batchJob(job.JobID)
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

// batchJob returns a batch job with its progress.
func (p *plant) batchJob(id string) (job protocol.BatchJobView) {
	p.t.Helper()
	p.client.must(http.MethodGet, "/api/sojourn/batch-jobs/"+id, nil, &job)
	return job
}

// signalApp sends a signal to the process of the app.
func (p *plant) signalApp(s syscall.Signal) {
	p.t.Helper()
	if err := p.app.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// Commands with --query create a batch job after a confirmation, show its progress, and print its end.
func TestBatchJobsFromAShell(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	for i := range 6 {
		s.try(0, "started_new", "workflow", "start", "unserved", "--queue", "unserved", "--id", fmt.Sprintf("bulk-%d", i))
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
		s.try(0, "started_new", "workflow", "start", "unserved", "--queue", "unserved", "--id", fmt.Sprintf("slow-%d", i))
	}
	if out := s.try(
		0, "collecting", "workflow", "terminate", "--query", query, "--yes", "--rate", "1", "--no-wait",
	); out != "" {
		id := strings.TrimSuffix(strings.Fields(out)[1], ":")
		s.try(0, "stopped "+id, "batch", "stop", id, "--reason", "wrong filter")
		s.try(0, "wrong filter", "batch", "describe", id)
	}
}
