package sessiontest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func has(text string) func(*worker.Options) {
	return func(o *worker.Options) {
		r, err := protocol.ParseResources(text)
		if err != nil {
			panic(err)
		}
		o.Resources = r.Texts()
	}
}

// needs runs an item in a session with this ID that needs amounts of one resource.
func needs(ctx workflow.Context, id, resource, amount string, millis int) (string, error) {
	ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{WorkerSession: &workflow.WorkerSession{
		ID: id, Resources: map[string]string{resource: amount}, MaxActivities: 10,
	}})
	by, err := workflow.Execute[string](ctx, "work", id, millis)
	if errors.Is(err, workflow.ErrSessionResources) {
		return "refused: " + err.Error(), nil
	}
	return by, err
}

// Of two workers the one that keeps the larger share free acquires a session. A session for which no worker has room
// waits, and begins when a session ends.
func TestSessionsAreAcquiredByResources(t *testing.T) {
	bubble(t, "", func(h *harness) {
		h.flow("needs", needs)
		h.start("A", byDefault, has("gpu_mem=80GiB"))
		h.start("B", byDefault, has("gpu_mem=48GiB"))
		h.wait(sec)
		h.equal("the first", output[string](h, h.begin("needs", "s1", "gpu_mem", "24GiB", 1)), "A") // 56 of 80 stay free
		h.wait(sec)
		h.equal("the second", output[string](h, h.begin("needs", "s2", "gpu_mem", "24GiB", 1)), "B") // 24 of 48, not 32 of 80
		h.wait(sec)
		h.equal("the third", output[string](h, h.begin("needs", "s3", "gpu_mem", "40GiB", 1)), "A")
		waits := h.begin("needs", "s4", "gpu_mem", "40GiB", 1)
		h.wait(sec)
		h.equal("it waits for", h.waitOf(waits).Message, `activity "work": session s4 needs gpu_mem 40GiB; `+
			"worker B has 24GiB of 48GiB free, worker A has 16GiB of 80GiB free")
		h.equal("a smaller one", output[string](h, h.begin("needs", "s5", "gpu_mem", "8GiB", 1)), "B")
		views, err := h.Workers(h.t.Context(), "default", "", "")
		if err != nil || len(views) != 2 {
			h.t.Fatal(views, err)
		}
		for i, want := range []string{"64GiB of 80GiB", "32GiB of 48GiB"} {
			use := views[i].Resources["gpu_mem"]
			h.equal("in use at "+views[i].WorkerID, use.Used.String()+" of "+use.Total.String(), want)
		}
		_, err = h.OperateSession(h.t.Context(), protocol.SessionOperation{SessionID: "s3", Verb: "close", Identity: "ada"})
		if err != nil {
			h.t.Fatal(err)
		}
		h.equal("the one that waited", output[string](h, waits), "A")
	})
}

// An idle session that uses what a waiting session lacks is evicted. If the idle ones together use too little, none is.
func TestAnIdleSessionIsEvictedForResources(t *testing.T) {
	bubble(t, "", func(h *harness) {
		h.flow("needs", needs)
		h.flow("one", one)
		h.start("A", byDefault, has("licence=3"))
		output[string](h, h.begin("one", "other", "other", 1)) // idle for longest, but uses no licence
		h.wait(sec)
		for _, id := range []string{"s1", "s2"} {
			output[string](h, h.begin("needs", id, "licence", "1", 1))
			h.wait(sec)
		}
		busy := h.begin("needs", "s3", "licence", "1", 120_000)
		h.running("s3")
		h.wait(12 * sec)
		large := h.begin("needs", "s4", "licence", "3", 1) // s3 is busy, so two licences at most become free
		h.wait(5 * sec)
		h.allHeld("A", "other", "s1", "s2", "s3")
		h.equal("s5", output[string](h, h.begin("needs", "s5", "licence", "1", 1)), "A")
		h.allHeld("A", "other", "s2", "s3", "s5")
		if gave := h.last("s1"); gave.What != "released" || gave.Why != "evicted_cap" {
			h.t.Errorf("the timeline of s1 ends with %+v", gave.SessionEvent)
		}
		output[string](h, busy)
		h.equal("the large one", output[string](h, large), "A")
		h.allHeld("A", "other", "s4")
	})
}

// While no worker serves the queue, a session waits for one. With a worker that never could hold it, the activity fails
// with a typed error.
func TestASessionThatNoWorkerCanHoldIsRefused(t *testing.T) {
	bubble(t, "", func(h *harness) {
		h.flow("needs", needs)
		h.flow("started", func(ctx workflow.Context) (string, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{Resources: map[string]string{"licence": "4"}})
			if err != nil {
				return "", err
			}
			_, err = workflow.Await[string](ctx, s.Execute(ctx, "work", "x", 1))
			if !errors.Is(err, workflow.ErrSessionResources) {
				return "", fmt.Errorf("got %w", err)
			}
			return err.Error(), nil
		})
		h.start("A", byDefault, has("licence=3"))
		got := output[string](h, h.begin("needs", "s", "licence", "4", 1))
		if want := "session s needs licence=4; worker A has 3 of 3 free"; !strings.Contains(got, want) {
			h.t.Errorf("got %q, want %q", got, want)
		}
		got = output[string](h, h.begin("started"))
		if want := "needs licence=4, which no live worker of its queue had when it started"; !strings.Contains(got, want) {
			h.t.Errorf("got %q, want %q", got, want)
		}
		h.equal("s with less", output[string](h, h.begin("needs", "s", "licence", "3", 1)), "A")
	})
}

