package invariants

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// many polls for more than one activity.
func many(
	ctx context.Context, w *harness, app int, ns, worker, incarnation string, seconds int64,
) (protocol.PollResponse, error) {
	return w.apps[app].Broker().Poll(ctx, protocol.PollRequest{
		Namespace: ns, WorkerID: worker, Incarnation: incarnation, Kinds: []protocol.TaskKind{protocol.KindActivity}, Max: 20,
		Timeout: &seconds,
	})
}

// leased returns the tasks that a worker holds.
func (w *harness) leased(ns, worker string) (refs []store.TaskRef) {
	w.t.Helper()
	err := w.apps[0].Store().View(w.t.Context(), func(r store.Reader) (err error) {
		refs, err = r.Owned(w.t.Context(), engine.WorkerKey{Namespace: ns, ID: worker}, "")
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return refs
}

// Workers with held polls deregister under load, at the app of the request or at another one. Tasks made before, during
// and after, in sessions or not, are dispatched to the other workers at once, and never to the workers that left. The
// leases are one hour long.
func TestStoppingFleetUnderLoadGetsNoMoreTasks(t *testing.T) {
	test := func(t *testing.T, w *harness, leave func(b protocol.DeregisterRequest) error, names bool) {
		const fleet, rounds, each = 12, 24, 8
		ns, there := w.namespace("leaving"), len(w.apps)-1
		var polls, leaving sync.WaitGroup
		process := func(i int) string {
			if names {
				return fmt.Sprintf("process%d", i)
			}
			return ""
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		for i := range fleet {
			id := fmt.Sprintf("leaver%d", i)
			must[protocol.RegisterResponse](t)(w.apps[0].Broker().Register(ctx, worker(ns, id, process(i), 10, time.Hour)))
			for range 2 {
				polls.Go(func() {
					for ctx.Err() == nil {
						if _, err := many(ctx, w, there, ns, id, process(i), 30); err != nil {
							if reason := protocol.ReasonOf(err); ctx.Err() == nil && reason != protocol.ReasonWorkerNotRegistered &&
								reason != protocol.ReasonStaleRegistration {
								t.Errorf("a poll of %s: %v", id, err)
							}
							return // the worker was notified that its registration has ended
						}
					}
				})
			}
		}
		for round := range rounds {
			var tasks []protocol.Command
			for i := range each {
				if i%4 == 3 {
					tasks = append(tasks, inSession(fmt.Sprintf("s%d", round)))
				} else {
					tasks = append(tasks, activity())
				}
			}
			w.decide(ns, fmt.Sprintf("wf%d", round), tasks...)
			if round == rounds/3 {
				for i := range fleet {
					leaving.Go(func() {
						if err := leave(protocol.DeregisterRequest{
							Namespace: ns, WorkerID: fmt.Sprintf("leaver%d", i), Incarnation: process(i),
						}); err != nil {
							t.Error(err)
						}
					})
				}
			}
		}
		leaving.Wait()
		must[protocol.RegisterResponse](t)(
			w.apps[0].Broker().Register(t.Context(), worker(ns, "stayer", "1", 1000, time.Hour)),
		)
		got := map[string]bool{}
		for end := time.Now().Add(60 * time.Second); len(got) < rounds*each && time.Now().Before(end); {
			a := must[protocol.PollResponse](t)(many(t.Context(), w, 0, ns, "stayer", "1", 1))
			for _, task := range a.Tasks {
				got[task.Activity.TaskID] = true
			}
		}
		if len(got) != rounds*each {
			t.Errorf("who stays gets %d of %d tasks", len(got), rounds*each)
		}
		for i := range fleet {
			id := fmt.Sprintf("leaver%d", i)
			if refs := w.leased(ns, id); len(refs) > 0 {
				t.Errorf("%s left and holds %d tasks", id, len(refs))
			}
			if _, err := w.apps[there].View().
				Worker(t.Context(), ns, id); protocol.ReasonOf(err) != protocol.ReasonWorkerNotFound {
				t.Errorf("%s is listed: %v", id, err)
			}
		}
		ended := make(chan struct{})
		go func() { polls.Wait(); close(ended) }()
		select { // all polls were ended before their timeouts
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Error("polls of workers that left go on")
		}
	}
	for name, names := range map[string]bool{"naming its processes": true, "of the HTTP contract": false} {
		for _, on := range []struct {
			name string
			make func(testing.TB) *harness
		}{{"sqlite", onSQLite}, {"two apps on postgres", func(t testing.TB) *harness { return onPostgres(t, 2) }}} {
			t.Run(on.name+", "+name, func(t *testing.T) {
				w := on.make(t)
				test(t, w, func(in protocol.DeregisterRequest) error {
					_, err := w.apps[0].Broker().Deregister(t.Context(), in)
					return err
				}, names)
			})
		}
	}
}
