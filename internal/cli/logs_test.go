package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func registerLogs(r *worker.Registry) {
	r.Activity("logs.holds", func(ctx context.Context, item string) error {
		me := activity.Info(ctx).WorkerID
		activity.Logger(ctx).Info("begun", "worker", me)
		for ctx.Err() == nil {
			if _, err := os.Stat(wordFor(os.Getenv(holdPath), item, me)); err == nil {
				activity.Logger(ctx).Warn("done")
				return nil
			}
			time.Sleep(20 * time.Millisecond)
		}
		return context.Cause(ctx)
	})
	r.Activity("logs.fails", func(ctx context.Context, item string) error {
		activity.Logger(ctx).Error("no \x1b[31mcredit", "item", item)
		return errors.New("declined")
	})
	r.Workflow("logs.two", func(ctx workflow.Context) error {
		once := workflow.WithActivity(ctx, workflow.ActivityOptions{Retry: &workflow.RetryPolicy{
			MaxAttempts: 2, Backoff: []time.Duration{time.Millisecond},
		}})
		_ = workflow.ExecuteActivity(once, "logs.fails", "x").Get(ctx, nil)
		return workflow.ExecuteActivity(ctx, "logs.holds", "y").Get(ctx, nil)
	})
}

// Logs that a worker sent before it was killed are kept, together with the logs of the next attempt on another worker.
func TestLinesOfAKilledWorkerAreKept(t *testing.T) {
	onDatabases(t, "lines", func(p *plant) {
		t := p.t
		p.begin("first", nil)
		var run protocol.ActivityResponse
		p.client.must(http.MethodPost, "/api/sojourn/activities", map[string]any{
			"activity_type": "logs.holds", "input": []string{"item"}, "workflow_id": "lines",
		}, &run)
		texts := func(query string) (a protocol.ActivityLogs, all string) {
			p.client.must(http.MethodGet, "/api/tasks/"+run.RunID+"-1/logs"+query, nil, &a)
			for _, l := range a.Lines {
				all += l.Text + ";"
			}
			return a, all
		}
		until(t, "the line is there", func() bool { _, all := texts(""); return all == "begun worker=first;" })
		p.node["first"].kill()
		p.begin("second", nil)
		until(t, "the other worker's line is there", func() bool {
			a, all := texts("")
			return a.Running && all == "begun worker=second;"
		})
		p.let("item", "second")
		p.client.completed("lines", run.RunID)
		if a, all := texts(""); all != "begun worker=second;done;" || a.Running || a.Open || len(a.Attempts) != 2 {
			t.Errorf("of the second attempt: %s %+v", all, a)
		}
		if _, all := texts("?attempt=1"); all != "begun worker=first;" {
			t.Errorf("of the killed worker's attempt: %s", all)
		}
	})
}

// An activity is selected by its workflow, its type or its number. Its logs are followed over all attempts to its end,
// without terminal control sequences.
func TestLinesAreReadAndFollowedFromAShell(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hold := filepath.Join(dir, "hold")
	_, c, _ := dev(t, dir, "127.0.0.1:0", env{holdPath: hold})
	s := shell{t, dir, env{"SOJOURN_APP_URL": c.base}}
	s.try(1, "declined", "activity", "run", "logs.fails", `["a"]`, "--id", "alone")
	if out := s.try(0, "", "activity", "logs", "alone"); !strings.HasSuffix(out, "log    error no \uFFFD[31mcredit item=a") ||
		strings.Contains(out, "\x1b") {
		t.Errorf("got %q", out)
	}
	s.try(0, "started_new", "workflow", "start", "logs.two", "--id", "two")
	follow := launch(t, s.dir, s.env, "activity", "logs", "two", "logs.holds", "-f")
	// The activity may not exist yet; then there are no logs to follow.
	for follow.err.count("has no activity") > 0 || follow.out.count("begun") == 0 {
		select {
		case <-follow.ended:
			follow = launch(t, s.dir, s.env, "activity", "logs", "two", "logs.holds", "-f")
		case <-time.After(20 * time.Millisecond):
		}
	}
	interrupted := launch(t, s.dir, s.env, "activity", "logs", "two", "2", "-f")
	interrupted.line(interrupted.out, "log    info  begun")
	if err := interrupted.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := interrupted.exit(); code != 1 || interrupted.err.count("continues") != 1 {
		t.Errorf("interrupted: exit %d, %s", code, interrupted)
	}
	if err := os.WriteFile(wordFor(hold, "y", "local"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := follow.exit(); code != 0 || follow.out.count("begun") != 1 || follow.out.count("warn  done") != 1 {
		t.Errorf("followed: exit %d, %s", code, follow)
	}
	for _, which := range []string{"logs.fails", "1"} {
		s.try(0, "item=x", "activity", "logs", "two", which)
		s.try(0, "item=x", "activity", "logs", "two", which, "--attempt", "1")
	}
	raw := s.try(0, "", "activity", "logs", "two", "1", "--attempt", "2", "--json")
	var line struct {
		ID   string `json:"activity_attempt_id"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal([]byte(raw), &line); err != nil || !strings.HasSuffix(line.ID, "-1-2") || line.Text == "" {
		t.Errorf("as JSON: %s, %v", raw, err)
	}
	s.try(0, "done", "activity", "logs", strings.TrimSuffix(line.ID, "-1-2")+"-2")
	s.try(0, "done", "activity", "logs", "two") // the last one
	s.try(1, "has no activity none", "activity", "logs", "two", "none")
	s.try(1, "instance_not_found", "activity", "logs", "nothing")
	s.try(1, "task_not_found", "activity", "logs", "two", "9")
	s.try(2, "at least 1", "activity", "logs", "two", "1", "--attempt", "0")
}
