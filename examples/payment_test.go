package examples_test

import (
	"context"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/examples/shop"
	"github.com/sojourn-run/sojourn/worker"
)

// A bank that calls back twice completes the payment once; a declined payment fails without another attempt.
func TestTheBankCallsBack(t *testing.T) {
	asked, before := make(chan string, 10), shop.AskBank
	shop.AskBank = func(_ context.Context, _ string, _ int, token string) error {
		asked <- token
		return nil
	}
	t.Cleanup(func() { shop.AskBank = before })
	a := apptest.Start(t, apptest.Options{})
	work(t, a, func(o *worker.Options) {
		o.Registry = worker.NewRegistry()
		shop.Register(o.Registry)
	})
	app, err := client.New(client.Options{URLs: []string{a.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	for declined, want := range map[string]string{"": "r-7", "no credit": ""} {
		run, err := app.Start(t.Context(), "payment", client.Args{"o-1", 100}, client.StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		token := <-asked
		for range 2 {
			if err := shop.BankCalls(t.Context(), app, token, "r-7", declined); err != nil {
				t.Errorf("declined %q: %v", declined, err)
			}
		}
		var receipt string
		if err := run.Result(t.Context(), &receipt); receipt != want || (err == nil) != (declined == "") {
			t.Errorf("declined %q: got %q, %v", declined, receipt, err)
		}
	}
}
