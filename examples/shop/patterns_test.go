package shop_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/examples/shop"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/workflowtest"
)

// services returns a registry whose activity call is answered by the test, and the calls so far.
func services(respond func(service, order string) (string, error)) (r *worker.Registry, calls func() []string) {
	var mu sync.Mutex
	var all []string
	r = registry()
	r.ReplaceActivity("call", func(_ context.Context, service, order string) (string, error) {
		mu.Lock()
		all = append(all, service+" "+order)
		mu.Unlock()
		return respond(service, order)
	})
	return r, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// serve is like services with a service that always responds "done".
func serve() (r *worker.Registry, calls func() []string) {
	return services(func(string, string) (string, error) { return "done", nil })
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func result[T comparable](t *testing.T, run *workflowtest.Workflow, expected T) {
	t.Helper()
	got, err := workflowtest.Result[T](run)
	if err != nil || got != expected {
		t.Errorf("got %v and %v, want %v", got, err, expected)
	}
}

func TestAnOrderIsUndoneInReverseOrder(t *testing.T) {
	r, calls := services(func(service, _ string) (string, error) {
		if service == "ship" {
			return "", activity.NewError("Closed", "no carrier", activity.NonRetryable)
		}
		return "done", nil
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		if _, err := workflowtest.Result[any](env.Start(shop.Order, "7")); err == nil {
			t.Error("the order was shipped")
		}
	})
	want(t, "calls", strings.Join(calls(), ", "), "reserve 7, charge 7, ship 7, recall 7, refund 7, release 7")
}

func TestACancelledOrderIsUndone(t *testing.T) {
	r, calls := services(func(service, _ string) (string, error) {
		if service == "charge" {
			time.Sleep(30 * time.Second)
		}
		return "done", nil
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		run := env.Start(shop.Order, "7")
		time.Sleep(10 * time.Second)
		run.RequestCancellation()
		if _, err := workflowtest.Result[any](run); err == nil {
			t.Error("the order completed")
		}
	})
	want(t, "calls", strings.Join(calls(), ", "), "reserve 7, charge 7, refund 7, release 7")
}

func TestAnApprovalRemindsAndExpires(t *testing.T) {
	r, calls := serve()
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		run := env.Start(shop.Approval, "7")
		time.Sleep(5 * time.Hour)
		if _, err := workflowtest.Update[any](run, "decide", "approved"); err != nil {
			t.Error(err)
		}
		result(t, run, "approved")
		want(t, "reminders", len(calls()), 2)
		result(t, env.Start(shop.Approval, "8"), "expired")
		want(t, "reminders", len(calls()), 5)
	})
}

func TestCategoriesAreCountedByChildren(t *testing.T) {
	leaf := shop.Category{Products: 2}
	tree := shop.Category{Products: 1, Parts: []shop.Category{leaf, {Parts: []shop.Category{leaf, leaf}}}}
	workflowtest.Run(t, registry(), func(t *testing.T, env *workflowtest.Env) {
		result(t, env.Start(shop.Count, tree), 7)
	})
}

func TestAnImportIsBounded(t *testing.T) {
	var mu sync.Mutex
	now, most := 0, 0
	r, _ := services(func(_, product string) (string, error) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		time.Sleep(time.Second)
		mu.Lock()
		now--
		mu.Unlock()
		if product == "p13" {
			return "", activity.NewError("Invalid", "no price", activity.NonRetryable)
		}
		return "done", nil
	})
	products := strings.Fields(strings.Repeat("p ", 19) + "p13")
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		result(t, env.Start(shop.Import, products, 3), "19 imported, 1 failed")
	})
	want(t, "most at once", most, 3)
}

func TestAParcelIsTrackedInManyRuns(t *testing.T) {
	asked := 0
	r, _ := services(func(string, string) (string, error) {
		if asked++; asked > 50 {
			return "arrived", nil
		}
		return "under way", nil
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		run := env.Start(shop.Parcel, "7", 1)
		result(t, run, 3)
		want(t, "end of the first run", run.History()[len(run.History())-1].Type, "WorkflowContinuedAsNew")
	})
}

func TestARefundWaitsForTheWebhook(t *testing.T) {
	r, calls := serve()
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		run := env.Start(shop.Refund, "7")
		time.Sleep(time.Hour)
		id := strings.TrimPrefix(calls()[0], "refund ")
		for range 2 { // the bank repeats its webhook
			if err := env.CompleteAwakeable(id, "refunded"); err != nil {
				t.Error(err)
			}
		}
		result(t, run, "refunded")
		result(t, env.Start(shop.Refund, "8"), "the bank did not respond in eight hours")
	})
}

