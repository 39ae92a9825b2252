package cli_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func registerAwakeables(r *worker.Registry) {
	// returns the result of an awakeable, or the text of its failure
	r.Workflow("awakeable.wait", func(ctx workflow.Context) (string, error) {
		text, err := workflow.Awakeable[string](ctx, 72*time.Hour).Result(ctx)
		if failed, ok := errors.AsType[*workflow.AwakeableError](err); ok {
			return failed.Error(), nil
		}
		return text, err
	})
}

func TestAwakeablesAreResolvedFromAShell(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	opened := func(id string) string {
		t.Helper()
		s.try(0, "started_new", "workflow", "start", "awakeable.wait", "--id", id)
		awakeable := ""
		until(t, "the awakeable is open", func() bool {
			var v protocol.RunView
			s.read(&v, "workflow", "describe", id)
			if v.Wait == nil || v.Wait.Reason != protocol.WaitAwakeable {
				return false
			}
			awakeable = v.Wait.Name
			return true
		})
		if out := s.try(0, awakeable, "workflow", "describe", id); !strings.Contains(out, " | until ") ||
			strings.Contains(out, "| timer ") {
			t.Errorf("the timeout is not in the row of the awakeable:\n%s", out)
		}
		return awakeable
	}
	yes, no := opened("yes"), opened("no")
	for range 2 {
		s.try(0, "completed awakeable "+yes+" of workflow yes", "awakeable", "complete", yes, "--result", `"it is"`)
	}
	s.try(0, `"it is"`, "workflow", "result", "yes")
	s.try(1, "conflicting_completion", "awakeable", "complete", yes, "--result", "2")
	var receipt protocol.AwakeableReceipt
	s.read(&receipt, "awakeable", "fail", no, "--type", "Denied", "--message", "too much", "--details", `{"limit": 5}`)
	if receipt.Outcome != "failed" || receipt.AwakeableID != no || receipt.WorkflowID != "no" {
		t.Errorf("receipt %+v", receipt)
	}
	s.try(0, "Denied: too much", "workflow", "result", "no")
	s.try(1, "awakeable_not_found", "awakeable", "complete", "none")
	s.try(2, "--message must not be empty", "awakeable", "fail", no)
	s.try(2, "--result is not JSON", "awakeable", "complete", no, "--result", "{")
	s.try(2, "requires an awakeable ID", "awakeable", "complete")
	s.env["SOJOURN_APP_URL"] = "http://127.0.0.1:1"
	s.try(1, "no app answers", "awakeable", "complete", no)
}

// The app is killed (SIGKILL) after it acknowledged an outcome. The restarted app, or another one, has recorded it.
func TestAnAwakeableStaysResolvedAfterTheAppIsKilled(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.app["SOJOURN_TOKEN"] = "sjn_bootstrap_of_this_test_and_long_enough"
			f.worker["SOJOURN_TOKEN"], f.client.token = f.app["SOJOURN_TOKEN"], f.app["SOJOURN_TOKEN"]
			if kind == "postgres" {
				f.app["SOJOURN_DATABASE_URL"] = apptest.Postgres(t)
			}
			p := &plant{fleet: f, node: map[string]*process{}}
			p.app = launch(t, f.dir, f.app, "app")
			f.client.up()
			p.begin("first", env{})
			runs := map[string]string{}
			for i := range 5 {
				id := fmt.Sprintf("w-%d", i)
				var a protocol.StartResponse
				p.client.must(http.MethodPost, "/api/workflows", map[string]any{
					"workflow_id": id, "workflow_type": "awakeable.wait",
				}, &a)
				runs[id] = a.RunID
				until(t, "the awakeable is open", func() bool {
					v := p.client.describe(id)
					return v.Wait != nil && v.Wait.Reason == protocol.WaitAwakeable
				})
			}
			p.node["first"].kill()
			for id, run := range runs {
				p.client.must(http.MethodPost, "/api/sojourn/awakeables/"+run+"-1/complete", map[string]any{"result": id}, nil)
			}
			p.app.kill()
			base := p.client.base
			if kind == "postgres" {
				_, base = p.another("app-2", address(t))
				p.client.base = base
			} else {
				p.app = launch(t, f.dir, f.app, "app")
				f.client.up()
			}
			p.begin("second", env{"SOJOURN_APP_URL": base})
			for id, run := range runs {
				text, all := "", p.client.completed(id, run)
				out := all[len(all)-1].Data.(*history.WorkflowCompleted).Output
				if err := payload.Decode(payload.Payload{Blob: out}, &text); err != nil || text != id {
					t.Errorf("%s: result %q, %v", id, text, err)
				}
				p.client.must(http.MethodPost, "/api/sojourn/awakeables/"+run+"-1/complete", map[string]any{"result": id}, nil)
			}
		})
	}
}

// An app is stopped (SIGSTOP) when a caller resolves an awakeable at it. The caller gives up and repeats the request at
// another app. The stopped app continues, with the first request in its socket: it gives the same response, and history
// has one event.
func TestAnAwakeableIsResolvedOnceWhileAnAppIsStopped(t *testing.T) {
	t.Parallel()
	p, there := onTwoApps(t)
	run := there.start("w", "awakeable.wait").RunID
	until(t, "the awakeable is open", func() bool {
		v := there.describe("w")
		return v.Wait != nil && v.Wait.Reason == protocol.WaitAwakeable
	})
	path, yes := "/api/sojourn/awakeables/"+run+"-1/complete", map[string]any{"result": "yes"}
	stopped := p.app.cmd.Process
	if err := stopped.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithTimeout(t.Context(), time.Second)
	defer giveUp()
	if status, _, err := p.client.call(ctx, http.MethodPost, path, yes); err == nil {
		t.Errorf("the stopped app responds with %d", status)
	}
	var first, second protocol.AwakeableReceipt
	there.must(http.MethodPost, path, yes, &first)
	if err := stopped.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.client.must(http.MethodPost, path, yes, &second)
	if first != second || first.Outcome != "completed" {
		t.Errorf("receipts %+v and %+v", first, second)
	}
	if status, raw, err := p.client.call(t.Context(), http.MethodPost, path, map[string]any{"result": "no"}); err != nil ||
		status != http.StatusConflict {
		t.Errorf("another result: %d %s %v", status, raw, err)
	}
	completed := 0
	for _, e := range p.client.completed("w", run) {
		if _, ok := e.Data.(*history.AwakeableCompleted); ok {
			completed++
		}
	}
	if completed != 1 {
		t.Errorf("%d completions are recorded", completed)
	}
}
