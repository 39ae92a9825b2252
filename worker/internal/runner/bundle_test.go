package runner_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/internal/runner"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// spoiled reports whether a request contains the outcome that the app refuses: an activity that failed as "bad".
func spoiled(in protocol.CompleteRequest) bool {
	for _, item := range in.Items {
		if item.Failure != nil && item.Failure.Message == "bad" {
			return true
		}
	}
	return false
}

// If the app rejects a request with several outcomes, for its size or for one invalid outcome, the worker sends each
// outcome separately. Only the invalid outcome is lost, and no other activity runs again.
func TestAnOutcomeThatCausesARefusalDoesNotDropOthers(t *testing.T) {
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

// If the app rejects an outcome as malformed, the worker reports a failure with the reason instead. Otherwise the task
// would be delivered again after its lease.
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
			t.Errorf("the failure has no reason: %+v", failed.Failure)
		}
		if n := ran.Load(); n != 1 {
			t.Errorf("the activity ran %d times", n)
		}
	})
}

// A workflow task whose outcome the app refuses for its content fails with the reason, once per delivery. The run
// completes once the app accepts the outcome. Until then no lease expires, and other runs are not affected.
func TestAWorkflowTaskRefusedForItsContentFailsWithTheReason(t *testing.T) {
	for name, refusal := range map[string]*protocol.Error{
		"as invalid":         protocol.Invalid("commands.0.activity_type", "must be 1 to 255 bytes"),
		"as too many":        protocol.Refuse(protocol.ReasonStructuralLimit, "must be 1 to 255 bytes"),
		"as too large":       protocol.Refuse(protocol.ReasonPayloadTooLarge, "must be 1 to 255 bytes"),
		"as a wrong member":  protocol.Refuse(protocol.ReasonMalformedPayload, "must be 1 to 255 bytes").With("field", "c"),
		"as invalid command": protocol.Refuse(protocol.ReasonInvalidCommands, "must be 1 to 255 bytes"),
	} {
		for form, whole := range map[string]bool{" alone": false, " with its request": true} {
			t.Run(name+form, func(t *testing.T) {
				done, err := payload.Encode("done")
				if err != nil {
					t.Fatal(err)
				}
				bubble(t, func(t *testing.T, a *control) {
					var failed atomic.Int64
					a.judge.Store(new(func(in protocol.CompleteRequest) (any, error) {
						item := in.Items[0]
						if item.Failure != nil && item.Kind == protocol.KindWorkflow {
							failed.Add(1)
						}
						if len(in.Items) > 1 || len(item.Commands) == 0 || item.Commands[0].Result != done {
							return nil, nil
						}
						if failed.Load() == 4 {
							return nil, nil
						}
						if whole {
							return nil, refusal
						}
						return protocol.CompleteBatchResponse{
							Items: []protocol.CompleteResponse{protocol.Rejected(item.TaskID, refusal)},
						}, nil
					}))
					a.worker("w", func(r *worker.Registry) {
						r.Workflow("spoil", func(workflow.Context) (string, error) { return "done", nil })
						r.Workflow("calm", func(workflow.Context) error { return nil })
					}, func(o *runner.Options) { o.Senders = 1 })
					run, began := a.begin("spoil"), time.Now()
					synctest.Wait()
					if task := a.task(run); task == nil || task.State == engine.Quarantined || task.Attempt == 0 ||
						!strings.Contains(task.Problem, "must be 1 to 255 bytes") {
						t.Errorf("the task is %+v", task)
					}
					if _, ok := a.end(a.begin("calm")).Data.(*history.WorkflowCompleted); !ok {
						t.Error("another run did not complete")
					}
					if got := result[string](t, a.end(run)); got != "done" {
						t.Errorf("it returned %q", got)
					}
					if failed.Load() != 4 {
						t.Errorf("%d failures were sent, want 4", failed.Load())
					}
					if took := time.Since(began); took > lease {
						t.Errorf("the run took %s: a lease expired", took)
					}
				})
			})
		}
	}
}

// If the app refuses an outcome for a reason that concerns the task or the worker, the worker drops the outcome and
// reports no failure.
func TestAWorkflowTaskRefusedForAnotherReasonIsDropped(t *testing.T) {
	for _, refusal := range []error{
		protocol.Refuse(protocol.ReasonTaskNotLeased, "the task is over"),
		protocol.Refuse(protocol.ReasonLeaseExpired, "the task is over"),
		protocol.Refuse(protocol.ReasonRunClosed, "the task is over"),
		protocol.Refuse(protocol.ReasonForbidden, "the token may not"),
		protocol.Refuse(protocol.ReasonMalformedJSON, "the body is not JSON"),
	} {
		t.Run(string(protocol.ReasonOf(refusal)), func(t *testing.T) {
			bubble(t, func(t *testing.T, a *control) {
				var refused, failed atomic.Int64
				a.judge.Store(new(func(in protocol.CompleteRequest) (any, error) {
					switch {
					case in.Items[0].Failure != nil:
						failed.Add(1)
					case refused.Add(1) == 1:
						return protocol.CompleteBatchResponse{
							Items: []protocol.CompleteResponse{protocol.Rejected(in.Items[0].TaskID, refusal)},
						}, nil
					}
					return nil, nil
				}))
				a.worker("w", func(r *worker.Registry) {
					r.Workflow("calm", func(workflow.Context) error { return nil })
				}, nil)
				run := a.begin("calm")
				if _, ok := a.end(run).Data.(*history.WorkflowCompleted); !ok {
					t.Error("the run did not complete")
				}
				if refused.Load() != 2 || failed.Load() != 0 {
					t.Errorf("%d outcomes and %d failures were sent, want 2 and 0", refused.Load(), failed.Load())
				}
			})
		})
	}
}
