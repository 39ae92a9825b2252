package apptest_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	goclient "github.com/sojourn-run/sojourn/client"
)

// The Go client creates, lists, changes and deletes a pool. Invalid settings and unknown pools are refused.
func TestThePoolsOfTheGoClient(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	c, err := goclient.New(goclient.Options{URLs: []string{a.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	pool := c.Pool("llama")
	if _, err := pool.Describe(t.Context()); goclient.ReasonOf(err) != goclient.ReasonPoolNotFound {
		t.Error(err)
	}
	if err := pool.Delete(t.Context()); goclient.ReasonOf(err) != goclient.ReasonPoolNotFound {
		t.Error(err)
	}
	if _, err := pool.Set(t.Context(), goclient.PoolSettings{Definition: "llama", Queue: "gpu"}); err == nil {
		t.Error("a pool without a size was created")
	}
	want := goclient.PoolSettings{Definition: "llama", Queue: "gpu", Size: 3, Warm: new(2), MaxUses: 5}
	if _, err := pool.Set(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	list, err := c.Pools(t.Context())
	if err != nil || len(list) != 1 || list[0].Name != "llama" || list[0].Size != 3 || list[0].Warm != 2 ||
		list[0].MaxUses != 5 || list[0].Queue != "gpu" || list[0].Definition != "llama" {
		t.Errorf("%v: %+v", err, list)
	}
	for q, err := range c.Queues(t.Context()) {
		t.Errorf("a pool is listed as a queue: %+v, %v", q, err)
	}
	want.Warm, want.Size = nil, 4
	if got, err := pool.Set(t.Context(), want); err != nil || got.Size != 4 || got.Warm != 4 {
		t.Errorf("%v: %+v", err, got)
	}
	if err := pool.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list, err := c.Pools(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%v: %+v", err, list)
	}
}
