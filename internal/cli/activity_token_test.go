package cli_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func registerPending(r *worker.Registry) {
	r.Activity("pending.ask", func(context.Context) (string, error) { return "", activity.ErrPending })
	// pending.slow creates a file with the name of its token and waits for the file done before it returns
	r.Activity("pending.slow", func(ctx context.Context, dir string) (string, error) {
		if err := os.WriteFile(filepath.Join(dir, activity.Token(ctx)), nil, 0o600); err != nil {
			return "", err
		}
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(dir, "done")); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		return "", activity.ErrPending
	})
	r.Workflow("pending.wait_slow", func(ctx workflow.Context, dir string) (string, error) {
		return workflow.Execute[string](workflow.WithActivity(ctx, workflow.ActivityOptions{
			StartToClose: time.Hour, Retry: &workflow.RetryPolicy{MaxAttempts: 2},
		}), "pending.slow", dir)
	})
	r.Workflow("pending.wait", func(ctx workflow.Context) (string, error) {
		return workflow.Execute[string](workflow.WithActivity(ctx, workflow.ActivityOptions{
			StartToClose: time.Hour, Retry: &workflow.RetryPolicy{MaxAttempts: 2},
		}), "pending.ask")
	})
}

// pending returns the token of the pending attempt of a run, once there is one that is not the token before.
func (c client) pending(id, before string) (token string) {
	c.t.Helper()
	until(c.t, "an attempt is pending", func() bool {
		for _, a := range c.describe(id).Pending.Activities {
			token = a.Token
		}
		return token != "" && token != before
	})
	return token
}

// Worker and app are killed (SIGKILL) while attempts are pending. Both attempts stay open: no other attempt begins, and
// their tokens end them at the restarted app, also if the app is killed after it acknowledged the outcome.
func TestPendingAttemptsStayOpenAfterWorkerAndAppAreKilled(t *testing.T) {
	onDatabases(t, "and pending attempts stay open", func(p *plant) {
		restart := func() {
			p.app.kill()
			p.app = launch(p.t, p.dir, p.fleet.app, "app")
			p.client.up()
		}
		report := func(token, verb string, body map[string]any) {
			p.t.Helper()
			p.client.must(http.MethodPost, "/api/sojourn/activities/"+token+"/"+verb, body, nil)
		}
		p.begin("first", nil)
		runs, tokens := map[string]string{}, map[string]string{}
		for _, id := range []string{"completed", "failed"} {
			runs[id] = p.client.start(id, "pending.wait").RunID
			tokens[id] = p.client.pending(id, "")
		}
		p.node["first"].kill()
		restart()
		p.begin("second", nil)
		for id, token := range tokens {
			if got := p.client.pending(id, ""); got != token {
				p.t.Errorf("%s: the token of the open attempt is %s, was %s", id, got, token)
			}
			report(token, "heartbeat", map[string]any{"details": id})
		}
		failure := map[string]any{"failure": map[string]any{"message": "no"}}
		report(tokens["completed"], "complete", map[string]any{"result": "completed"})
		report(tokens["failed"], "fail", failure)
		restart()
		report(tokens["completed"], "complete", map[string]any{"result": "completed"})
		report(tokens["failed"], "fail", failure)
		report(p.client.pending("failed", tokens["failed"]), "complete", map[string]any{"result": "failed"})
		for id, attempts := range map[string]int{"completed": 1, "failed": 2} {
			text, all, retries := "", p.client.completed(id, runs[id]), 0
			for _, e := range all {
				switch d := e.Data.(type) {
				case *history.ActivityRetryScheduled:
					retries++
				case *history.ActivityCompleted:
					if d.Attempt.Number != attempts {
						p.t.Errorf("%s: attempt %d completed", id, d.Attempt.Number)
					}
				}
			}
			out := all[len(all)-1].Data.(*history.WorkflowCompleted).Output
			if err := payload.Decode(payload.Payload{Blob: out}, &text); err != nil || text != id || retries != attempts-1 {
				p.t.Errorf("%s: result %q after %d retries, %v", id, text, retries, err)
			}
		}
	})
}

