package engine_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The engine records commands of a task that stays leased only for the task's owner, in order, and once. A stale
// delivery, another worker, a wrong command number and a command that closes the run change nothing.
func TestCommandsAreRecordedOnlyUnderTheirDelivery(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	d := engine.DecideStart(engine.Start{RunID: "RUN", Number: 1, Request: protocol.StartRequest{
		Namespace: "default", WorkflowID: "wf", WorkflowType: "flow", TaskQueue: "default",
	}}, now)
	run := d.Next
	lessee := engine.Lessee{Worker: &engine.Worker{ID: "w", Incarnation: "i", AttemptLease: 60e6}}
	run.Merge(run.Leased(lessee, now))
	step := protocol.Command{Type: protocol.RecordLocalActivity, ActivityType: "step", Outcome: protocol.LocalCompleted}
	holder := engine.Holder{Owner: "w", Incarnation: "i", Delivery: run.Task.Delivery}
	in := engine.CompleteTask{
		Number: 1, Holder: holder, Commands: []protocol.Command{step}, RecordFrom: 1, Hash: "first",
	}
	decide := func(in engine.CompleteTask, at time.Time) (engine.Decision, error) {
		return engine.DecideRun(run, engine.Environment{}, in, at)
	}
	accepted := func(what string, in engine.CompleteTask, events int) {
		t.Helper()
		d, err := decide(in, now)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		run.Merge(d.Next)
		if len(d.Events) != events || d.Answer.Outcome != engine.OutcomeRecorded || !d.Answer.Recorded ||
			run.Task == nil || run.Task.State != engine.LeasedState || run.Task.Delivery != holder.Delivery {
			t.Errorf("%s: %d events, %+v", what, len(d.Events), d.Answer)
		}
	}
	accepted("the first step", in, 2)
	accepted("the first step again", in, 0)
	second := in
	second.RecordFrom, second.Hash = 2, "second"
	accepted("the second step", second, 2)
	for name, c := range map[string]struct {
		change func(*engine.CompleteTask)
		at     time.Time
		reason protocol.Reason
	}{
		"a stale delivery": {
			func(in *engine.CompleteTask) { in.Delivery++ }, now, protocol.ReasonAttemptMismatch,
		},
		"another worker": {
			func(in *engine.CompleteTask) { in.Owner = "other" }, now, protocol.ReasonLeaseOwnerMismatch,
		},
		"another process": {
			func(in *engine.CompleteTask) { in.Incarnation = "other" }, now, protocol.ReasonLeaseOwnerMismatch,
		},
		"an expired lease": {func(*engine.CompleteTask) {}, now.Add(time.Hour), protocol.ReasonLeaseExpired},
		"an earlier step": {
			func(in *engine.CompleteTask) { in.RecordFrom, in.Hash = 1, "first" }, now, protocol.ReasonConflictingCompletion,
		},
		"another second step": {
			func(in *engine.CompleteTask) { in.RecordFrom = 2 }, now, protocol.ReasonConflictingCompletion,
		},
		"a gap": {func(in *engine.CompleteTask) { in.RecordFrom = 4 }, now, protocol.ReasonConflictingCompletion},
		"the end of the run": {
			func(in *engine.CompleteTask) {
				in.Commands = []protocol.Command{{Type: protocol.CompleteWorkflow}, step}
			}, now, protocol.ReasonValidation,
		},
		"no step": {
			func(in *engine.CompleteTask) {
				in.Commands = []protocol.Command{{Type: protocol.StartTimer, Delay: new(int64)}}
			}, now, protocol.ReasonValidation,
		},
	} {
		in := in
		in.RecordFrom, in.Hash = 3, "third"
		c.change(&in)
		if d, err := decide(in, c.at); protocol.ReasonOf(err) != c.reason || len(d.Events) != 0 {
			t.Errorf("%s: %d events, %v", name, len(d.Events), err)
		}
	}
	done := engine.CompleteTask{
		Number: 1, Holder: holder, Hash: "done", Commands: []protocol.Command{{Type: protocol.CompleteWorkflow}},
	}
	if d, err := decide(done, now); err != nil || d.Next.Status != protocol.RunCompleted || d.Next.LastSeq != 6 {
		t.Errorf("the completion: %+v, %v", d.Answer, err)
	}
}

// The start of a local step is its recording minus the duration that the worker reports, but not before its workflow
// task was leased.
func TestStartOfALocalStepFollowsFromItsDuration(t *testing.T) {
	leased := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := leased.Add(time.Second)
	for attempts, want := range map[string]time.Time{
		`[{"duration_ms":250.5}]`:                   now.Add(-250500 * time.Microsecond),
		`[{"duration_ms":900},{"duration_ms":100}]`: now.Add(-100 * time.Millisecond),
		`[{"attempt_number":1,"duration_ms":0}]`:    now,
		`[{"duration_ms":5000}]`:                    leased,
		`[{"duration_ms":1e300}]`:                   leased,
		`[{"duration_ms":-5}]`:                      now,
		`[{}]`:                                      {},
		`[null]`:                                    {},
		`[{"duration_ms":"long"}]`:                  {},
		`[]`:                                        {},
	} {
		d := engine.DecideStart(engine.Start{RunID: "RUN", Number: 1, Request: protocol.StartRequest{
			Namespace: "default", WorkflowID: "wf", WorkflowType: "flow", TaskQueue: "default",
		}}, leased)
		run := d.Next
		run.Merge(run.Leased(engine.Lessee{Worker: &engine.Worker{ID: "w", Incarnation: "i", AttemptLease: 60e6}}, leased))
		step := protocol.Command{Type: protocol.RecordLocalActivity, ActivityType: "step", Outcome: protocol.LocalCompleted}
		if err := json.Unmarshal([]byte(attempts), &step.Attempts); err != nil {
			t.Fatal(err)
		}
		d, err := engine.DecideRun(run, engine.Environment{}, engine.CompleteTask{
			Number: 1, Holder: engine.Holder{Owner: "w", Incarnation: "i", Delivery: run.Task.Delivery}, RecordFrom: 1,
			Commands: []protocol.Command{step}, Hash: "first",
		}, now)
		if err != nil {
			t.Fatalf("%s: %v", attempts, err)
		}
		if _, a := history.EndedAttempt(d.Events[1].Data); !a.StartedAt.Equal(want) {
			t.Errorf("%s: started at %s, want %s", attempts, a.StartedAt, want)
		}
	}
}
