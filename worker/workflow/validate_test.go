package workflow_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// validate runs the validator of an update on the state of the run after its first n events.
func (a *app) validate(n int, name string, args ...any) error {
	a.t.Helper()
	p, err := payload.EncodeArgs(args...)
	if err != nil {
		a.t.Fatal(err)
	}
	m := replay.New(a.def, replay.Options{ForQueries: true, Patience: time.Minute})
	defer m.Close()
	if _, err := m.Apply(a.task(n), a.events[:n]); err != nil {
		a.t.Fatal(err)
	}
	return m.Validate(name, p, nil)
}

func TestValidatorSeesTheCurrentStateOfTheRun(t *testing.T) {
	a := start(t, func(ctx workflow.Context) (int, error) {
		n := 0
		workflow.HandleUpdate(ctx, "set", func(ctx workflow.Context, v int) error {
			n = v
			return nil
		}, workflow.UpdateOptions{
			Validate: func(ctx workflow.Context, v int) error {
				switch {
				case v == 13:
					return workflow.Sleep(ctx, time.Second)
				case v == 14:
					panic("a bug")
				case v <= n:
					return activity.NewError("small", "must rise")
				}
				return nil
			},
		})
		workflow.HandleUpdate(ctx, "free", func(workflow.Context) error { return nil })
		return n, workflow.Signal(ctx, "end").Receive(ctx)
	})
	a.drain(nil)
	if err := a.validate(len(a.events), "set", 5); err != nil {
		t.Errorf("at first: got %v", err)
	}
	a.update("set", 5)
	a.drain(nil)
	before := len(a.events)
	var rejected *workflow.RejectedError
	var small *activity.Error
	if err := a.validate(before, "set", 5); !errors.As(err, &rejected) || rejected.Update != "set" ||
		!errors.As(err, &small) || small.Type != "small" {
		t.Errorf("got %v", err)
	}
	if err := a.validate(before, "set", "text"); !errors.As(err, &rejected) || !errors.As(err, &small) ||
		small.Type != activity.TypeArguments {
		t.Errorf("arguments that do not fit: got %v", err)
	}
	for v, text := range map[int]string{13: workflow.ErrReadOnly.Error(), 14: "a bug"} {
		err := a.validate(before, "set", v)
		_, panicked := errors.AsType[*workflow.PanicError](err)
		_, refused := errors.AsType[*workflow.RejectedError](err)
		if !panicked || refused || !strings.Contains(err.Error(), text) {
			t.Errorf("%d: got %v", v, err)
		}
	}
	for _, name := range []string{"free", "none"} {
		if err := a.validate(before, name); err != nil {
			t.Errorf("%s, which has no validator: got %v", name, err)
		}
	}
	a.signal("end")
	a.drain(nil)
	if err := a.validate(len(a.events), "set", 1); err != nil {
		t.Errorf("a closed run refuses by itself: got %v", err)
	}
}
