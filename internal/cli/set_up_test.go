package cli_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Lines that a set-up and the steps after it write to the ledger.
const (
	setUpBegins = "set-up begins"
	setUpEnds   = "set-up ends"
	stepBegins  = "step"
)

// setUpTakes is the duration of a set-up, in which the test kills or freezes its worker.
const setUpTakes = 800 * time.Millisecond

func registerSetUps(r *worker.Registry) {
	r.Session("set-up.journal", activity.SessionDefinition{SetUp: setUpJournal})
	r.Workflow("set-up.steps", setUpSteps)
	r.Activity("set-up.step", setUpStep)
}

// journal is the state of a session with a definition.
type journal struct {
	session string // session in the arguments of the set-up
	epoch   int64
}

// setUpJournal records its start and its end.
func setUpJournal(ctx context.Context, session string) (*journal, error) {
	if err := writeLedger(ctx, setUpBegins); err != nil {
		return nil, err
	}
	time.Sleep(setUpTakes) // it ignores its context, as a library that loads a model would
	return &journal{session: session, epoch: activity.SessionEpoch(ctx)}, writeLedger(ctx, setUpEnds)
}

// setUpSteps runs pairs of concurrent steps in a session with a definition until a step reports that it was the last.
func setUpSteps(ctx workflow.Context, session string) (pairs int, err error) {
	in := workflow.InSession(ctx, session, workflow.SessionDefinition{
		Name: "set-up.journal", Arguments: []any{session},
	})
	for more := true; more; pairs++ {
		other := workflow.ExecuteActivity(in, "set-up.step")
		if more, err = workflow.Execute[bool](in, setUpStep); err != nil {
			return pairs, err
		}
		if err := other.Get(ctx, nil); err != nil {
			return pairs, err
		}
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return pairs, err
		}
	}
	return pairs, nil
}

// setUpStep records the state that it finds, and reports whether there is another step.
func setUpStep(ctx context.Context) (bool, error) {
	what := stepBegins
	switch j, err := activity.State[*journal](ctx); {
	case err != nil:
		what = "step without state: " + err.Error()
	case j.session != activity.SessionID(ctx) || j.epoch != activity.SessionEpoch(ctx):
		what = fmt.Sprintf("step with the state of session %s, epoch %d", j.session, j.epoch)
	}
	return notedStep(ctx, what, stormStep)
}

// Workers are killed during and after set-ups, one is frozen during a set-up for longer than its leases, and the apps
// are killed: every epoch has one set-up, which ends before the first activity of the epoch begins, and a worker starts
// nothing under an epoch that it lost.
func TestSetUpsUnderKillsAndFreezes(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newStorm(t, kind == "postgres")
			s.leases = env{
				"SOJOURN_ATTEMPT_LEASE": "3s", "SOJOURN_SESSION_LEASE": "3s", "SOJOURN_SESSION_BUFFER": "1s",
				"SOJOURN_MAX_SET_UPS": "4",
			}
			for range 4 {
				s.began++
				s.begins(fmt.Sprint("w", s.began))
			}
			for i := range 12 {
				id := fmt.Sprint("journal-", i)
				s.runs[id] = s.client.start(id, "set-up.steps", id).RunID
			}
			frozen := s.stopIn(setUpBegins, setUpTakes)
			thaw := time.After(4 * time.Second)
			inSetUp := s.stopIn(setUpBegins, setUpTakes)
			s.node[inSetUp].kill()
			s.began++
			s.begins(fmt.Sprint("w", s.began))
			afterSetUp := s.stopIn(stepBegins, stormStep)
			s.node[afterSetUp].kill()
			s.begins(afterSetUp) // as a supervisor restarts it
			for name, app := range s.apps {
				app.kill()
				s.apps[name], _ = s.another(name, s.at[name])
			}
			<-thaw
			// Restarted apps expire leases later than running ones.
			until(t, "another worker acquired a session of the frozen worker", func() bool {
				return acquiredFrom(ledger(t, s.ledger), frozen)
			})
			s.thaw(frozen)
			s.resume()
			s.release()
			for session, run := range s.runs {
				s.client.completed(session, run)
			}
			judgeSetUps(t, ledger(t, s.ledger), frozen, inSetUp)
		})
	}
}

// acquiredFrom reports whether another worker began something in a session after this worker.
func acquiredFrom(all []line, worker string) bool {
	epochs := map[string]int64{} // newest epoch of the worker, by session
	for _, l := range all {
		if l.Worker == worker {
			epochs[l.Session] = max(epochs[l.Session], l.Epoch)
		}
	}
	return slices.ContainsFunc(all, func(l line) bool {
		epoch, owned := epochs[l.Session]
		return owned && l.Worker != worker && l.Epoch > epoch
	})
}

// judgeSetUps checks the order of set-ups and steps of each session.
func judgeSetUps(t *testing.T, all []line, frozen, killed string) {
	t.Helper()
	bySession := map[string][]line{}
	for _, l := range all {
		bySession[l.Session] = append(bySession[l.Session], l)
	}
	unfinished, lost, moved := 0, 0, 0
	for session, lines := range bySession {
		slices.SortStableFunc(lines, func(a, b line) int { return a.At.Compare(b.At) })
		owners, begun, ended := map[int64]line{}, map[int64]int{}, map[int64]int{}
		newest := int64(0)
		for _, l := range lines {
			if old, ok := owners[l.Epoch]; ok && (old.Worker != l.Worker || old.Process != l.Process) {
				t.Errorf("session %s has two owners under epoch %d: %+v and %+v", session, l.Epoch, old, l)
			}
			owners[l.Epoch] = l
			if l.What == setUpEnds { // a function that ignores its context ends after its worker continues
				ended[l.Epoch]++
				continue
			}
			if l.Epoch < newest {
				t.Errorf("session %s: %q began on %s under epoch %d after epoch %d", session, l.What, l.Worker, l.Epoch, newest)
			}
			newest = max(newest, l.Epoch)
			switch l.What {
			case setUpBegins:
				if begun[l.Epoch]++; begun[l.Epoch] > 1 {
					t.Errorf("session %s was set up %d times under epoch %d", session, begun[l.Epoch], l.Epoch)
				}
			case stepBegins:
				if ended[l.Epoch] != 1 {
					t.Errorf("session %s: a step began under epoch %d after %d set-ups", session, l.Epoch, ended[l.Epoch])
				}
			default:
				t.Errorf("session %s, epoch %d: %s", session, l.Epoch, l.What)
			}
		}
		for epoch := range begun {
			if epoch < newest && owners[epoch].Worker == killed && ended[epoch] == 0 {
				unfinished++
			}
			if epoch < newest && owners[epoch].Worker == frozen {
				lost++
			}
		}
		moved += len(begun) - 1
	}
	t.Logf(
		"%d sessions moved %d times; set-ups of the killed worker that did not end: %d; epochs that the frozen one lost: %d",
		len(bySession), moved, unfinished, lost,
	)
	if unfinished == 0 || lost == 0 {
		t.Error("no set-up was interrupted: the test shows nothing")
	}
}
