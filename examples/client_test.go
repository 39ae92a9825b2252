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
