package shop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/examples/shop"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/workflowtest"
)

// bank collects the tokens that the bank receives during a test.
func bank(t *testing.T) <-chan string {
	asked, before := make(chan string, 10), shop.AskBank
	shop.AskBank = func(_ context.Context, _ string, _ int, token string) error {
		asked <- token
		return nil
	}
	t.Cleanup(func() { shop.AskBank = before })
	return asked
}

func registry() *worker.Registry {
	r := worker.NewRegistry()
	shop.Register(r)
	return r
}

func TestAPaymentWaitsForTheBank(t *testing.T) {
	workflowtest.Run(t, registry(), func(t *testing.T, env *workflowtest.Env) {
		asked := bank(t)
		run := env.Start(shop.Payment, "o-1", 100)
		first := <-asked
		if err := env.FailActivity(first, errors.New("the bank is closed")); err != nil {
			t.Error(err)
		}
		second := <-asked // a minute later
		if err := env.CompleteActivity(first, "late"); err == nil {
			t.Error("the token of the first attempt was accepted")
		}
		time.Sleep(11 * time.Hour)
		if cancelled, err := env.HeartbeatActivity(second, nil); cancelled || err != nil {
			t.Errorf("heartbeat: %t, %v", cancelled, err)
		}
		for range 2 { // a repetition has no effect
			if err := env.CompleteActivity(second, "r-7"); err != nil {
				t.Error(err)
			}
		}
		if got, err := workflowtest.Result[string](run); got != "r-7" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}

		declined := env.Start(shop.Payment, "o-2", 100)
		if err := env.FailActivity(<-asked, activity.NewError("Declined", "no", activity.NonRetryable)); err != nil {
			t.Error(err)
		}
		if _, err := workflowtest.Result[string](declined); err == nil {
			t.Error("a declined payment has a receipt")
		}

		silent := env.Start(shop.Payment, "o-3", 100) // the bank never calls back
		if _, err := workflowtest.Result[string](silent); err == nil {
			t.Error("a payment without a callback has a receipt")
		}
		if n := len(asked); n != 3 {
			t.Errorf("the bank was asked %d times", n)
		}
	})
}
