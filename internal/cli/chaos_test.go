package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func registerChaos(r *worker.Registry) {
	r.Workflow("chaos", chaosWorkflow)
	r.Activity("chaos.go", chaosStep)
}

// chaosInput is the input of a workflow of the chaos test.
type chaosInput struct {
	Dir     string // directory of the ledger
	Queue   string // queue of its steps
	Step    string // the activity
	Session string // kind of its session: id, options or workflow
	Pause   time.Duration
}

// chaosGiven is the argument of a step.
type chaosGiven struct {
	Dir string `json:"dir"`
	Key string `json:"key"` // key of the state to load
	N   int    `json:"n"`
}

// chaosDone is the result of a step.
type chaosDone struct {
	Value int  `json:"value"` // loaded value at N
	More  bool `json:"more"`  // another step follows
}

// chaosResult is the result of a workflow.
type chaosResult struct {
	Steps, Sum, Poisoned int
	Signals              map[string]int // how often each signal was received
}

// chaosWorkflow runs steps in one session until a step reports the end of the test.
func chaosWorkflow(ctx workflow.Context, in chaosInput) (done chaosResult, err error) {
	key := workflow.Info(ctx).WorkflowID
	o := workflow.ActivityOptions{
		Queue: in.Queue, StartToClose: chaosStepTimeout, Retry: &workflow.RetryPolicy{Backoff: []time.Duration{time.Second}},
	}
	run := workflow.ExecuteActivity
	switch in.Session {
	case "id":
		o.Session = key
	case "options":
		o.WorkerSession = &workflow.WorkerSession{ID: key, Queue: in.Queue, Lease: 30 * time.Second}
	default:
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{Queue: in.Queue})
		if err != nil {
			return done, err
		}
		run = s.Execute
	}
	ctx = workflow.WithActivity(ctx, o)
	done.Signals = map[string]int{}
	signals := func() error {
		for {
			var id string
			if ok, err := workflow.Signal(ctx, "deposit").ReceiveAsync(&id); err != nil || !ok {
				return err
			}
			done.Signals[id]++
		}
	}
	for more := true; more; {
		step, err := workflow.Await[chaosDone](ctx, run(ctx, in.Step, chaosGiven{in.Dir, key, done.Steps}))
		if errors.Is(err, workflow.ErrPoison) { // its worker was killed several times during this step
			done.Poisoned++
			continue
		}
		if err != nil {
			return done, err
		}
		done.Steps, done.Sum, more = done.Steps+1, done.Sum+step.Value, step.More
		if err := errors.Join(signals(), workflow.Sleep(ctx, in.Pause)); err != nil {
			return done, err
		}
	}
	return done, signals()
}

// chaosStepTimeout is the start-to-close timeout of the activity. It ends the attempt of a lost delivery.
const chaosStepTimeout = 30 * time.Second

// chaosTable is the state that each holding of a session loads.
func chaosTable(key string) []int {
	seed, table := 0, make([]int, 64)
	for _, c := range []byte(key) {
		seed += int(c)
	}
	for i := range table {
		table[i] = seed*31 + i*i
	}
	return table
}

func chaosStep(ctx context.Context, in chaosGiven) (chaosDone, error) {
	if err := writeLedger(ctx, "step"); err != nil {
		return chaosDone{}, err
	}
	table, err := activity.GetOrCreate(ctx, "table", func(ctx context.Context) ([]int, error) {
		return chaosTable(in.Key), writeLedger(ctx, "load")
	})
	if err != nil {
		return chaosDone{}, err
	}
	time.Sleep(100 * time.Millisecond)
	_, err = os.Stat(filepath.Join(in.Dir, "hold"))
	return chaosDone{table[in.N%len(table)] + in.N, errors.Is(err, os.ErrNotExist)}, nil
}

// holding is a session under one epoch in one process.
type holding struct {
	session string
	epoch   int64
	process int
}

// chaosFigures are the counts of a chaos test.
type chaosFigures struct {
	completed, steps, holdings, loads, retries, acknowledged, signals, poisoned, lostDeliveries int
	// violations
	reloads, doubleOwners, decreases, repeated, lost, wrong int
}

