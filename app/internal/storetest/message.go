package storetest

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// testMessageOutlivesSender checks that a message from one run to another survives the end of its sender and a restart,
// is due at once, and is removed once.
func testMessageOutlivesSender(t *testing.T, s Suite) {
	w := s.New(t)
	run := w.Begun("parent", protocol.Command{
		Type: protocol.StartChildWorkflow, WorkflowType: "child", ParentClosePolicy: engine.Terminate,
	},
		protocol.Command{Type: protocol.StartChildWorkflow, WorkflowType: "child", ParentClosePolicy: engine.Abandon})
	if got := w.Run(run).Children.Len(); got != 2 {
		t.Fatalf("%d children are open, want 2", got)
	}
	w.Do(run, engine.EndRun{})
	if err := w.S.Close(); err != nil {
		t.Fatal(err)
	}
	reopened := s.Fixture(t, "a", Options{})
	after := reopened.Run(run)
	if after.Status != protocol.RunCancelled || after.Children.Len() != 0 || after.Undelivered.Len() != 1 {
		t.Fatalf(
			"after the restart the run is %s with %d children and owes %d messages", after.Status, after.Children.Len(),
			after.Undelivered.Len(),
		)
	}
	due := messages(reopened)
	if len(due) != 1 || due[0].Run != run {
		t.Fatalf("due messages are %v, want the one of the run", due)
	}
	deliver := func() bool {
		return reopened.Commit(store.Transaction{Needs: store.Keys{
			Runs: []string{run},
		}, Decide: func(rows store.Rows, _ time.Time) (store.Writes, error) {
			from := rows.Run(run)
			m, ok := from.Undelivered.Get(due[0].Seq)
			if !ok {
				return store.Writes{Answer: false}, nil
			}
			if m.Kind != engine.CloseChild || m.Name != engine.Terminate || m.FromRun != run {
				t.Errorf("the message is %+v", m)
			}
			return store.Writes{Runs: []engine.Decision{from.Delivered(due[0].Seq)}, Answer: true}, nil
		}}).(bool)
	}
	if !deliver() || deliver() {
		t.Fatal("the message was not taken once")
	}
	if due = messages(reopened); len(due) != 0 || reopened.Run(run).Undelivered.Len() != 0 {
		t.Fatalf("%v are due after the delivery", due)
	}
}

// messages returns the messages that are due now.
func messages(w *Fixture) (list []store.Due) {
	w.T.Helper()
	w.View(func(r store.Reader) error {
		now, err := w.S.Now(w.T.Context())
		if err != nil {
			return err
		}
		due, err := r.Due(w.T.Context(), now, 10)
		for _, d := range due {
			if d.Kind == store.DueMessage {
				list = append(list, d)
			}
		}
		return err
	})
	return list
}
