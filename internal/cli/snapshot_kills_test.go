package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Definitions of sessions that count their calls and move with the count. A successor prepares the second one.
const (
	tallyReleased = "tally.released"
	tallyPrepared = "tally.prepared"
)

// Sessions whose ID begins with one of these wait in a function of their definition for a file of the test.
const (
	heldOnHandOver = "held-take"
	heldRestore    = "held-restore"
)

func registerTallies(r *worker.Registry) {
	def := activity.SessionDefinition{SetUp: setUpTally, OnHandOver: takeTally, Restore: restoreTally}
	r.Session(tallyReleased, def)
	def.HandOver = activity.HandOverPrepare
	r.Session(tallyPrepared, def)
	r.Activity("tally.count", countCall)
	r.Workflow("tally.call", callTally)
}

type tallyState struct{ calls int }

func setUpTally(context.Context) (*tallyState, error) { return &tallyState{}, nil }

func takeTally(ctx context.Context, s *tallyState) ([]byte, error) {
	return []byte(strconv.Itoa(s.calls)), holdTally(ctx, heldOnHandOver, "take")
}

func restoreTally(ctx context.Context, s *tallyState, data []byte) error {
	if err := holdTally(ctx, heldRestore, "restore"); err != nil {
		return err
	}
	var err error
	s.calls, err = strconv.Atoi(string(data))
	return err
}

