package examples_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/examples/handlers"
	"github.com/sojourn-run/sojourn/examples/research"
	"github.com/sojourn-run/sojourn/examples/sessions/conversation"
	"github.com/sojourn-run/sojourn/examples/sessions/device"
	"github.com/sojourn-run/sojourn/examples/sessions/keepalive"
	"github.com/sojourn-run/sojourn/examples/sessions/model"
	"github.com/sojourn-run/sojourn/examples/sessions/pool"
	"github.com/sojourn-run/sojourn/examples/sessions/rebuild"
	"github.com/sojourn-run/sojourn/examples/sessions/tenant"
	"github.com/sojourn-run/sojourn/sandbox/sandboxtest"
	"github.com/sojourn-run/sojourn/worker"
)

func TestResearchEndsWhenItIsApproved(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	work(t, a, nil)
	c := caller{t, a.URL()}
	c.start(research.Workflow, "q", research.Question{Text: "what do blue whales eat", Near: 2})
	c.signal("q", research.Approve, "a reader")
	var got research.Answer
	c.result("q", &got)
	if len(got.Passages) != 2 || len(got.Keywords) == 0 || got.Approved != "a reader" || got.Model.Passages == 0 {
		t.Errorf("got %+v", got)
	}
}

func TestConversationContinuesInItsNextRunAndOnAnotherWorker(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	stop, _ := work(t, a, nil)
	c := caller{t, a.URL()}
	c.start(conversation.Workflow, "c", conversation.Talk{PerRun: 2})
	c.signal("c", conversation.Say, "hello")
	c.signal("c", conversation.Say, "Hello")
	c.until("c", func(r run) bool { return r.Number == 2 && strings.Contains(r.Waits, "signal") })
	stop()
	work(t, a, nil)
	c.signal("c", conversation.Say, "hello")
	c.signal("c", conversation.Say, conversation.Bye)
	var got conversation.Talk
	c.result("c", &got)
	want := []string{`"hello", I see`, `"Hello", you said that 2 times`, `"hello", you said that 3 times`}
	if !slices.Equal(got.Replies, want) {
		t.Errorf("got replies %q, want %q", got.Replies, want)
	}
	if got.Loads != 2 {
		t.Errorf("memory was filled %d times, want once for each worker", got.Loads)
	}
}

func TestTouchedSessionOutlivesItsIdleTime(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	work(t, a, func(o *worker.Options) {
		o.AttemptLease, o.Sessions.Lease, o.Sessions.Idle = 2*time.Second, 4*time.Second, 4*time.Second
	})
	c := caller{t, a.URL()}
	c.start(keepalive.Workflow, "touched", keepalive.Pause{Seconds: 9, Every: 1})
	c.start(keepalive.Workflow, "left", keepalive.Pause{Seconds: 9})
	var touched, left keepalive.Held
	c.result("touched", &touched)
	c.result("left", &left)
	if touched.Before == 0 || touched.Before != touched.After {
		t.Errorf("touched session changed hands: %+v", touched)
	}
	if left.After <= left.Before {
		t.Errorf("session that was left alone was not claimed anew: %+v", left)
	}
}

func TestLostSessionIsRebuiltAndTheWorkflowNoticesNothing(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	short := func(id string) func(*worker.Options) {
		return func(o *worker.Options) { o.WorkerID, o.Sessions.Lease = id, 2*time.Second }
	}
	_, kill := work(t, a, short("first"))
	c := caller{t, a.URL()}
	c.start(rebuild.Workflow, "r", "The cat and the dog, and the fish.")
	c.signal("r", rebuild.Ask, "the")
	c.until("r", func(r run) bool { return strings.Contains(r.Waits, "signal") && completed(c, "r", r) == 2 })
	kill()
	work(t, a, short("second"))
	c.signal("r", rebuild.Ask, "and")
	c.signal("r", rebuild.Ask, "")
	var got []rebuild.Found
	c.result("r", &got)
	if len(got) != 2 || got[0].Times != 3 || got[0].Worker != "first" || got[1].Times != 2 || got[1].Worker != "second" ||
		got[1].Epoch <= got[0].Epoch {
		t.Errorf("got %+v", got)
	}
}

// completed returns the number of completed activities in a run's history.
func completed(c caller, id string, r run) (n int) {
	c.t.Helper()
	var h struct {
		Events []struct {
			Type string `json:"event_type"`
		} `json:"events"`
	}
	c.must("GET", "workflows/"+id+"/runs/"+r.RunID+"/history", nil, &h)
	for _, e := range h.Events {
		if e.Type == "ActivityCompleted" {
			n++
		}
	}
	return n
}

