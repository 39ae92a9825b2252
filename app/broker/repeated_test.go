package broker_test

import (
	"context"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// unreadableStore is a store whose connection fails when it reads how an activity ended.
type unreadableStore struct{ store.Store }

type unreadableReader struct{ store.Reader }

func (s unreadableStore) View(ctx context.Context, fn func(store.Reader) error) error {
	return s.Store.View(ctx, func(r store.Reader) error { return fn(unreadableReader{r}) })
}

func (unreadableReader) Completion(context.Context, string, int64) (history.Event, error) {
	return history.Event{}, store.ErrUnavailable
}

// A repeated result is not rejected if the app could not read whether it was accepted before: the outcome is unknown,
// and the worker retries.
func TestResultIsNotRejectedIfItsRunCannotBeRead(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("flow")
		a.register("w")
		a.schedule("one", greet())
		task := a.poll("w", protocol.KindActivity, 20)
		result, err := payload.Encode("done")
		if err != nil {
			t.Fatal(err)
		}
		item := protocol.CompleteItem{
			Kind: protocol.KindActivity, TaskID: task.Activity.TaskID, Owner: "w", AttemptID: task.Activity.AttemptID,
			Result: result,
		}
		a.taken(a.complete(item))
		cut := broker.New(unreadableStore{a.store}, dispatch.New(dispatch.Options{}), broker.Options{App: "cut"})
		t.Cleanup(cut.Close)
		got := (&app{cut, a.View, a.store, t}).complete(item)
		if got.Outcome != "unknown" || got.Reason != nil || got.Error == nil ||
			got.Error.Reason != protocol.ReasonBackendUnavailable {
			t.Errorf("the run cannot be read: %+v, %+v", got, got.Error)
		}
		if got := a.complete(item); got.Reason == nil || *got.Reason != string(protocol.ReasonAlreadyCompleted) {
			t.Errorf("the connection is back: %+v", got)
		}
	})
}
