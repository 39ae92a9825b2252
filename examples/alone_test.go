package examples_test

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/sandbox/sandboxtest"
	"github.com/sojourn-run/sojourn/worker"
)

func takeNote(ctx context.Context, app *client.Client, text string) (notes []string, err error) {
	run, err := app.StartActivity(ctx, "notes", client.Args{text}, client.ActivityOptions{
		SessionID: "ada", StartToClose: time.Minute,
	})
	if err != nil {
		return nil, err
	}
	return notes, run.Result(ctx, &notes)
}

// The guide's examples of activity runs: from a shell, over HTTP and from Go, in one session with an in-memory state.
func TestActivitiesByThemselvesAsInTheGuide(t *testing.T) {
	t.Parallel()
	if sandboxtest.Race {
		t.Skip("the race detector does not live with the limits of executors")
	}
	for _, needed := range []string{"bash", "curl", "node"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skipf("no %s: %v", needed, err)
		}
	}
	a := apptest.Start(t, apptest.Options{})
	work(t, a, func(o *worker.Options) {
		o.Executors.Disabled, o.Handlers, o.DataDir = false, "alone/activities", t.TempDir()
	})
	var script string
	for _, block := range blocks(t, "../docs/guide/activities.md", "sh") {
		if strings.Contains(block, "activity run") || strings.Contains(block, "sojourn/activities") {
			script += block
		}
	}
	checkConsole(t, a, "../docs/guide/getting-started.md", 2, "sojourn activity run ")
	prints(
		t, a, script, `["buytea"]`, `["buytea","callBob"]`, `started_newlater,run`, `["buytea","callBob","fragile"]`,
		`"outcome":"started_new"`, `"output":["buytea","callBob","fragile","water"]`,
	)
	app, err := client.New(client.Options{URLs: []string{a.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	notes, err := takeNote(t.Context(), app, "sleep")
	if want := []string{"buy tea", "call Bob", "fragile", "water", "sleep"}; err != nil || !slices.Equal(notes, want) {
		t.Errorf("got %q, %v", notes, err)
	}
}
