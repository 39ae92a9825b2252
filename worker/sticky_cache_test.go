package worker_test

import (
	"sync/atomic"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// sleepers are runs that wait for a signal. alive counts the runs whose code is in the memory of a worker.
type sleepers struct {
	alive atomic.Int32
	ids   []protocol.Target
}

func (s *sleepers) define(o *worker.Options) {
	o.Registry.Workflow("sleep", func(ctx workflow.Context) error {
		s.alive.Add(1)
		defer s.alive.Add(-1)
		return workflow.Signal(ctx, "wake").Receive(ctx, nil)
	})
}

// begin starts n runs and waits until a worker has cached all of them.
func (s *sleepers) begin(t *testing.T, a *apptest.App, n int, timeout int64) {
	t.Helper()
	for range n {
		in := protocol.StartRequest{WorkflowType: "sleep"}
		in.RunTimeout = timeout
		started, err := a.Broker().Start(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		s.ids = append(s.ids, protocol.Target{WorkflowID: started.WorkflowID, RunID: started.RunID})
	}
	eventually(t, "a worker keeps all runs", func() bool { return int(s.alive.Load()) == len(s.ids) })
	for _, id := range s.ids { // wait until the worker has reported what each run waits for
		eventually(t, "the code waits", func() bool { return len(events(t, a, id.RunID)) >= 2 })
	}
}

// woken signals runs and checks that they complete.
func (s *sleepers) woken(t *testing.T, a *apptest.App, ids []protocol.Target) {
	t.Helper()
	for _, id := range ids {
		_, err := a.Broker().Signal(t.Context(), protocol.SignalRequest{
			Target: id, SignalName: "wake",
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		if last := end(t, a, id.RunID); last.Type() != "WorkflowCompleted" {
			t.Errorf("a run next to the ended ones ended with %s", last.Type())
		}
	}
}

// If a run is terminated, cancelled or times out at any app, its worker evicts it from the sticky cache, over every
// carrier, although no newer run needs the place. Other runs stay cached and continue.
func TestRunsThatEndElsewhereLeaveTheWorkersMemory(t *testing.T) {
	for way, carrier := range ways {
		t.Run(way, func(t *testing.T) {
			apptest.Databases(t, func(t *testing.T, database string) {
				a, b := apptest.Two(t, apptest.Options{Database: database})
				var s sleepers
				start(t, a, carrier(a), s.define)
				s.begin(t, a, 30, 0)
				for i, id := range s.ids[:20] {
					order := protocol.EndRequest{Target: id}
					var err error
					if i%2 == 0 {
						_, err = b.Broker().Terminate(t.Context(), order)
					} else {
						_, err = b.Broker().Cancel(t.Context(), order)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				eventually(t, "the code of ended runs leaves", func() bool { return s.alive.Load() == 10 })
				bystanders := s.ids[20:]
				s.ids = bystanders
				s.begin(t, a, 5, 1)
				eventually(t, "the code of runs that timed out leaves", func() bool { return s.alive.Load() == 10 })
				s.woken(t, b, bystanders)
			})
		})
	}
}

// A worker that connects to another app lists its cached runs. The app asks the worker to evict the runs that have
// closed meanwhile, and later each run that closes.
func TestNewAppReceivesTheCachedRunsOfAWorker(t *testing.T) {
	for _, way := range []string{"socket", "http"} {
		t.Run(way, func(t *testing.T) {
			database := apptest.Postgres(t)
			a, b := apptest.Two(t, apptest.Options{Database: database})
			var to link.Carrier = &link.Socket{URLs: []string{a.URL(), b.URL()}}
			if way == "http" {
				to = &link.HTTP{URLs: []string{a.URL(), b.URL()}}
			}
			var s sleepers
			start(t, a, to, s.define)
			s.begin(t, b, 20, 0)
			terminate := func(ids []protocol.Target) {
				for _, id := range ids {
					order := protocol.EndRequest{Target: id}
					if _, err := b.Broker().Terminate(t.Context(), order); err != nil {
						t.Fatal(err)
					}
				}
			}
			a.Stop()
			terminate(s.ids[:5])
			eventually(t, "what ended meanwhile leaves", func() bool { return s.alive.Load() == 15 })
			terminate(s.ids[5:10])
			eventually(t, "what ended since leaves", func() bool { return s.alive.Load() == 10 })
			s.woken(t, b, s.ids[10:])
		})
	}
}