// The definition of a session brings the resources that it uses.
func TestADefinitionBringsResources(t *testing.T) {
	bubble(t, "", func(h *harness) {
		h.uses(func(r *worker.Registry, _ *proc) {
			r.Session("model", activity.SessionDefinition{
				SetUp:     func(context.Context) (string, error) { return "loaded", nil },
				Resources: map[string]string{"gpu_mem": "24GiB"},
			})
		})
		h.flow("model", func(ctx workflow.Context, id string) (string, error) {
			inside := workflow.InSession(ctx, id, workflow.SessionDefinition{Name: "model"})
			return workflow.Execute[string](inside, "work", id, 1)
		})
		h.start("A", byDefault, has("gpu_mem=50GiB"))
		output[string](h, h.begin("model", "m1"))
		output[string](h, h.begin("model", "m2"))
		run := h.begin("model", "m3")
		h.wait(sec)
		h.equal("it waits for", h.waitOf(run).Message,
			`activity "work": session m3 needs gpu_mem 24GiB; worker A has 2GiB of 50GiB free`)
		output[string](h, run) // an idle one is evicted
	})
}

// A worker without a connection keeps the state of its session for five minutes. It uses its resources meanwhile.
func TestResourcesOfSuspendedStateCount(t *testing.T) {
	bubble(t, "", func(h *harness) {
		h.flow("needs", needs)
		h.flow("started", func(ctx workflow.Context, id string) (string, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{
				Resources: map[string]string{"licence": "2"}, Pinned: true,
			})
			if err != nil {
				return "", err
			}
			if _, err := workflow.Await[string](ctx, s.Execute(ctx, "work", id, 1)); err != nil {
				return "", err
			}
			return s.ID, workflow.Signal(ctx, "go").Receive(ctx, nil)
		})
		a := h.start("A", byDefault, has("licence=3"))
		h.begin("started", "x")
		h.done("x")
		id := h.once("x").session.ID
		a.sever()
		h.until("its lease expires", sec, func() bool { return h.owner(id) == "" })
		h.wait(2 * sec)
		used := func() string {
			h.t.Helper()
			views, err := h.Workers(h.t.Context(), "default", "", "")
			if err != nil || len(views) != 1 {
				h.t.Fatal(views, err)
			}
			return views[0].Resources["licence"].Used.String()
		}
		h.equal("licences in use by suspended state", used(), "2")
		a.rejoin()
		h.until("it is resumed", sec, func() bool { return h.owner(id) == "A" })
		h.equal("licences in use afterwards", used(), "2")
		a.sever()
		h.wait(6*time.Minute + 30*sec)
		h.equal("licences in use after five minutes", used(), "0")
	})
}

// licences returns how many licences the sessions of each worker use. It fails the test if a worker uses more than it
// has.
func (h *harness) licences() map[string]string {
	h.t.Helper()
	views, err := h.Workers(h.t.Context(), "default", "", "")
	if err != nil {
		h.t.Fatal(err)
	}
	used := map[string]string{}
	for i := range views {
		use, ok := views[i].Resources["licence"]
		if use.Used.Thousandths() > use.Total.Thousandths() {
			h.t.Errorf("worker %s uses %s of %s licences", views[i].WorkerID, use.Used, use.Total)
		}
		if ok {
			used[views[i].WorkerID] = use.Used.String()
		}
	}
	return used
}

