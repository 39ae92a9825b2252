package runner_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/internal/runner"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// swallowing is a link that drops packets of two requests that record a local step: the first request never reaches the
// app, and the response to the second one is lost after the app has committed.
type swallowing struct {
	*link.Link
	requests atomic.Int32
}

func (s *swallowing) Complete(
	ctx context.Context, in protocol.CompleteRequest,
) (protocol.CompleteBatchResponse, error) {
	if in.Items[0].RecordFrom == 0 {
		return s.Link.Complete(ctx, in)
	}
	switch s.requests.Add(1) {
	case 1:
		<-ctx.Done()
		return protocol.CompleteBatchResponse{}, context.Cause(ctx)
	case 2:
		if _, err := s.Link.Complete(ctx, in); err != nil {
			return protocol.CompleteBatchResponse{}, err
		}
		<-ctx.Done()
		return protocol.CompleteBatchResponse{}, context.Cause(ctx)
	}
	return s.Link.Complete(ctx, in)
}

// The connection drops the packets of two requests that record a step, but not those of heartbeats. The worker repeats
// each request after a minute. The step runs and is recorded once, and a concurrent run does not wait.
func TestARequestThatRecordsAStepIsRepeatedAfterAMinute(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		var ran atomic.Int32
		var s *swallowing
		a.worker("w", func(r *worker.Registry) {
			r.Workflow("step", func(ctx workflow.Context) (int, error) {
				return workflow.Do(ctx, "step", func(context.Context) (int, error) { return int(ran.Add(1)), nil })
			})
			r.Workflow("calm", func(workflow.Context) error { return nil })
		}, func(o *runner.Options) {
			s = &swallowing{Link: o.Link.(*link.Link)}
			o.Link = s
		})
		began := time.Now()
		run := a.begin("step")
		a.end(a.begin("calm"))
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the concurrent run took %s", took)
		}
		if last := a.end(run); last.Type() != "WorkflowCompleted" {
			t.Fatalf("the run ended with %s", last.Type())
		}
		if took := time.Since(began); took < 2*time.Minute || took > 3*time.Minute {
			t.Errorf("it took %s", took)
		}
		local := 0
		for _, e := range a.events(run) {
			if _, attempt := history.EndedAttempt(e.Data); attempt.ExecutionMode == history.ModeLocal {
				local++
			}
		}
		if local != 1 || ran.Load() != 1 || s.requests.Load() != 3 {
			t.Errorf("%d outcomes, %d runs, %d requests", local, ran.Load(), s.requests.Load())
		}
	})
}
