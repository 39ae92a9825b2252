package runner_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/socketio"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/runner"
)

// spoiled reports whether a request carries the outcome for which it is refused: an activity that failed as "bad".
func spoiled(in protocol.CompleteRequest) bool {
	for _, item := range in.Items {
		if item.Failure != nil && item.Failure.Message == "bad" {
			return true
		}
	}
	return false
}

// A request with outcomes that the app refuses as a whole, for its size or for what one of them says, is sent again
// item by item: only that one is lost, and no other activity runs again.
func TestAnOutcomeForWhichARequestIsRefusedTakesNoOtherWithIt(t *testing.T) {
	for name, refusal := range map[string]error{
		"as invalid":         protocol.Invalid("items.1.failure", "is invalid"),
		"as malformed":       protocol.Refuse(protocol.ReasonMalformedJSON, "the body is not JSON"),
		"as too large":       protocol.Refuse(protocol.ReasonPayloadTooLarge, "the body is larger than 8388608 bytes"),
		"before it was sent": socketio.ErrPayloadTooLarge,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *control) {
				const innocent = 20
				var ran atomic.Int32
				gate := make(chan struct{})
				a.worker("w", func(r *worker.Registry) {
					single(r, "work", func(context.Context) error { ran.Add(1); <-gate; return nil })
					single(r, "spoil", func(context.Context) error { <-gate; return errors.New("bad") })
				}, func(o *runner.Options) { o.Senders = 1 })
				var runs []string
				for i := range innocent {
					if i == innocent/2 {
						a.begin("do_spoil")
					}
					runs = append(runs, a.begin("do_work"))
				}
				synctest.Wait()
				a.bundle.Store(&refusal)
				close(gate)
				for _, run := range runs {
					if e, ok := a.end(run).Data.(*history.WorkflowCompleted); !ok {
						t.Errorf("got %+v", e)
					}
				}
				if n := ran.Load(); n != innocent {
					t.Errorf("%d activities ran %d times", innocent, n)
				}
			})
		})
	}
}

// An outcome that the app refuses for its form becomes a failure that says so, instead of an attempt that waits for the
// end of its lease and runs again.
func TestAnOutcomeRefusedForItsFormBecomesAFailure(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		var ran atomic.Int32
		a.worker("w", func(r *worker.Registry) {
			single(r, "work", func(context.Context) (string, error) { ran.Add(1); return "done", nil })
		}, nil)
		a.formless.Store(true)
		run := a.begin("do_work")
		if failed, ok := a.end(run).Data.(*history.WorkflowFailed); !ok {
			t.Errorf("got %+v", a.last(run))
		} else if !strings.Contains(failed.Failure.Message, "result: is invalid") {
			t.Errorf("the failure does not say why: %+v", failed.Failure)
		}
		if n := ran.Load(); n != 1 {
			t.Errorf("it ran %d times", n)
		}
	})
}
