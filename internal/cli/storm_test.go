package cli_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func registerStorm(r *worker.Registry) {
	r.Workflow("storm.turns", stormTurns)
	r.Activity("storm.turn", stormTurn)
}

// stormTurns runs sequential steps in a session until a step reports that it was the last.
func stormTurns(ctx workflow.Context, session string, pause time.Duration) (turns int, err error) {
	in := workflow.InSession(ctx, session)
	for more := true; more; turns++ {
		more, err = workflow.Execute[bool](in, stormTurn, fmt.Sprint("turn ", turns))
		if errors.Is(err, workflow.ErrPoison) { // its worker was disturbed three times during it
			more, err = true, nil
		}
		if err != nil {
			return turns, err
		}
		if err := workflow.Sleep(ctx, pause); err != nil {
			return turns, err
		}
	}
	return turns, nil
}

// stormStep is the duration of a step.
const stormStep = 200 * time.Millisecond

// stormTurn reports whether there is another step, which is true until the test writes a file.
func stormTurn(ctx context.Context, turn string) (bool, error) {
	return notedStep(ctx, turn, stormStep)
}

// notedStep records its name in the ledger, takes a while, in which the test may disturb it, and reports whether the
// test has not written its file yet.
func notedStep(ctx context.Context, name string, takes time.Duration) (bool, error) {
	if err := writeLedger(ctx, name); err != nil {
		return false, err
	}
	time.Sleep(takes)
	_, err := os.Stat(os.Getenv(holdPath))
	return errors.Is(err, os.ErrNotExist), nil
}

// storm runs conversations, each a run with a session, while workers are killed and frozen and apps are killed.
type storm struct {
	*plant
	apps    map[string]*process // by the names of their data directories
	at      map[string]string   // their addresses
	links   string              // URLs of the apps for workers
	leases  env                 // leases of workers
	workers []string            // running workers, the next one to disturb first
	began   int
	runs    map[string]string // run ID by session
}

// newStorm starts an app on SQLite, or two apps on PostgreSQL.
func newStorm(t *testing.T, postgres bool) *storm {
	t.Helper()
	s := &storm{apps: map[string]*process{}, at: map[string]string{}, runs: map[string]string{}}
	s.plant = byDefault(t, postgres)
	s.at["data"] = strings.TrimPrefix(s.client.base, "http://")
	s.apps["data"], s.links = s.plant.app, s.client.base
	if postgres {
		s.at["second"] = address(t)
		app, base := s.another("second", s.at["second"])
		s.apps["second"], s.links = app, s.links+","+base
	}
	return s
}

// begins starts a worker, with a new or a previous ID.
func (s *storm) begins(id string) {
	s.t.Helper()
	s.begin(
		id,
		s.leases.with(env{
			"SOJOURN_APP_URL": s.links, "SOJOURN_WORKER_MAX_SESSIONS": "500", "SOJOURN_WORKER_CONCURRENCY": "32",
		}),
	)
	s.workers = append(s.workers, id)
}

// next returns the next worker to disturb.
func (s *storm) next() (id string) {
	id, s.workers = s.workers[0], s.workers[1:]
	return id
}

// resume waits until each session has completed another step.
func (s *storm) resume() {
	s.t.Helper()
	since := time.Now()
	until(s.t, "every session goes on", func() bool {
		seen := map[string]bool{}
		for _, l := range ledger(s.t, s.ledger) {
			if l.At.After(since) && !strings.HasPrefix(l.What, "set-up") {
				seen[l.Session] = true
			}
		}
		return len(seen) == len(s.runs)
	})
}

// stopIn sends SIGSTOP to a worker in the middle of an action and removes the worker from the list of workers to
// disturb. The action's line in the ledger begins with what, and the action lasts takes. If the action
// may have ended before the signal, the worker continues and the next action is tried: on a busy machine the ledger is
// read late.
func (s *storm) stopIn(what string, takes time.Duration) (id string) {
	s.t.Helper()
	until(s.t, "a worker is stopped in: "+what, func() bool {
		last := line{}
		for _, l := range ledger(s.t, s.ledger) {
			if l.At.After(last.At) && strings.HasPrefix(l.What, what) && slices.Contains(s.workers, l.Worker) {
				last = l
			}
		}
		if time.Since(last.At) > takes/2 {
			return false
		}
		s.signal(last.Worker, syscall.SIGSTOP)
		if time.Since(last.At) > takes*3/4 {
			s.signal(last.Worker, syscall.SIGCONT)
			return false
		}
		id = last.Worker
		return true
	})
	s.workers = slices.DeleteFunc(s.workers, func(w string) bool { return w == id })
	return id
}

