package storetest

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// KeptOfALaterBuild adds a member that this build does not know to the rows of a queue and a namespace, and changes
// both rows: an app of an earlier build must not undo decisions that were made through a later one.
func KeptOfALaterBuild(t *testing.T, s Suite, exec func(t *testing.T, statement string)) {
	const member, value, added = "later", `{"x":[1]}`, `'{"later":{"x":[1]},' || substr(body, 2)`
	key := engine.QueueKey{Namespace: Namespace, Name: "q"}
	namespace := func(description string) store.Transaction {
		return store.Transaction{Needs: store.Keys{
			Namespaces: []string{"blue"},
		}, Decide: func(r store.Rows, _ time.Time) (store.Writes, error) {
			n := store.Namespace{Name: "blue"}
			if had := r.Namespace("blue"); had != nil {
				n = *had
			}
			n.Description = description
			return store.Writes{Namespaces: []store.Namespace{n}}, nil
		}}
	}
	reopened := func(w *Fixture, between func()) *Fixture {
		if err := w.S.Close(); err != nil {
			t.Fatal(err)
		}
		between()
		return s.New(t)
	}
	w := s.New(t)
	w.Commit(DecideQueue(key.Name, engine.RouteQueue{Group: "a"}))
	w.Commit(namespace("first"))
	w = reopened(w, func() {
		exec(t, "UPDATE queues SET body = "+added+" WHERE queue = 'q'")
		exec(t, "UPDATE namespaces SET body = "+added+" WHERE name = 'blue'")
	})
	w.Commit(DecideQueue(key.Name, engine.RouteQueue{Group: "b"}))
	w.Commit(namespace("second"))
	w = reopened(w, func() {})
	w.Commit(store.Transaction{Needs: store.Keys{
		Queues: []engine.QueueKey{key}, Namespaces: []string{"blue"},
	}, Decide: func(r store.Rows, _ time.Time) (store.Writes, error) {
		if q := r.Queue(key); q == nil || q.Group != "b" || string(q.Unknown[member]) != value || len(q.Unknown) != 1 {
			t.Errorf("the queue is %+v", q)
		}
		n := r.Namespace("blue")
		if n == nil || n.Description != "second" || string(n.Unknown[member]) != value || len(n.Unknown) != 1 {
			t.Errorf("the namespace is %+v", n)
		}
		return store.Writes{}, nil
	}})
}
