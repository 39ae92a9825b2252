package workflow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func TestSessionIsDataAndEndsOnce(t *testing.T) { // OS-E1
	flow := func(ctx workflow.Context, s *workflow.Session) (string, error) {
		if s == nil {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{MaxActivities: 2, Requirements: []string{"gpu"}})
			if err != nil {
				return "", err
			}
			return "", workflow.ContinueAsNew(ctx, s)
		}
		var out string
		if err := s.Execute(ctx, "say").Get(ctx, &out); err != nil {
			return "", err
		}
		err := errors.Join(s.End(ctx), s.End(ctx))
		if err != nil {
			return "", err
		}
		if err := s.Execute(ctx, "say").Get(ctx, nil); !errors.Is(err, workflow.ErrSessionClosed) {
			return "", fmt.Errorf("in an ended session: %w", err)
		}
		return s.ID + " " + out, nil
	}
	a := start(t, flow)
	a.drain(nil)
	if a.next == nil {
		t.Fatal("the run did not continue")
	}
	a.replays()
	b := startRun(t, a.def, *a.next)
	b.sessions = a.sessions
	b.drain(nil)
	b.complete(1, "hello")
	b.drain(nil)
	want(t, "output", b.output(), any("RUN-1 hello"))
	b.replays()
	raw, err := json.Marshal(workflow.Session{ID: "x"})
	want(t, "as JSON", string(raw), `{"session_id":"x"}`)
	if err != nil {
		t.Error(err)
	}
}

func TestEndingASessionCancelsItsActivities(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (string, error) {
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
		if err != nil {
			return "", err
		}
		f := s.Execute(ctx, "long")
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return "", err
		}
		if err := s.End(ctx); err != nil {
			return "", err
		}
		return fmt.Sprint(errors.Is(f.Get(ctx, nil), workflow.ErrCancelled)), nil
	})
	a.drain(nil)
	a.fire(3)
	a.drain(nil)
	want(t, "output", a.output(), any("true"))
	a.replays()
}

func TestContinuedRunGoesByTheNewestVersionInTheSameSession(t *testing.T) { // IS-S4
	def := define(t, func(ctx workflow.Context, session string) error {
		if err := workflow.ExecuteActivity(workflow.InSession(ctx, session), "track", 1).Get(ctx, nil); err != nil {
			return err
		}
		return workflow.ContinueAsNew(ctx, session)
	})
	a := start(t, func(workflow.Context) error { return nil }, "s-1")
	a.def = def
	a.drain(nil)
	a.complete(1, nil)
	a.drain(nil)
	if err := def.Add(2, func(ctx workflow.Context, session string) (string, error) {
		return workflow.Execute[string](workflow.InSession(ctx, session), "track", 2)
	}); err != nil {
		t.Fatal(err)
	}
	b := startRun(t, def, *a.next)
	b.sessions = a.sessions
	b.drain(nil)
	want(t, "session", b.events[2].Data.(*history.ActivityScheduled).SessionID, "s-1")
	b.complete(2, "tracked:iter-1")
	b.drain(nil)
	want(t, "output", b.output(), any("tracked:iter-1"))
	b.replays()
}
