package cli_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// The lines that set-ups write to the ledger.
const (
	setUpInAttempt = "set-up in an attempt"
	setUpPrepared  = "set-up of a successor"
)

func registerHandOverKills(r *worker.Registry) {
	r.Session("hand-over.journal", activity.SessionDefinition{
		SetUp: setUpForHandOver, HandOver: activity.HandOverPrepare,
	})
	r.Workflow("hand-over.steps", handOverSteps)
	r.Activity("hand-over.step", handOverStep)
}

// handOverJournal is the state of a session that is handed over.
type handOverJournal struct {
	session  string // session in the arguments of the set-up
	prepared bool   // the set-up ran without an attempt
}

func setUpForHandOver(ctx context.Context, session string) (*handOverJournal, error) {
	j, what := &handOverJournal{session: session}, setUpInAttempt
	if activity.Info(ctx).AttemptID == "" {
		j.prepared, what = true, setUpPrepared
	}
	if err := writeLedger(ctx, what); err != nil {
		return nil, err
	}
	time.Sleep(setUpTakes)
	return j, nil
}

// handOverSteps runs sequential steps in a session that is handed over until a step reports that it was the last.
func handOverSteps(ctx workflow.Context, session string) (steps int, err error) {
	in := workflow.InSession(ctx, session, workflow.SessionDefinition{
		Name: "hand-over.journal", Arguments: []any{session},
	})
	for more := true; more; steps++ {
		if more, err = workflow.Execute[bool](in, handOverStep); err != nil {
			return steps, err
		}
		if err := workflow.Sleep(ctx, 200*time.Millisecond); err != nil {
			return steps, err
		}
	}
	return steps, nil
}

// handOverStep records the state that it finds, and reports whether there is another step.
func handOverStep(ctx context.Context) (bool, error) {
	what := stepBegins
	switch j, err := activity.State[*handOverJournal](ctx); {
	case err != nil:
		what = "step without state: " + err.Error()
	case j.session != activity.SessionID(ctx):
		what = "step with the state of session " + j.session
	case j.prepared:
		what = stepPrepared
	}
	return notedStep(ctx, what, stormStep)
}

// stepPrepared is the line of a step in state that a successor prepared.
const stepPrepared = "step in prepared state"

// A worker shuts down while another one prepares its sessions, and the owner, the successor or the apps are killed in
// the middle: each epoch has one owner and at most one set-up, or the state that its owner prepared.
func TestHandOversUnderKills(t *testing.T) {
	t.Parallel()
	cases := map[string]func(s *storm){
		"nothing is killed": func(s *storm) {
			if code := s.node["w1"].terminate(); code != 0 {
				s.t.Errorf("the owner exited with %d", code)
			}
			s.equal("set-ups in attempts", len(s.lines(setUpInAttempt)), len(s.runs))
			s.equal("set-ups of the successor", len(s.lines(setUpPrepared)), len(s.runs))
		},
		"owner": func(s *storm) {
			s.signal("w1", syscall.SIGTERM)
			s.noted(setUpPrepared, 1)
			s.node["w1"].kill()
		},
		"successor": func(s *storm) {
			s.signal("w1", syscall.SIGTERM)
			s.noted(setUpPrepared, 1)
			s.node["w2"].kill()
			s.begins("w3")
			if code := s.node["w1"].exit(); code != 0 {
				s.t.Errorf("the owner exited with %d", code)
			}
		},
		// The owner keeps its sessions until the other worker has prepared them, also if its first heartbeat arrives at the
		// restarted apps before that of the other worker.
		"successor and apps": func(s *storm) {
			s.begins("w3")
			s.signal("w1", syscall.SIGTERM)
			s.noted(setUpPrepared, 4)
			s.node["w2"].kill()
			s.killApps()
			if code := s.node["w1"].exit(); code != 0 {
				s.t.Errorf("the owner exited with %d", code)
			}
			s.equal("set-ups in attempts", len(s.lines(setUpInAttempt)), len(s.runs))
		},
		"apps": func(s *storm) {
			s.signal("w1", syscall.SIGTERM)
			s.noted(setUpPrepared, 1)
			s.killApps()
			if code := s.node["w1"].exit(); code != 0 {
				s.t.Errorf("the owner exited with %d", code)
			}
		},
	}
	for what, killed := range cases {
		for _, kind := range []string{"sqlite", "postgres"} {
			t.Run(what+", "+kind, func(t *testing.T) {
				t.Parallel()
				s := newStorm(t, kind == "postgres")
				s.leases = env{
					"SOJOURN_ATTEMPT_LEASE": "4s", "SOJOURN_SESSION_LEASE": "4s", "SOJOURN_SESSION_BUFFER": "1s",
					"SOJOURN_MAX_SET_UPS": "4",
				}
				s.begins("w1")
				for i := range 4 {
					id := fmt.Sprint("hand-over-", i)
					s.runs[id] = s.client.start(id, "hand-over.steps", id).RunID
				}
				s.resume()
				s.begins("w2")
				killed(s)
				s.resume()
				s.release()
				for session, run := range s.runs {
					s.client.completed(session, run)
				}
				judgeHandOvers(t, ledger(t, s.ledger))
			})
		}
	}
}

// judgeHandOvers checks the set-ups and the owners of each session.
func judgeHandOvers(t *testing.T, all []line) {
	t.Helper()
	type holding struct {
		session string
		epoch   int64
	}
	type process struct {
		worker string
		id     int
	}
	owners, setUps, newest := map[holding]process{}, map[holding]int{}, map[string]int64{}
	prepared := map[string]int{} // by session and process
	for _, l := range all {
		at, by := holding{l.Session, l.Epoch}, process{l.Worker, l.Process}
		ready := fmt.Sprint(l.Session, " at ", by)
		if l.What == setUpPrepared { // the process does not own the session
			prepared[ready]++
			continue
		}
		if former, ok := owners[at]; ok && former != by {
			t.Errorf("session %s has two owners under epoch %d: %v and %v", l.Session, l.Epoch, former, by)
		}
		owners[at] = by
		if l.Epoch < newest[l.Session] {
			t.Errorf("session %s: %q began under epoch %d after epoch %d", l.Session, l.What, l.Epoch, newest[l.Session])
		}
		newest[l.Session] = max(newest[l.Session], l.Epoch)
		switch {
		case l.What == setUpInAttempt:
			if setUps[at]++; setUps[at] > 1 {
				t.Errorf("session %s was set up %d times under epoch %d", l.Session, setUps[at], l.Epoch)
			}
		case l.What == stepBegins && setUps[at] == 1, l.What == stepPrepared && setUps[at] == 0 && prepared[ready] > 0:
		default:
			t.Errorf("session %s, epoch %d: %s after %d set-ups in it", l.Session, l.Epoch, l.What, setUps[at])
		}
	}
	for what, n := range prepared {
		if n > 1 {
			t.Errorf("session %s was prepared %d times", strings.TrimSpace(what), n)
		}
	}
	if len(prepared) == 0 {
		t.Error("no session was prepared: the test shows nothing")
	}
}