// judgeLines checks the lines of the outside ledger and returns the sessions with violations.
func (f *chaosFigures) judgeLines(t *testing.T, lines []line) (bad []string) {
	t.Helper()
	loads, steps, owners := map[holding]int{}, map[holding]int{}, map[string]map[int64]holding{}
	attempts, executions := map[string]bool{}, map[string]int{}
	slices.SortStableFunc(lines, func(a, b line) int { return a.At.Compare(b.At) })
	last := map[string]line{}
	for _, l := range lines {
		h := holding{l.Session, l.Epoch, l.Process}
		switch l.What {
		case "load":
			loads[h]++
			continue
		case "acknowledged":
			continue
		}
		f.steps++
		steps[h]++
		executions[l.Execution]++
		if attempts[l.AttemptID] {
			f.repeated++
			t.Errorf("attempt %s ran twice", l.AttemptID)
		}
		attempts[l.AttemptID] = true
		if owners[l.Session] == nil {
			owners[l.Session] = map[int64]holding{}
		}
		if first, ok := owners[l.Session][l.Epoch]; ok && first != h {
			f.doubleOwners++
			bad = append(bad, l.Session)
			t.Errorf("two processes ran session %s under epoch %d: %d and %+v", l.Session, l.Epoch, first.process, l)
		}
		owners[l.Session][l.Epoch] = h
		if before := last[l.Session]; l.Epoch < before.Epoch {
			f.decreases++
			bad = append(bad, l.Session)
			t.Errorf("the epoch of session %s decreased: %+v ran after %+v", l.Session, l, before)
		}
		last[l.Session] = l
	}
	for h := range steps {
		f.holdings++
		f.loads += loads[h]
		if loads[h] > 1 {
			f.reloads++
			bad = append(bad, h.session)
			t.Errorf("%+v loaded its state %d times", h, loads[h])
		}
	}
	for _, n := range executions {
		f.retries += n - 1
	}
	slices.Sort(bad)
	return bad
}

// judgeRun compares the history of a workflow with the lines of its attempts.
func (f *chaosFigures) judgeRun(
	t *testing.T, id string, events []history.Event, lines map[string][]line, signals []string,
) {
	t.Helper()
	var got chaosResult
	done, ok := events[len(events)-1].Data.(*history.WorkflowCompleted)
	if !ok {
		t.Errorf("workflow %s ended with %s", id, events[len(events)-1].Data.Type())
		return
	}
	if err := payload.Decode(payload.Payload{Blob: done.Output}, &got); err != nil {
		t.Fatal(err)
	}
	f.completed++
	f.poisoned += got.Poisoned
	want, table := 0, chaosTable(id)
	for n := range got.Steps {
		want += table[n%len(table)] + n
	}
	if got.Sum != want || got.Steps == 0 {
		f.wrong++
		t.Errorf("workflow %s: the sum of %d steps is %d, want %d", id, got.Steps, got.Sum, want)
	}
	f.signals += len(signals)
	for _, s := range signals {
		if got.Signals[s] != 1 {
			f.lost++
			t.Errorf("signal %s was acknowledged, and workflow %s received it %d times", s, id, got.Signals[s])
		}
	}
	for execution, ends := range outcomes(events) {
		if len(ends) != 1 {
			f.repeated++
			t.Errorf("workflow %s: activity %s has %d outcomes", id, execution, len(ends))
		}
		o, ok := ends[0].(*history.ActivityCompleted)
		if !ok {
			continue
		}
		f.lostDeliveries += len(o.Lost)
		last := ""
		for _, l := range lines[execution] {
			if l.What == "step" {
				last = l.AttemptID
			} else if l.What == "acknowledged" {
				f.acknowledged++
				if l.AttemptID != o.AttemptID {
					f.lost++
					t.Errorf("the result of attempt %s was acknowledged, and %s is recorded", l.AttemptID, o.AttemptID)
				}
			}
		}
		if last != o.AttemptID {
			f.lost++
			t.Errorf("the result of attempt %s is recorded, and attempt %s ran after it", o.AttemptID, last)
		}
	}
}

func (f *chaosFigures) String() string {
	return fmt.Sprintf(
		"%d workflows completed, %d steps in %d holdings with %d loads, %d attempts repeated, %d deliveries lost, %d poisoned, "+
			"%d results and %d signals acknowledged; violations: %d results lost, %d double owners, %d decreased epochs, "+
			"%d second loads, %d repeated attempts or outcomes, %d wrong results",
		f.completed, f.steps, f.holdings, f.loads, f.retries, f.lostDeliveries, f.poisoned, f.acknowledged, f.signals,
		f.lost, f.doubleOwners, f.decreases, f.reloads, f.repeated, f.wrong,
	)
}
