package broker_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// comes polls until a condition is true. Another app may cause it, of which this test is not notified.
func comes(t testing.TB, what string, is func() bool) {
	t.Helper()
	for late := time.Now().Add(2 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%s does not happen", what)
		}
	}
}

// A run attaches to a child of its chain while the child, or the run itself, closes at another app. The attachment ends
// once, with the child's result, and all children with a close policy have closed.
func TestAttachingMeetsTheEndOfTheChildOrOfTheChain(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := twoApps(t, database)
		a.register("w")
		end := func(verb string, id string) error {
			in := protocol.EndRequest{Target: protocol.Target{WorkflowID: id}}
			do := b.Cancel
			if verb == "terminated" {
				do = b.Terminate
			}
			_, err := do(t.Context(), in)
			return err
		}
		for i := range 24 {
			parent, kid := fmt.Sprint("parent-", i), fmt.Sprint("kid-", i)
			second, tasks := a.chain(parent, named(kid, engine.Terminate))
			must[protocol.CommandReceipt](t)(a.Signal(
				t.Context(), protocol.SignalRequest{Target: protocol.Target{WorkflowID: parent}, SignalName: "next"},
			))
			turn := a.task("w", protocol.KindWorkflow, parent)
			how := []string{"terminated", "cancelled", "completed", "parent terminated"}[i%4]
			var race sync.WaitGroup
			var attached, ended error
			race.Go(func() {
				time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
				attached = a.decide(turn, attach(kid), stay).Err
			})
			race.Go(func() {
				time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
				switch how {
				case "completed":
					ended = b.decide(tasks[kid], done()).Err
				case "parent terminated":
					ended = end("terminated", parent)
				default:
					ended = end(how, kid)
				}
			})
			race.Wait()
			if ended != nil || attached != nil && how != "parent terminated" {
				t.Fatalf("%s, %s: attaching: %v, ending: %v", parent, how, attached, ended)
			}
			child := protocol.Target{RunID: tasks[kid].Workflow.RunID}
			if how == "parent terminated" {
				comes(t, "the end of "+kid, func() bool { return b.view(child).Terminal })
				if got := b.view(child).Status; got != "terminated" {
					t.Errorf("%s closed with its parent: %s", kid, got)
				}
				if got := a.eventTypes(second); strings.Contains(got, "AttachedChildEnded") {
					t.Errorf("%s received an event after its end: %s", parent, got)
				}
				continue
			}
			comes(t, "the news of "+kid, func() bool { return a.ends(second)[kid] != nil })
			next := a.task("w", protocol.KindWorkflow, parent)
			if e := a.ends(second)[kid]; e.ClosedReason != how {
				t.Errorf("%s was told that %s is %s, and it was %s", parent, kid, e.ClosedReason, how)
			}
			if got := a.eventTypes(second); strings.Count(got, "AttachedChildEnded") != 1 ||
				strings.Count(got, "AttachedToChild") != 1 {
				t.Errorf("%s: %s", parent, got)
			}
			comes(t, "that the chain has no open child", func() bool { return b.run(second).Inherited.Open == 0 })
			a.ok(a.decide(next, done()))
			if got := b.view(child).Status; got != how {
				t.Errorf("%s is %s in the end", kid, got)
			}
		}
	})
}
