package examples_test

import (
	"context"
	"slices"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/client"
)

func sell(ctx context.Context, url, token string) (items []string, err error) {
	app, err := client.New(client.Options{URLs: []string{url}, Token: token})
	if err != nil {
		return nil, err
	}
	basket, err := app.Start(ctx, "tour.basket", client.Args{2}, client.StartOptions{WorkflowID: "basket-7"})
	if err != nil {
		return nil, err
	}
	for _, item := range []string{"milk", "tea"} {
		if err := basket.Update(ctx, "add", nil, item); err != nil {
			return nil, err
		}
	}
	if err := basket.Update(ctx, "pay", nil, 7); err != nil {
		return nil, err
	}
	return items, basket.Result(ctx, &items)
}

func TestBasketIsSoldByASeparateProgram(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	work(t, a, nil)
	if items, err := sell(t.Context(), a.URL(), ""); err != nil || !slices.Equal(items, []string{"milk", "tea"}) {
		t.Errorf("got %q, %v", items, err)
	}
}

func cancelOrders(ctx context.Context, app *client.Client) (cancelled int64, err error) {
	job, err := app.StartBatch(ctx, client.BatchOptions{
		Filter: client.Where("WorkflowType").Is("order"), Action: client.BatchCancel, Reason: "faulty import",
	})
	if err != nil {
		return 0, err
	}
	end, err := job.Wait(ctx)
	return end.Done, err
}

func TestABatchJobCancelsTheOrders(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{}) // without a worker, so that the orders stay open
	app, err := client.New(client.Options{URLs: []string{a.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := app.Start(t.Context(), "order", nil, client.StartOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := cancelOrders(t.Context(), app); err != nil || n != 3 {
		t.Errorf("%d cancelled, %v", n, err)
	}
}