// A worker and its app are stopped (SIGSTOP) while one attempt is pending, and while the code of another one has passed
// on its token and has not returned. Callers report both outcomes to the other app, one of them after the stopped app
// did not respond. After worker and app continue (SIGCONT), the stopped app returns the receipt of the other one, and
// the late report of the worker affects no other attempt.
func TestPendingAttemptsAreResolvedWhileWorkerAndAppAreStopped(t *testing.T) {
	t.Parallel()
	p := byDefault(t, true)
	here := p.client
	p.begin("stopped", nil)
	dir := t.TempDir()
	reported := here.start("reported", "pending.wait").RunID
	token := here.pending("reported", "")
	unreported := here.start("unreported", "pending.wait_slow", dir).RunID
	started := func(n int) (tokens []string) {
		t.Helper()
		until(t, fmt.Sprint(n, " attempts have passed on their tokens"), func() bool {
			files, err := os.ReadDir(dir)
			tokens = nil
			for _, f := range files {
				if f.Name() != "done" {
					tokens = append(tokens, f.Name())
				}
			}
			return err == nil && len(tokens) >= n
		})
		return tokens
	}
	early := started(1)[0]
	there := p.client
	_, there.base = p.another("app-2", address(t))

	worker := p.node["stopped"]
	send := func(signal syscall.Signal) {
		t.Helper()
		if err := errors.Join(p.app.cmd.Process.Signal(signal), worker.cmd.Process.Signal(signal)); err != nil {
			t.Fatal(err)
		}
	}
	send(syscall.SIGSTOP)
	path := func(token, verb string) string { return "/api/sojourn/activities/" + token + "/" + verb }
	yes := map[string]any{"result": "yes"}
	ctx, giveUp := context.WithTimeout(t.Context(), time.Second)
	defer giveUp()
	if status, _, err := here.call(ctx, http.MethodPost, path(token, "complete"), yes); err == nil {
		t.Errorf("the stopped app responds with %d", status)
	}
	var first, second protocol.ActivityReceipt
	there.must(http.MethodPost, path(token, "complete"), yes, &first)
	there.must(http.MethodPost, path(early, "fail"), map[string]any{"failure": map[string]any{"message": "no"}}, nil)
	p.begin("other", env{"SOJOURN_APP_URL": there.base})
	if err := os.WriteFile(filepath.Join(dir, "done"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	late := there.pending("unreported", early)
	there.completed("reported", reported)

	send(syscall.SIGCONT)
	here.must(http.MethodPost, path(token, "complete"), yes, &second)
	if first != second || first.Outcome != "completed" {
		t.Errorf("receipts %+v and %+v", first, second)
	}
	p.node["other"].kill()
	// the worker runs a task, after its report of the attempt that a caller had ended
	here.start("next", "pending.wait")
	here.must(http.MethodPost, path(here.pending("next", ""), "complete"), yes, nil)
	here.completed("next", here.describe("next").RunID)
	if got := here.pending("unreported", ""); got != late {
		t.Errorf("the token of the second attempt is %s, was %s", got, late)
	}
	if status, raw, err := here.call(t.Context(), http.MethodPost, path(early, "complete"), yes); err != nil ||
		status != http.StatusConflict {
		t.Errorf("an outcome with the token of the first attempt: %d %s %v", status, raw, err)
	}
	here.must(http.MethodPost, path(late, "complete"), yes, nil)
	for id, want := range map[string]struct {
		run     string
		retries int
	}{"reported": {reported, 0}, "unreported": {unreported, 1}} {
		completed, retries := 0, 0
		for _, e := range here.completed(id, want.run) {
			switch e.Data.(type) {
			case *history.ActivityCompleted:
				completed++
			case *history.ActivityRetryScheduled:
				retries++
			}
		}
		if completed != 1 || retries != want.retries {
			t.Errorf("%s: %d completions after %d retries, want 1 after %d", id, completed, retries, want.retries)
		}
	}
	if n := len(started(2)); n != 2 {
		t.Errorf("%d attempts began, want 2", n)
	}
}

func TestPendingActivitiesAreResolvedFromAShell(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	opened := func(id string) (token string) {
		t.Helper()
		s.try(0, "started_new", "workflow", "start", "pending.wait", "--id", id)
		until(t, "the attempt is pending", func() bool {
			var v protocol.RunView
			s.read(&v, "workflow", "describe", id)
			for _, a := range v.Pending.Activities {
				token = a.Token
			}
			return token != ""
		})
		s.try(0, token, "workflow", "describe", id)
		return token
	}
	yes, no := opened("yes"), opened("no")
	s.try(0, "heartbeat of attempt "+yes, "activity", "heartbeat", yes, "--details", `{"page": 1}`)
	for range 2 {
		s.try(0, "completed attempt "+yes+" of activity pending.ask of workflow yes", "activity", "complete", yes,
			"--result", `"it is"`)
	}
	s.try(0, `"it is"`, "workflow", "result", "yes")
	s.try(1, "conflicting_completion", "activity", "complete", yes, "--result", "2")
	s.try(1, "stale_attempt", "activity", "heartbeat", yes)
	var receipt protocol.ActivityReceipt
	s.read(&receipt, "activity", "fail", no, "--type", "Denied", "--message", "too much", "--non-retryable")
	if receipt.Outcome != "failed" || receipt.Retry || receipt.WorkflowID != "no" {
		t.Errorf("receipt %+v", receipt)
	}
	s.try(1, "too much", "workflow", "result", "no")
	s.try(1, "task_not_found", "activity", "complete", "none")
	s.try(2, "--message must not be empty", "activity", "fail", no)
	s.try(2, "--result is not JSON", "activity", "complete", no, "--result", "{")
	s.try(2, "requires an activity token", "activity", "complete")
}
