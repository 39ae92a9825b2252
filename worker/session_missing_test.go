package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// warnings is a log writer whose lines a test can read.
type warnings struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *warnings) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(p)
}

func (w *warnings) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// Ending a session that was never started has no effect and no event, with and without the sticky cache, over every
// carrier and on both databases. Other sessions are unchanged.
func TestTheEndOfASessionThatWasNeverStartedHasNoEffect(t *testing.T) {
	for way, carrier := range ways {
		for _, kept := range []int{1000, 1} {
			if kept == 1 && way != "socket" { // the replay does not depend on the carrier, so one carrier is enough
				continue
			}
			t.Run(fmt.Sprintf("%s, %d runs kept", way, kept), func(t *testing.T) {
				apptest.Databases(t, func(t *testing.T, database string) {
					a := apptest.Start(t, apptest.Options{Database: database})
					var log warnings
					free := make(chan struct{})
					start(t, a, carrier(a), func(o *worker.Options) {
						o.StickyCache, o.Logger = kept, slogbridge.Slog(zerolog.New(&log))
						o.Registry.Workflow("holder", func(ctx workflow.Context) (string, error) {
							s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
							if err != nil {
								return "", err
							}
							return workflow.ExecuteIn[string](ctx, s, "hold")
						})
						o.Registry.Activity("hold", func(ctx context.Context) (string, error) {
							select {
							case <-free:
								return "held", nil
							case <-ctx.Done():
								return "", context.Cause(ctx)
							}
						})
						o.Registry.Workflow("ender", endsOthers)
						o.Registry.Activity("pass", func(_ context.Context, n int) (int, error) { return n, nil })
					})
					begin := func(typ string, args ...any) string {
						answer, err := a.Broker().Start(t.Context(), protocol.StartRequest{
							WorkflowType: typ, Input: input(t, args...),
						})
						if err != nil {
							t.Fatal(err)
						}
						return answer.RunID
					}
					holder := begin("holder")
					eventually(t, "the session of the holder is in use", func() bool {
						s, err := a.View().Session(t.Context(), "", holder+"-1")
						return err == nil && s.Active == 1
					})
					var enders []string
					for range 3 {
						enders = append(enders, begin("ender", holder+"-1"))
					}
					for _, run := range enders {
						if last := end(t, a, run); last.Type() != "WorkflowCompleted" {
							t.Fatalf("the run ended with %s: %+v", last.Type(), last.Data)
						}
						var got []string
						for _, e := range events(t, a, run) {
							switch d := e.Data.(type) {
							case *history.SessionEnded:
								got = append(got, fmt.Sprint(d.CommandSequence, " ", strings.TrimPrefix(d.SessionID, run), " ", d.Effect))
							case *history.ActivityScheduled:
								got = append(got, fmt.Sprint(d.Sequence, " ", d.ActivityType))
							case *history.SessionStarted:
								got = append(got, fmt.Sprint(d.CommandSequence, " start"))
							}
						}
						want := []string{"2 pass", "5 start", "6 pass", "8 -5 ended", "9 -5 already_ended", "10 pass"}
						if d := cmp.Diff(want, got); d != "" {
							t.Errorf("history (-want +got):\n%s", d)
						}
						for _, id := range []string{"never", holder + "-1"} {
							line := fmt.Sprintf(`"run_id":%q,"session_id":%q`, run, id)
							if n := strings.Count(log.String(), line); n != 1 {
								t.Errorf("%d lines are logged about session %s of run %s:\n%s", n, id, run, log.String())
							}
						}
					}
					close(free)
					if last := end(t, a, holder); last.Type() != "WorkflowCompleted" {
						t.Errorf("the run whose session others tried to end ended with %s: %+v", last.Type(), last.Data)
					}
				})
			})
		}
	}
}

// endsOthers is a workflow that ends sessions that it never started and, last, a session that it did start. The numbers
// are those of its commands.
func endsOthers(ctx workflow.Context, other string) error {
	never, others := &workflow.Session{ID: "never"}, &workflow.Session{ID: other}
	if err := never.End(ctx); err != nil { // 1
		return err
	}
	f := workflow.ExecuteActivity(ctx, "pass", 1) // 2
	if err := others.End(ctx); err != nil {       // 3: the last command of its task
		return err
	}
	if err := f.Get(ctx, nil); err != nil {
		return err
	}
	if err := others.End(ctx); err != nil { // 4
		return err
	}
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{}) // 5
	if err != nil {
		return err
	}
	g := s.Execute(ctx, "pass", 2)         // 6
	if err := never.End(ctx); err != nil { // 7
		return err
	}
	if err := g.Get(ctx, nil); err != nil {
		return err
	}
	for range 2 { // 8 and 9
		if err := s.End(ctx); err != nil {
			return err
		}
	}
	return workflow.ExecuteActivity(ctx, "pass", 3).Get(ctx, nil) // 10
}