// signal sends a signal to the process of a worker.
func (s *storm) signal(id string, sig syscall.Signal) {
	s.t.Helper()
	if err := s.node[id].cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// thaw lets a stopped worker continue, and waits until it has noticed the pause.
func (s *storm) thaw(id string) {
	s.t.Helper()
	w := s.node[id]
	pauses := w.err.count(`"message":"process was paused`)
	s.signal(id, syscall.SIGCONT)
	until(s.t, id+" notices that it was paused", func() bool {
		return w.err.count(`"message":"process was paused`) > pauses
	})
	s.workers = append(s.workers, id)
}

// killApps kills the apps one by one and restarts each.
func (s *storm) killApps() {
	s.t.Helper()
	for name, app := range s.apps {
		app.kill()
		s.apps[name], _ = s.another(name, s.at[name])
	}
}

// strike freezes a worker in the middle of a turn for longer than its leases, kills another, kills the apps one by one,
// and restarts what it killed: the killed worker alternately under its old ID, as a supervisor would, and under a new
// one.
func (s *storm) strike(round int, still time.Duration) {
	s.t.Helper()
	frozen := s.stopIn("turn", stormStep)
	thaw := time.After(still)
	killed := s.next()
	s.node[killed].kill()
	if round%2 == 1 {
		s.begins(killed)
	} else {
		s.began++
		s.begins(fmt.Sprint("w", s.began))
	}
	<-time.After(still / 3) // meanwhile the frozen worker's polls lease tasks
	s.killApps()
	<-thaw
	s.thaw(frozen)
	s.resume()
}

// Many sessions run while the test kills and freezes workers and kills apps: each session has one owner at a time,
// nothing starts after its lease, and no step waits longer than the leases of session and attempt together. With
// SOJOURN_TEST_CRASHES there are 200 sessions, and workers have default leases.
func TestSessionsUnderKillsAndFreezes(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newStorm(t, kind == "postgres")
			s.leases = env{"SOJOURN_ATTEMPT_LEASE": "3s", "SOJOURN_SESSION_LEASE": "3s", "SOJOURN_SESSION_BUFFER": "1s"}
			sessions, rounds, lease, pause := 16, 1, 3*time.Second, time.Second
			if os.Getenv(crashes) != "" {
				s.leases = env{}
				sessions, rounds, lease, pause = 200, 4, 30*time.Second, 5*time.Second
			}
			for range 4 {
				s.began++
				s.begins(fmt.Sprint("w", s.began))
			}
			for i := range sessions {
				id := fmt.Sprint("storm-", i)
				s.runs[id] = s.client.start(id, "storm.turns", id, pause).RunID
			}
			s.resume()
			for n := range rounds {
				s.strike(n, lease+lease/3)
			}
			s.release()
			most := 2 * lease
			if os.Getenv(crashes) == "" {
				most += 15 * time.Second // a busy machine may take this long in addition to these short leases
			}
			s.judge(most)
		})
	}
}

// judge waits for the end of all runs and compares their histories with the ledger.
func (s *storm) judge(most time.Duration) {
	t := s.t
	t.Helper()
	ran := map[string][]line{} // by session, in the order in which they started
	for session, run := range s.runs {
		s.client.completed(session, run)
	}
	for _, l := range ledger(t, s.ledger) {
		ran[l.Session] = append(ran[l.Session], l)
	}
	turns, lost, longest := 0, 0, time.Duration(0)
	for session, run := range s.runs {
		events := s.client.completed(session, run)
		begun := map[string]time.Time{} // by attempt
		lines := ran[session]
		slices.SortStableFunc(lines, func(a, b line) int { return a.At.Compare(b.At) })
		for i, l := range lines {
			if old, twice := begun[l.AttemptID]; twice {
				t.Errorf("attempt %s began at %s and again at %s", l.AttemptID, old, l.At)
			}
			begun[l.AttemptID] = l.At
			if i == 0 {
				continue
			}
			if before := lines[i-1]; l.Epoch < before.Epoch ||
				l.Epoch == before.Epoch && (l.Worker != before.Worker || l.Process != before.Process) {
				t.Errorf("session %s has two owners: %+v began after %+v", session, l, before)
			}
		}
		since := map[int64]time.Time{} // by the sequence of an activity: the time at which it was ready
		for _, e := range events {
			if d, ok := e.Data.(*history.ActivityScheduled); ok {
				since[d.Sequence] = e.At.Time
				continue
			}
			sequence, last, ok := ended(e)
			if !ok {
				continue
			}
			turns++
			ready := since[sequence]
			for _, l := range last.Lost {
				lost++
				id := fmt.Sprintf("%s-%d-%d", run, sequence, l.Delivery)
				if at, began := begun[id]; began && at.After(l.At.Time) {
					t.Errorf("attempt %s began at %s, and was lost at %s (%s)", id, at, l.At, cmp.Or(l.Why, "?"))
				}
				longest = max(longest, l.At.Sub(ready))
				ready = l.At.Time
			}
			if at, began := begun[last.AttemptID]; began {
				longest = max(longest, at.Sub(ready))
			}
		}
	}
	t.Logf(
		"%d sessions, %d turns, %d deliveries lost; the longest that one waited: %.1f s", len(s.runs), turns, lost,
		longest.Seconds(),
	)
	if lost == 0 {
		t.Error("no delivery was lost: the test shows nothing")
	}
	if longest > most {
		t.Errorf("a turn waited %s", longest)
	}
}

// ended returns the last attempt of an activity from its final event.
func ended(e history.Event) (sequence int64, last history.Attempt, ok bool) {
	switch d := e.Data.(type) {
	case *history.ActivityCompleted:
		return d.Sequence, d.Attempt, true
	case *history.ActivityFailed:
		return d.Sequence, d.Attempt, true
	}
	return 0, last, false
}
