package view_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// slowStore is a fake of a slow database, in which a search without an index completes only its first time window.
type slowStore struct {
	store.Store
	budgets *[]time.Duration
}

type slowReader struct {
	store.Reader
	budgets *[]time.Duration
}

func (s slowStore) View(ctx context.Context, fn func(store.Reader) error) error {
	return s.Store.View(ctx, func(r store.Reader) error { return fn(slowReader{r, s.budgets}) })
}

func (r slowReader) Runs(ctx context.Context, q store.RunQuery) (store.RunList, error) {
	*r.budgets = append(*r.budgets, q.Budget)
	q.Budget = 1
	return r.Reader.Runs(ctx, q)
}

// A search that is too expensive is rejected with a reason or, with the caller's permission, answered in parts; a
// search with an index is not.
func TestASearchThatIsTooBroadIsRefusedOrAnsweredInParts(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "runs.db"), sqldb.Options{FewRuns: 8})
		if err != nil {
			t.Fatal(err)
		}
		searchTooBroadly(t, db)
	})
	t.Run("postgres", func(t *testing.T) {
		db, err := postgres.Open(t.Context(), apptest.Postgres(t), sqldb.Options{App: "a", FewRuns: 8})
		if err != nil {
			t.Fatal(err)
		}
		searchTooBroadly(t, db)
	})
}

func searchTooBroadly(t *testing.T, db store.Store) {
	var budgets []time.Duration
	d := dispatch.New(dispatch.Options{})
	b := broker.New(slowStore{db, &budgets}, d, broker.Options{})
	runs := b.View()
	t.Cleanup(func() { b.Close(); _ = db.Close() })
	for i := range 30 {
		in := protocol.StartRequest{WorkflowID: fmt.Sprint("w", i), WorkflowType: "wf", BusinessKey: fmt.Sprint("k", i)}
		if _, err := b.Start(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	list := func(in protocol.ListRequest) (ids []string, a protocol.ListResponse, err error) {
		a, err = runs.List(t.Context(), in)
		for _, v := range a.Workflows {
			ids = append(ids, v.WorkflowID)
		}
		return ids, a, err
	}
	if _, _, err := list(protocol.ListRequest{Query: "w1"}); protocol.ReasonOf(err) != protocol.ReasonQueryTooBroad {
		t.Errorf("a part of an id: %v", err)
	}
	if ids, a, err := list(protocol.ListRequest{Query: `BusinessKey = "k7"`}); fmt.Sprint(ids) != "[w7]" || err != nil ||
		a.SearchedTo != nil {
		t.Errorf("a business key: %v, %+v, %v", ids, a, err)
	}
	in := protocol.ListRequest{Query: "w1", Partial: true}
	var all []string
	parts := 0
	for ; ; parts++ {
		ids, a, err := list(in)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ids...)
		if (a.SearchedTo != nil) != (a.NextPageToken != nil) {
			t.Errorf("searched to %v, next %v", a.SearchedTo, a.NextPageToken)
		}
		if a.NextPageToken == nil {
			break
		}
		in.PageToken = *a.NextPageToken
	}
	want := []string{"w19", "w18", "w17", "w16", "w15", "w14", "w13", "w12", "w11", "w10", "w1"}
	if !slices.Equal(all, want) || parts < 2 {
		t.Errorf("in %d parts: %v, want %v", parts, all, want)
	}
	if whole, part := budgets[0], budgets[len(budgets)-1]; whole != 2*time.Second || part != 80*time.Millisecond {
		t.Errorf("a whole search may take %s, one of many parts %s", whole, part)
	}
}
