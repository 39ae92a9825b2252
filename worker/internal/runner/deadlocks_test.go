package runner

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// one is a registry with a single workflow.
type one struct{ *workflow.Definition }

func (o one) FindWorkflow(string) (*workflow.Definition, bool) { return o.Definition, true }
func (one) FindActivity(string) (*activity.Definition, bool)   { return nil, false }
func (one) FindSession(string) (*SessionDefinition, bool)      { return nil, false }
func (one) Interceptors() []workflow.Interceptor               { return nil }
func (one) ActivityName(any) (string, error)                   { return "", errors.New("none") }
func (one) WorkflowName(any) (string, error)                   { return "", errors.New("none") }

// Go cannot stop a goroutine that loops, so a second attempt of the run would loop on another core. The worker starts
// no second attempt while the first one loops.
func TestRunningWorkflowCodeHasNoConcurrentAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var begun atomic.Int32
		def, err := workflow.NewDefinition("loops", func(ctx workflow.Context) error {
			begun.Add(1)
			<-release
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		r := &Runner{
			opt: Options{Definitions: one{def}}, log: zerolog.Nop(), cache: newCache(1), life: t.Context(),
			replays: newReplays(),
		}
		task := &protocol.WorkflowTask{
			RunID: "r1", WorkflowID: "w", WorkflowType: "loops",
			Events: []history.Event{
				{Seq: 1, Data: &history.WorkflowStarted{WorkflowType: "loops", WorkflowID: "w", RunID: "r1"}},
			},
		}
		for range 3 {
			_, _, err := r.decide(task, &localSteps{r: r})
			if f := replay.TaskFailure(err); f.Type != "WorkflowDeadlock" || begun.Load() != 1 {
				t.Fatalf("%d attempts run: %v", begun.Load(), err)
			}
			if err := r.Alive(); err == nil || !strings.Contains(err.Error(), "r1") {
				t.Fatalf("the worker's health: %v", err)
			}
		}
		close(release)
		synctest.Wait()
		if err := r.Alive(); err != nil {
			t.Errorf("after the code has ended: %v", err)
		}
		if _, _, err := r.decide(task, &localSteps{r: r}); err != nil || begun.Load() != 2 {
			t.Errorf("after the code has ended: %d attempts ran: %v", begun.Load(), err)
		}
	})
}
