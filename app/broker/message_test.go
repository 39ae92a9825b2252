package broker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// bring delivers the outbox of a run like the sweeper; nothing else delivers it in this test.
func (o *harness) bring(a *app, run string) (brought int) {
	o.t.Helper()
	var due []store.Due
	err := o.store.View(o.t.Context(), func(r store.Reader) (err error) {
		now, err := o.store.Now(o.t.Context())
		if err == nil {
			due, err = r.Due(o.t.Context(), now, 100)
		}
		return err
	})
	if err != nil {
		o.t.Fatal(err)
	}
	for _, d := range due {
		if d.Kind != store.DueMessage || d.Run != run {
			continue
		}
		brought++
		if err := a.Due(o.t.Context(), d); err != nil {
			o.t.Fatal(err)
		}
	}
	return brought
}

// The transaction that closes a child also delivers its result to the parent, so no separate message is needed.
func TestParentIsNotifiedInTheTransactionOfItsChild(t *testing.T) {
	inBubble(t, "completed", func(o *harness) {
		a, _ := o.app("a", false)
		a.register("w")
		kids := a.family("one", child(""))
		parent := a.view(protocol.Target{WorkflowID: "one"}).RunID
		a.ok(a.decide(kids[0], done()))
		if got := a.eventTypes(parent); !strings.HasSuffix(got, " ChildRunCompleted") {
			o.t.Errorf("the parent's history: %s", got)
		}
		if n := o.bring(a, kids[0].Workflow.RunID); n != 0 {
			o.t.Errorf("the child owes %d messages still", n)
		}
	})
	inBubble(t, "the parent went on as a new run", func(o *harness) {
		a, _ := o.app("a", false)
		a.register("w")
		second, kids := a.chain("one", named("kid", engine.Terminate))
		a.ok(a.decide(kids["kid"], done()))
		if open := a.run(second).Inherited.Open; open != 1 {
			o.t.Fatalf("the chain has %d children", open)
		}
		if n := o.bring(a, kids["kid"].Workflow.RunID); n != 1 {
			o.t.Errorf("the child owed %d messages", n)
		}
		if open := a.run(second).Inherited.Open; open != 0 {
			o.t.Errorf("the chain has %d children after the end of its only one", open)
		}
	})
}

// The parent-close policy applies only to the parent's children, not to a workflow with the same ID that another caller
// started meanwhile.
func TestEndOfAParentDoesNotAffectOtherRuns(t *testing.T) {
	inBubble(t, "terminate", func(o *harness) {
		a, _ := o.app("a", false)
		a.register("w")
		kids := a.family("one", child(engine.Terminate))
		kid := kids[0].Workflow
		others := a.family("two", child(engine.Terminate))
		unrelated := a.start("stranger").RunID
		one := a.view(protocol.Target{WorkflowID: "one"}).RunID
		ids := []string{"stranger", others[0].Workflow.WorkflowID, kid.WorkflowID}
		_, err := o.store.Commit(o.t.Context(), store.Transaction{
			Needs: store.Keys{Runs: []string{one}}, Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
				d := rows.Run(one).Delivered(0)
				for i, id := range ids {
					m := engine.Message{
						Kind: engine.CloseChild, Namespace: "default", WorkflowID: id, Name: engine.Terminate, FromRun: one,
						FromSeq: int64(i + 1), At: history.At(now),
					}
					d.Next.Undelivered.Put(m.FromSeq, m)
				}
				return store.Writes{Runs: []engine.Decision{d}}, nil
			},
		})
		if err != nil {
			o.t.Fatal(err)
		}
		if n := o.bring(a, one); n != len(ids) {
			o.t.Fatalf("%d messages were brought", n)
		}
		for run, want := range map[string]protocol.RunStatus{
			unrelated: protocol.RunRunning, others[0].Workflow.RunID: protocol.RunRunning, kid.RunID: protocol.RunTerminated,
		} {
			if got := a.run(run).Status; got != want {
				o.t.Errorf("%s is %s, want %s", a.run(run).WorkflowID, got, want)
			}
		}
		if n := o.bring(a, one); n != 0 {
			o.t.Errorf("%d messages are owed still", n)
		}
	})
}