func TestTenantsJournalIsOpenedOnceByEachOwner(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	name := fmt.Sprintf("t%d", time.Now().UnixNano())
	t.Cleanup(func() { _ = os.Remove(filepath.Join(os.TempDir(), "sojourn-tenant-"+name+".txt")) })
	stop, _ := work(t, a, func(o *worker.Options) { o.WorkerID = "first" })
	c := caller{t, a.URL()}
	var one, two tenant.Written
	c.start(tenant.Workflow, "one", tenant.Entries{Tenant: name, Lines: []string{"a", "b"}})
	c.result("one", &one)
	stop()
	work(t, a, func(o *worker.Options) { o.WorkerID = "second" })
	c.start(tenant.Workflow, "two", tenant.Entries{Tenant: name, Lines: []string{"c"}})
	c.result("two", &two)
	if one.Lines != 2 || one.Worker != "first" || two.Lines != 3 || two.Worker != "second" || two.Opened <= one.Opened {
		t.Errorf("got %+v, then %+v", one, two)
	}
}

func TestAPoolLendsAModelAgain(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	work(t, a, nil)
	c := caller{t, a.URL()}
	c.start(pool.Workflow, "first", "acme", "whale")
	c.until("first", func(r run) bool { return strings.Contains(r.Waits, "pool llama, which does not exist") })
	c.must("PUT", "sojourn/pools/llama", map[string]any{
		"definition": pool.Name, "task_queue": "default", "size": 1,
	}, &struct{}{})
	var got [2]string
	c.result("first", &got[0])
	c.start(pool.Workflow, "second", "acme", "cat")
	c.result("second", &got[1])
	if want := [2]string{
		`answer 1 of the model: "whale" has 5 letters`, `answer 2 of the model: "cat" has 3 letters`,
	}; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestModelMovesWithWhatItHasRead(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	with := func(id, amount string) func(*worker.Options) {
		return func(o *worker.Options) { o.WorkerID, o.Resources = id, map[string]string{"gpu_mem": amount} }
	}
	stop, _ := work(t, a, with("first", "24GiB"))
	c := caller{t, a.URL()}
	c.start(model.Workflow, "m")
	c.signal("m", model.Tell, "a")
	c.until("m", func(r run) bool { return strings.Contains(r.Waits, "signal") && completed(c, "m", r) == 1 })
	work(t, a, with("small", "8GiB"))
	stop()
	c.signal("m", model.Tell, "b")
	c.until("m", func(r run) bool { return strings.Contains(r.Waits, "needs gpu_mem 24GiB") })
	work(t, a, with("second", "80GiB"))
	c.signal("m", model.Tell, "")
	var got []model.Answer
	c.result("m", &got)
	if want := []model.Answer{{Texts: 1, Worker: "first"}, {Texts: 2, Worker: "second"}}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestDeviceIsSharedByRunsAndWaitsForAWorkerThatHasIt(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	work(t, a, nil)
	c := caller{t, a.URL()}
	c.start(device.Workflow, "one", device.Job{Device: "p1", Pages: 3})
	c.until("one", func(r run) bool { return strings.Contains(r.Waits, "needs printer") })
	work(t, a, func(o *worker.Options) { o.WorkerID, o.Capabilities = "pressroom", []string{device.Printer} })
	var one, two device.Printed
	c.result("one", &one)
	c.start(device.Workflow, "two", device.Job{Device: "p1", Pages: 2})
	c.result("two", &two)
	if want := (device.Printed{First: 1, Last: 3, Worker: "pressroom"}); one != want {
		t.Errorf("first job: got %+v, want %+v", one, want)
	}
	if want := (device.Printed{First: 4, Last: 5, Worker: "pressroom"}); two != want {
		t.Errorf("second job: got %+v, want %+v", two, want)
	}
}

func TestHandlersInJavaScriptAndPythonKeepTheirState(t *testing.T) {
	t.Parallel()
	if sandboxtest.Race {
		t.Skip("the race detector does not live with the limits of executors")
	}
	for _, program := range []string{"node", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s: %v", program, err)
		}
	}
	a := apptest.Start(t, apptest.Options{})
	work(t, a, func(o *worker.Options) {
		o.Executors.Disabled, o.Handlers, o.DataDir = false, "handlers/activities", t.TempDir()
	})
	c := caller{t, a.URL()}
	c.start(handlers.Workflow, "h", []string{"The whale sings.", "A whale dives, and the other whale as well."})
	var got handlers.Tally
	c.result("h", &got)
	if got.Texts != 2 || got.Words != 7 || got.Most["whale"] != 3 {
		t.Errorf("got %+v", got)
	}
}
