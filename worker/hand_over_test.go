package worker_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// ledger records the set-ups and tear-downs of sessions, in order. set-ups wait for the worker's gate, if there is one.
type ledger struct {
	mu    sync.Mutex // guards the fields below
	lines []string
	gates map[string]chan struct{}
}

func (l *ledger) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *ledger) count(line string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.lines {
		if x == line {
			n++
		}
	}
	return n
}

// handingOver starts a worker with the activity "who", which returns the worker that set its session up, its epoch at
// the set-up, and the epoch of the attempt. stop drains the worker and waits for its end.
func (l *ledger) handingOver(t *testing.T, id string, carrier link.Carrier) (stop func()) {
	t.Helper()
	r := worker.NewRegistry()
	type state struct {
		worker string
		epoch  int64
		fenced bool
	}
	r.Session("model", activity.SessionDefinition{
		HandOver: activity.HandOverPrepare,
		SetUp: func(ctx context.Context, text string) (*state, error) {
			l.add("set up " + id + " " + text)
			l.mu.Lock()
			gate := l.gates[id]
			l.mu.Unlock()
			if gate != nil {
				select {
				case <-gate:
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
			}
			_, err := activity.Fence(ctx)
			return &state{id, activity.SessionEpoch(ctx), err == nil}, nil
		},
		TearDown: func(context.Context, *state) { l.add("tear down " + id) },
	})
	r.Activity("who", func(ctx context.Context) (string, error) {
		s, err := activity.State[*state](ctx)
		if err != nil {
			return "", err
		}
		switch now := activity.SessionEpoch(ctx); {
		case s.epoch == now && s.fenced:
			return s.worker + " set up in its epoch", nil
		case s.epoch == 0 && !s.fenced && now > 0:
			return s.worker + " prepared", nil
		}
		return s.worker + " set up in another epoch", nil
	})
	w, err := worker.New(workeropt.Over(carrier, worker.Options{
		Registry: r, Release: "test", WorkerID: id, DrainTimeout: time.Minute, DataDir: t.TempDir(),
		Logger: slogbridge.Slog(apptest.Log(t)), Sessions: worker.SessionOptions{Max: 10},
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		end()
		if err := <-done; err != nil {
			t.Errorf("worker %s: %v", id, err)
		}
	})
	t.Cleanup(stop)
	ready, cancel := context.WithTimeout(t.Context(), ceiling)
	defer cancel()
	if err := w.WaitReady(ready); err != nil {
		t.Fatal(err)
	}
	return stop
}

// who runs the activity "who" in the session s.
func who(t *testing.T, a *apptest.App) string {
	t.Helper()
	run, err := a.Broker().StartActivity(t.Context(), protocol.ActivityRequest{
		ActivityType: "who", ActivityOptions: protocol.ActivityOptions{
			SessionID: "s", SessionDefinition: &protocol.ActivitySession{Name: "model", Arguments: json.RawMessage(`["m"]`)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return result[string](t, end(t, a, run.RunID))
}

// Over every transport and on both databases: while the owner drains, it runs the session's tasks until the successor
// has set the session up. The set-up has no epoch, receives the stored arguments and runs once.
func TestADrainHandsASessionOverOverEveryTransport(t *testing.T) {
	for way, carrier := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			apptest.Databases(t, func(t *testing.T, database string) {
				a := apptest.Start(t, apptest.Options{Database: database})
				gate := make(chan struct{})
				l := &ledger{gates: map[string]chan struct{}{"B": gate}}
				stop := l.handingOver(t, "A", carrier(a))
				if got := who(t, a); got != "A set up in its epoch" {
					t.Fatal(got)
				}
				l.handingOver(t, "B", carrier(a))
				stopped := make(chan struct{})
				go func() { defer close(stopped); stop() }()
				eventually(t, "B prepares the session", func() bool { return l.count("set up B m") == 1 })
				if got := who(t, a); got != "A set up in its epoch" {
					t.Errorf("during the set-up of B: %s", got)
				}
				close(gate)
				<-stopped
				if got := who(t, a); got != "B prepared" {
					t.Errorf("after the drain: %s", got)
				}
				for line, want := range map[string]int{"set up A m": 1, "set up B m": 1, "tear down A": 1, "tear down B": 0} {
					if n := l.count(line); n != want {
						t.Errorf("%s: %d times, want %d", line, n, want)
					}
				}
				setUps := 0
				page, err := a.View().SessionTimeline(t.Context(), protocol.SessionTimeline{Namespace: "default", SessionID: "s"})
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range page.Timeline {
					if e.What == "set_up" || e.What == protocol.SessionPrepared {
						setUps++
					}
				}
				if setUps != 2 {
					t.Errorf("%d set-ups in the timeline %+v", setUps, page.Timeline)
				}
			})
		})
	}
}

// The owner and the successor are connected to different apps. In the second case the app of the owner ends during the
// set-up: the owner continues its drain at the other app.
func TestADrainHandsASessionOverBetweenApps(t *testing.T) {
	for name, ends := range map[string]bool{"two apps": false, "the app of the owner ends": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := apptest.Postgres(t)
			first := apptest.Start(t, apptest.Options{Database: database})
			second := apptest.Start(t, apptest.Options{Database: database})
			gate := make(chan struct{})
			l := &ledger{gates: map[string]chan struct{}{"B": gate}}
			urls := []string{first.URL()}
			if ends {
				urls = append(urls, second.URL())
			}
			var at atomic.Pointer[string]
			stop := l.handingOver(t, "A", traced{&link.Socket{URLs: urls}, &at})
			if got := who(t, first); got != "A set up in its epoch" {
				t.Fatal(got)
			}
			other := second // the app to which A is not connected
			if strings.Contains(*at.Load(), strings.TrimPrefix(second.URL(), "http://")) {
				other = first
			}
			l.handingOver(t, "B", &link.Socket{URLs: []string{other.URL()}})
			stopped := make(chan struct{})
			go func() { defer close(stopped); stop() }()
			eventually(t, "B prepares the session", func() bool { return l.count("set up B m") == 1 })
			if ends {
				map[bool]*apptest.App{true: first, false: second}[other == second].Stop()
				eventually(t, "A reconnects", func() bool {
					return strings.Contains(*at.Load(), strings.TrimPrefix(other.URL(), "http://"))
				})
			}
			if got := who(t, other); got != "A set up in its epoch" {
				t.Errorf("during the set-up of B: %s", got)
			}
			close(gate)
			<-stopped
			if got := who(t, other); got != "B prepared" {
				t.Errorf("after the drain: %s", got)
			}
			for line, want := range map[string]int{"set up A m": 1, "set up B m": 1, "tear down A": 1, "tear down B": 0} {
				if n := l.count(line); n != want {
					t.Errorf("%s: %d times, want %d", line, n, want)
				}
			}
		})
	}
}
