package sessiontest

import (
	"context"
	"errors"
	"fmt"
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
