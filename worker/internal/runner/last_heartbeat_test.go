package runner_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// resume is an activity that reports two values at once and returns the last value that the previous attempt reported.
// The worker sends one heartbeat per second, so the app has not received the second value when the code ends.
func resume(ctx context.Context, end func() error) (string, error) {
	last, ok, err := activity.LastHeartbeat[string](ctx)
	if err != nil || activity.Info(ctx).Attempt == 3 {
		return fmt.Sprint(last, " ", ok), err
	}
	for _, part := range []string{"first", "last"} {
		value := fmt.Sprintf("%s of attempt %d, %t", part, activity.Info(ctx).Attempt, ok)
		if err := activity.Heartbeat(ctx, value); err != nil {
			return "", err
		}
		time.Sleep(time.Millisecond)
	}
	return "", end()
}

func TestTheLastHeartbeatOfAFailedAttemptReachesTheNext(t *testing.T) {
	for name, end := range map[string]func() error{
		"error": func() error { return errors.New("try again") },
		"panic": func() error { panic("try again") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *control) {
				a.worker("w", func(r *worker.Registry) {
					single(r, "work", func(ctx context.Context) (string, error) { return resume(ctx, end) })
				}, nil)
				if got := result[string](t, a.end(a.begin("do_work"))); got != "last of attempt 2, true true" {
					t.Errorf("got %q", got)
				}
				if n := a.called("HeartbeatTask"); n != 4 {
					t.Errorf("%d heartbeats, want two for each attempt that failed", n)
				}
			})
		})
	}
}

// If the heartbeat with the last value gets no response, the worker sends it again before the outcome.
func TestALastHeartbeatWithoutAResponseIsRepeatedBeforeTheOutcome(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		var lost atomic.Int32
		a.mu.Lock()
		a.fail = func(_, method string) error {
			if method == "HeartbeatTask" && lost.Add(1) == 1 {
				return errors.New("no response")
			}
			return nil
		}
		a.mu.Unlock()
		a.worker("w", func(r *worker.Registry) {
			single(r, "work", func(ctx context.Context) (string, error) {
				last, _, err := activity.LastHeartbeat[string](ctx)
				if err != nil || last != "" {
					return last, err
				}
				return "", errors.Join(activity.Heartbeat(ctx, "only"), errors.New("try again"))
			})
		}, nil)
		if got := result[string](t, a.end(a.begin("do_work"))); got != "only" {
			t.Errorf("got %q", got)
		}
	})
}

// A worker that drains returns its attempt with the last value.
func TestTheLastHeartbeatOfADrainedAttemptReachesTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, a *control) {
		define := func(r *worker.Registry) {
			single(r, "work", func(ctx context.Context) (string, error) {
				last, ok, err := activity.LastHeartbeat[string](ctx)
				if ok || err != nil {
					return last, err
				}
				_ = activity.Heartbeat(ctx, "first")
				time.Sleep(time.Millisecond)
				_ = activity.Heartbeat(ctx, "last")
				<-ctx.Done()
				return "", ctx.Err()
			})
		}
		first := a.worker("a", define, nil)
		run := a.begin("do_work")
		synctest.Wait()
		first.link.Drain()
		a.worker("b", define, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := first.Stop(ctx); err == nil {
			t.Error("Stop returned although the activity runs")
		}
		first.HandBack(t.Context())
		if got := result[string](t, a.end(run)); got != "last" {
			t.Errorf("got %q", got)
		}
		done := all[*history.ActivityCompleted](a.events(run))
		if len(done) != 1 || done[0].Worker != "b" {
			t.Errorf("completed: %s", cmp.Diff(nil, done))
		}
	})
}
