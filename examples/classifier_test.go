package examples_test

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/sandbox/sandboxtest"
	"github.com/sojourn-run/sojourn/worker"
)

// A model in a session is learned when it is first needed, stays, and is learned anew when its process is killed.
func TestAModelIsRebuiltWhenItsProcessIsKilled(t *testing.T) {
	t.Parallel()
	if sandboxtest.Race {
		t.Skip("the race detector does not live with the limits of executors")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on this machine")
	}
	a := apptest.Start(t, apptest.Options{})
	work(t, a, func(o *worker.Options) {
		o.Executors.Disabled, o.Handlers, o.DataDir = false, "classifier/activities", t.TempDir()
	})
	app, err := client.New(client.Options{URLs: []string{a.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(name, text string, answer any) {
		t.Helper()
		run, err := app.StartActivity(t.Context(), name, client.Args{text}, client.ActivityOptions{
			SessionID: "post", Retry: &client.RetryPolicy{MaxAttempts: 3},
		})
		if err == nil {
			err = run.Result(t.Context(), answer)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	label := func(text, want string) {
		t.Helper()
		var got string
		if ask("mail.label", text, &got); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	label("The invoice is wrong", "billing")
	var process int
	ask("mail.train", "", &process)
	label("Where is my parcel?", "delivery")
	if err := syscall.Kill(process, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	label("I forgot my password", "account") // which may meet the process as it ends, and then is tried again
	var another int
	if ask("mail.train", "", &another); another == process {
		t.Error("the process that was killed answers")
	}
}
