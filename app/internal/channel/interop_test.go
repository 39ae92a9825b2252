package channel_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The official JavaScript client runs a job: settings, poll, extend, complete; with another release it gets no job.
func TestAJavaScriptWorkerDoesAJob(t *testing.T) {
	dir := peers(t)
	a := apptest.Start(t, apptest.Options{})
	b := a.Broker()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, err := b.Register(
		ctx, protocol.RegisterRequest{WorkerID: "flow", TaskQueue: "default", WorkflowTypes: []string{"wf"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	run, err := b.Start(ctx, protocol.StartRequest{WorkflowID: "one", WorkflowType: "wf"})
	if err != nil {
		t.Fatal(err)
	}
	args, err := payload.EncodeArgs("Ada")
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := b.Poll(ctx, protocol.PollRequest{WorkerID: "flow"})
	if err != nil || len(tasks.Tasks) != 1 {
		t.Fatalf("poll: %+v %v", tasks, err)
	}
	task := tasks.Tasks[0].Workflow
	out, err := b.Complete(ctx, protocol.CompleteRequest{Items: []protocol.CompleteItem{{
		Kind: protocol.KindWorkflow, TaskID: task.TaskID, Owner: "flow", Attempt: task.Attempt,
		Commands: []protocol.Command{{Type: protocol.ScheduleActivity, ActivityType: "js.greet", Arguments: args}},
	}}})
	if err != nil || out.Items[0].Err != nil {
		t.Fatal(err, out.Items)
	}
	for _, release := range []string{"other", "test"} {
		cmd := exec.CommandContext(ctx, "node", "worker.mjs", a.URL(), release)
		cmd.Dir = dir
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("worker of release %s: %v\n%s", release, err, text)
		}
	}
	page, err := a.View().History(ctx, protocol.HistoryQuery{Target: protocol.Target{WorkflowID: "one", RunID: run.RunID}})
	if err != nil {
		t.Fatal(err)
	}
	done, ok := page.Events[len(page.Events)-1].Data.(*history.ActivityCompleted)
	if !ok || done.Worker != "js-test" || done.Result != "wwHioz3/VYAiNwoEb2s=" || done.Release != "test" {
		t.Fatalf("last event: %+v", page.Events[len(page.Events)-1])
	}
}

// peers returns the directory of the installed official client. The tests require Node.js.
func peers(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "..", "interop", "js"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("node"); err != nil {
		t.Fatal("node is not installed: the official Socket.IO client cannot be tested against")
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "socket.io-client")); err != nil {
		install := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund")
		install.Dir = dir
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("npm ci: %v\n%s", err, out)
		}
	}
	return dir
}
