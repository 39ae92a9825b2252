package broker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	sojourn "github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// pausingStore is a store that waits after a read of a context with pausedReads if the namespace has no session.
type pausingStore struct{ store.Store }

type pausedReads struct{}

func (s pausingStore) View(ctx context.Context, fn func(store.Reader) error) error {
	none := false
	err := s.Store.View(ctx, func(r store.Reader) error {
		list, err := r.Sessions(ctx, store.SessionQuery{Namespace: "gone", Limit: 1})
		none = len(list) == 0
		return errors.Join(err, fn(r))
	})
	if none && ctx.Value(pausedReads{}) != nil {
		time.Sleep(2500 * time.Millisecond) // longer than the interval at which an app reads a pool
	}
	return err
}

// The app adds no members to the pools of a namespace while it deletes the namespace, since no later deletion would
// find them.
func TestTheDeletionOfANamespaceRemovesItsPools(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{Change: func(o *sojourn.Options) {
		open := o.Open
		o.Open = func(ctx context.Context, id string, d store.Dispatcher) (store.Store, error) {
			s, err := open(ctx, id, d)
			return pausingStore{s}, err
		}
	}})
	if _, err := a.Broker().CreateNamespace(t.Context(), protocol.NamespaceRequest{Name: "gone"}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Broker().SetPool(t.Context(), protocol.PoolRequest{
		Namespace: "gone", Name: "p", Definition: "d", Queue: "q", Size: 2,
	}); err != nil {
		t.Fatal(err)
	}
	sessions := func() (list []engine.Session) {
		if err := a.Store().View(t.Context(), func(r store.Reader) (err error) {
			list, err = r.Sessions(t.Context(), store.SessionQuery{Namespace: "gone", Limit: 10})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return list
	}
	for len(sessions()) < 2 {
		time.Sleep(10 * time.Millisecond)
	}
	ctx := context.WithValue(t.Context(), pausedReads{}, true)
	if _, err := a.Broker().DeleteNamespace(ctx, "gone"); err != nil {
		t.Fatal(err)
	}
	if left := sessions(); len(left) > 0 {
		t.Errorf("%d sessions remain of the deleted namespace", len(left))
	}
}