// The use of resources is stored: it outlives the app. A killed worker uses none after the leases of its sessions have
// expired, and no other worker acquires more of these sessions than fit there.
func TestResourcesOutliveTheAppAndAKilledWorker(t *testing.T) {
	database := "sqlite:" + filepath.Join(t.TempDir(), "test.db")
	bubbleOn(t, "", serverOptions{Database: database}, func(h *harness) {
		h.flow("holds", func(ctx workflow.Context, id string, millis int) (string, error) {
			ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{WorkerSession: &workflow.WorkerSession{
				ID: id, Resources: map[string]string{"licence": "1"}, MaxActivities: 10, Pinned: true,
			}})
			return workflow.Execute[string](ctx, "work", id, millis)
		})
		plain := h.start("W") // runs the workflows
		a := h.start("A", byDefault, has("licence=2"))
		var b *proc
		owners := map[string][]string{}
		for i := range 4 {
			id := fmt.Sprint("s", i)
			by := output[string](h, h.begin("holds", id, 1))
			owners[by] = append(owners[by], id)
			if i == 1 { // A has no licence left
				b = h.start("B", byDefault, has("licence=2"))
				h.wait(sec)
			}
		}
		h.equal("sessions of A", len(owners["A"]), 2)
		full := map[string]string{"A": "2", "B": "2"}
		h.equal("licences in use", h.licences(), full)

		plain.drop()
		a.drop()
		b.drop()
		h.close()
		h.testServer = open(h.t, serverOptions{Database: database})
		plain.rejoin()
		a.rejoin()
		b.rejoin()
		h.wait(2 * sec)
		h.equal("licences in use after the restart of the app", h.licences(), full)
		fifth := h.begin("holds", "s4", 1)
		h.wait(5 * sec)
		h.equal("it waits for", h.waitOf(fifth).Reason, protocol.WaitSessionResources)

		a.kill()
		h.until("the leases of A's sessions expire", sec, func() bool {
			h.licences()
			return h.owner(owners["A"][0]) == "" && h.owner(owners["A"][1]) == ""
		})
		runs := []string{fifth}
		for _, id := range owners["A"] {
			runs = append(runs, h.begin("holds", id, 1))
		}
		c := h.start("C", byDefault, has("licence=1"))
		h.wait(30 * sec)
		used := h.licences()
		h.equal("licences in use at B", used["B"], "2")
		h.equal("licences in use at C", used["C"], "1")
		h.equal("sessions without an owner", h.ownerless("s0", "s1", "s2", "s3", "s4"), 2)

		h.start("A", byDefault, has("licence=2"))
		for _, run := range runs {
			output[string](h, run)
		}
		h.equal("licences in use at last", h.licences(), map[string]string{"A": "2", "B": "2", "C": "1"})
		c.stop()
		h.wait(30 * sec)
		h.equal("sessions without an owner", h.ownerless("s0", "s1", "s2", "s3", "s4"), 1)
		h.licences()
	})
}

// ownerless returns how many of these sessions no worker holds.
func (h *harness) ownerless(ids ...string) (n int) {
	h.t.Helper()
	for _, id := range ids {
		if h.owner(id) == "" {
			n++
		}
	}
	return n
}

// A draining worker hands three sessions over to two workers that have a licence for one session each. Each prepares
// one, and its licence is in use from then on. The third session is not handed over.
func TestHandOversCompeteForResources(t *testing.T) {
	bubble(t, "", func(h *harness) {
		h.defines(3*sec, nil, prepares, func(d *activity.SessionDefinition) {
			d.Resources = map[string]string{"licence": "1"}
		})
		h.flow("flow", conversation)
		a := h.start("A", slots(16), has("licence=3"))
		for i := range 3 {
			h.begin("flow", fmt.Sprint("s", i))
		}
		h.until("all are set up", 10*ms, func() bool { return len(h.did("set up")) == 3 && len(h.did()) == 6 })
		h.start("B", slots(16), has("licence=1"))
		h.start("C", slots(16), has("licence=1"))
		done := a.draining()
		h.wait(sec)
		h.equal("preparing", []int{h.reserved("B"), h.reserved("C")}, []int{1, 1})
		// A releases the third session, for which no worker has a licence.
		h.equal("licences in use", h.licences(), map[string]string{"A": "2", "B": "1", "C": "1"})
		h.begin("flow", "other")
		h.until("the hand-overs", 10*ms, func() bool {
			h.licences()
			return slices.Equal(slices.Sorted(slices.Values(h.held())), []string{"B", "C"})
		})
		done()
		h.wait(5 * sec)
		h.equal("set-ups", len(h.did("set up")), 5)
		h.equal("a new session waits for a licence", len(h.did("first other")), 0)
		used := h.licences()
		h.equal("licences in use after the hand-overs", used["B"]+used["C"], "11")
	})
}

// No idle session is evicted from a worker that could not hold the waiting session afterwards either: the worker does
// not have the resource, or the idle session uses none of it.
func TestNoSessionIsEvictedWithoutRoomForTheWaitingOne(t *testing.T) {
	for name, of := range map[string]string{"another worker has the resource": "", "a busy session uses it": "licence=1"} {
		bubble(t, name, func(h *harness) {
			h.flow("needs", needs)
			h.flow("one", one)
			h.start("A", byDefault, most(2), has(of))
			idle := []string{"x"}
			if of == "" {
				idle = append(idle, "y")
			}
			for _, id := range idle {
				output[string](h, h.begin("one", id, id, 1))
			}
			if of == "" {
				h.start("B", byDefault, has("licence=1"))
			}
			h.begin("needs", "busy", "licence", "1", 120_000)
			h.running("busy")
			h.wait(12 * sec)
			waits := h.begin("needs", "waits", "licence", "1", 1)
			h.wait(time.Minute)
			h.allHeld("A", idle...)
			h.equal("the session that waits", h.owner("waits"), "")
			output[string](h, waits)
		})
	}
}