// holdTally records that a function of a session's definition began, and waits if the session is one that the test
// holds. It ignores the end of its context, as code may.
func holdTally(ctx context.Context, sessions, what string) error {
	if !strings.HasPrefix(activity.SessionID(ctx), sessions) {
		return nil
	}
	if err := writeLedger(ctx, what); err != nil {
		return err
	}
	let := wordFor(os.Getenv(holdPath), what, activity.Info(ctx).WorkerID)
	for _, err := os.Stat(let); err != nil; _, err = os.Stat(let) {
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// countCall increments the count of its session.
func countCall(ctx context.Context) (talliedCall, error) {
	s, err := activity.State[*tallyState](ctx)
	if err != nil {
		return talliedCall{}, err
	}
	s.calls++
	return talliedCall{Calls: s.calls, Worker: activity.Info(ctx).WorkerID}, nil
}

// talliedCall is the result of a call.
type talliedCall struct {
	Calls  int    `json:"calls"` // count of the session
	Worker string `json:"worker"`
	Lost   bool   `json:"lost"` // the loss of the state was reported before the call
}

func callTally(ctx workflow.Context, session, definition string) (talliedCall, error) {
	in := workflow.InSession(ctx, session, workflow.SessionDefinition{Name: definition, OnLost: "fail"})
	out, err := workflow.Execute[talliedCall](in, countCall)
	if errors.Is(err, workflow.ErrSessionLost) {
		out, err = workflow.Execute[talliedCall](in, countCall)
		out.Lost = true
	}
	return out, err
}

// tallied is a session that counts its calls, with the calls that were acknowledged since its state was lost.
type tallied struct {
	*plant
	session, definition string
	begun, acknowledged int
	lost                int // losses that were reported
}

// call runs one call, which must find the effects of all acknowledged ones, unless the loss of the state is reported.
func (s *tallied) call() talliedCall {
	s.t.Helper()
	s.begun++
	id := fmt.Sprint(s.session, "-call-", s.begun)
	run := s.client.start(id, "tally.call", s.session, s.definition).RunID
	out := result[talliedCall](s.plant, s.client.completed(id, run))
	if out.Lost {
		s.acknowledged = 0
		s.lost++
	}
	if s.acknowledged++; out.Calls != s.acknowledged {
		s.t.Errorf("call %d of %s counts %d, want %d: %+v", s.begun, s.session, out.Calls, s.acknowledged, out)
	}
	return out
}

// at checks that the session continues at a worker, with its state or with a reported loss.
func (s *tallied) at(worker string, lost bool) {
	s.t.Helper()
	if got := s.call(); got.Worker != worker || got.Lost != lost {
		s.t.Errorf("%s continues with %+v, want worker %s, lost %t", s.session, got, worker, lost)
	}
}

// drain drains a worker.
func (s *tallied) drain(worker string) { s.sojourn("workers", "drain", worker) }

// stored waits until the app has stored n snapshots of the session.
func (s *tallied) stored(n int) {
	s.t.Helper()
	until(s.t, "the snapshot of "+s.session+" is stored", func() bool {
		return s.timeline(protocol.SessionSnapshotStored) >= n
	})
}

// timeline counts entries of the session's timeline.
func (s *tallied) timeline(kind string) (n int) {
	s.t.Helper()
	for _, e := range s.plant.session(s.session).Timeline {
		if e.What == kind {
			n++
		}
	}
	return n
}

// takes waits until a worker has taken a snapshot.
func (s *tallied) takes(id string) {
	s.t.Helper()
	s.node[id].line(s.node[id].err, `"message":"took a snapshot of a session"`)
}

// restart starts the killed app again.
func (s *tallied) restart() {
	s.t.Helper()
	s.app, _ = s.another("data", strings.TrimPrefix(s.client.base, "http://"))
}

// freeze sends SIGSTOP to a worker. The returned function sends SIGCONT.
func (s *tallied) freeze(id string) (thaw func()) {
	s.t.Helper()
	send := func(sig syscall.Signal) {
		if err := s.node[id].cmd.Process.Signal(sig); err != nil {
			s.t.Fatal(err)
		}
	}
	send(syscall.SIGSTOP)
	return func() { send(syscall.SIGCONT) }
}

// With default settings, processes are frozen and killed while a session moves: afterwards the session's count is the
// number of acknowledged calls, or its loss was reported, and a late snapshot changes nothing.
func TestStateMovesUnderKillsAndFreezes(t *testing.T) {
	t.Parallel()
	refused := `"session_id":"held-take".*"reason":"session_owner_mismatch".*` +
		`"message":"the app no longer needs a session's snapshot"`
	cases := map[string]struct {
		session, definition string
		do                  func(s *tallied)
	}{
		"holder frozen until an operator has moved the session": {heldOnHandOver, tallyReleased, func(s *tallied) {
			s.begin("b", nil)
			s.drain("a")
			s.noted("take", 1)
			thaw := s.freeze("a")
			s.sojourn("sessions", "migrate", s.session, "--to", "b", "--force", "--reason", "a does not respond")
			s.at("b", true)
			moved := s.plant.session(s.session)
			thaw()
			s.let("take", "a")
			s.node["a"].line(s.node["a"].err, refused)
			after := s.plant.session(s.session)
			if owner(after) != "b" || after.Epoch != moved.Epoch || after.Snapshot != nil ||
				s.timeline(protocol.SessionSnapshotStored) != 0 {
				s.t.Errorf("after the late snapshot: %+v", after)
			}
			s.at("b", false)
		}},
		"holder killed after its snapshot was stored": {"tally", tallyReleased, func(s *tallied) {
			s.drain("a")
			s.stored(1)
			s.node["a"].kill()
			s.begin("b", nil)
			s.at("b", false)
		}},
		"app killed while the holder takes its snapshot": {heldOnHandOver, tallyReleased, func(s *tallied) {
			s.begin("b", nil)
			s.drain("a")
			s.noted("take", 1)
			s.plant.app.kill()
			s.let("take", "a")
			s.takes("a")
			s.restart()
			s.at("b", false)
		}},
		"app killed while the successor restores the snapshot": {heldRestore, tallyPrepared, func(s *tallied) {
			s.begin("b", nil)
			s.drain("a")
			s.noted("restore", 1)
			s.plant.app.kill()
			s.let("restore", "b")
			s.restart()
			s.at("b", false)
		}},
	}
	for what, c := range cases {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := &tallied{plant: byDefault(t, false), session: c.session, definition: c.definition}
			s.worker = s.worker.with(env{"SOJOURN_LOG_LEVEL": "debug"})
			s.begin("a", nil)
			s.at("a", false)
			s.at("a", false)
			c.do(s)
		})
	}
}