func TestACartLivesInManyRuns(t *testing.T) {
	workflowtest.Run(t, registry(), func(t *testing.T, env *workflowtest.Env) {
		cart := env.Start(shop.Cart, nil)
		for n := range 101 {
			if got, err := workflowtest.Update[int](cart, "add", "milk", 1); err != nil || got != n+1 {
				t.Fatalf("update %d: %d, %v", n, got, err)
			}
		}
		if items, err := workflowtest.Query[map[string]int](cart, "items"); err != nil || items["milk"] != 101 {
			t.Errorf("items %v, %v", items, err)
		}
		if _, err := workflowtest.Update[any](cart, "order"); err != nil {
			t.Error(err)
		}
		items, err := workflowtest.Result[map[string]int](cart)
		if err != nil || items["milk"] != 101 {
			t.Errorf("ordered %v, %v", items, err)
		}
		want(t, "end of the first run", cart.History()[len(cart.History())-1].Type, "WorkflowContinuedAsNew")
	})
}

func TestTheFirstQuoteWins(t *testing.T) {
	r, _ := services(func(carrier, _ string) (string, error) {
		if carrier == "slow" {
			time.Sleep(time.Minute)
		}
		return carrier, nil
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		result(t, env.Start(shop.Quote, "7", []string{"slow", "fast"}), "fast")
	})
}

func TestReviewsOfAnHourAreOneMessage(t *testing.T) {
	r, calls := serve()
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		run := env.Start(shop.Digest)
		for _, text := range []string{"good", "bad", "fair"} {
			time.Sleep(20 * time.Minute)
			run.Signal("review", text)
		}
		result(t, run, "good, bad, fair")
		want(t, "calls", strings.Join(calls(), "; "), "send good, bad, fair")
	})
}

func TestARentalEndsWithItsCancellation(t *testing.T) {
	r, calls := serve()
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		run := env.Start(shop.Rental, "Ada")
		time.Sleep(12*time.Hour + 30*time.Minute) // it has continued as new
		run.RequestCancellation()
		if _, err := workflowtest.Result[any](run); err != nil {
			t.Error(err)
		}
		all := calls()
		want(t, "last call", all[len(all)-1], "return Ada")
		want(t, "hours", len(all)-1, 13)
	})
}

func TestAnAgentUsesToolsInASession(t *testing.T) {
	r, calls := services(func(_, seen string) (string, error) {
		switch seen {
		case "price of milk":
			return "search", nil
		case "search":
			return "read", nil
		}
		return "answer: 2 after " + seen, nil
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		result(t, env.Start(shop.Agent, "price of milk", 9), "2 after search read")
		want(t, "status of the session", env.Sessions()[0].Status, "closed")
	})
	want(t, "calls of the model", len(calls()), 3)
}

// The worker is killed in the middle of programs, and another worker continues them.
func TestProgramsContinueAfterTheLossOfTheWorker(t *testing.T) {
	r, calls := services(func(service, _ string) (string, error) {
		time.Sleep(40 * time.Second)
		if service == "model" {
			return "answer: yes", nil
		}
		return "done", nil
	})
	o := workflowtest.Options{Workers: []workflowtest.WorkerSpec{{ID: "a"}}}
	workflowtest.RunWith(t, o, r, func(t *testing.T, env *workflowtest.Env) {
		order, rows := env.Start(shop.Order, "7"), env.Start(shop.Export, 1000)
		agent, products := env.Start(shop.Agent, "goal", 3), env.Start(shop.Import, []string{"x", "y"}, 1)
		time.Sleep(time.Minute) // the order is charged, and 60 rows are written
		env.AddWorker(workflowtest.WorkerSpec{ID: "b"})
		env.Worker(0).Kill()
		if _, err := workflowtest.Result[any](order); err != nil {
			t.Error(err)
		}
		result(t, agent, "yes")
		result(t, products, "2 imported, 0 failed")
		if n, err := workflowtest.Result[int](rows); err != nil || n >= 1000 || n < 900 {
			t.Errorf("the second attempt wrote %d of 1000 rows, %v", n, err)
		}
	})
	reserved := 0
	for _, call := range calls() {
		if call == "reserve 7" {
			reserved++
		}
	}
	want(t, "completed calls that were repeated", reserved, 1)
	if slices.Contains(calls(), "refund 7") {
		t.Error("the order was undone")
	}
}
