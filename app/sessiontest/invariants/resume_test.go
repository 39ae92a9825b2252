package invariants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// refusals is a store in which the transactions fail that change some sessions but no run.
type refusals struct {
	store.Store
	mu       sync.Mutex
	sessions map[string]int // number of failed transactions of each of these sessions
}

func (s *refusals) Commit(ctx context.Context, c store.Transaction) (any, error) {
	if len(c.Needs.Runs) == 0 && slices.ContainsFunc(c.Needs.Sessions, s.refuses) {
		return nil, errors.New("no connection")
	}
	return s.Store.Commit(ctx, c)
}

func (s *refusals) refuses(k engine.SessionKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, is := s.sessions[k.ID]
	if is {
		s.sessions[k.ID] = n + 1
	}
	return is
}

// refuse makes only the transactions of these sessions fail from now on.
func (s *refusals) refuse(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions = map[string]int{}
	for _, id := range ids {
		s.sessions[id] = 0
	}
}

// refused returns how many transactions of a session have failed since refuse was called.
func (s *refusals) refused(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after a minute: %s", what)
		}
	}
}

// An operator resumes two workers, and the updates that return two sessions to one of them fail at first. The other
// sessions of this worker and those of the other worker are returned meanwhile, and the two afterwards.
func TestAFailedReturnOfASessionIsRepeatedAndDelaysNoOther(t *testing.T) {
	var failing *refusals
	w := onShifted(t, "", 1, func(s store.Store) store.Store {
		failing = &refusals{Store: s}
		return failing
	})
	ns, b, ctx := w.namespace("resume"), w.apps[0].Broker(), t.Context()
	owners := map[string][]string{"a": {"a1", "a2", "a3"}, "b": {"b1"}}
	for name, sessions := range owners {
		must[protocol.RegisterResponse](t)(b.Register(ctx, worker(ns, name, name, 3, time.Hour)))
		var commands []protocol.Command
		for _, id := range sessions {
			commands = append(commands, inSession(id))
		}
		w.decide(ns, "wf-"+name, commands...)
		for range sessions {
			if must[*protocol.ActivityTask](t)(poll(ctx, b, ns, name, name, 30)) == nil {
				t.Fatal("no task")
			}
		}
	}
	operate := func(verb string) {
		for name := range owners {
			must[protocol.WorkerHeartbeatResponse](t)(b.WorkerHeartbeat(ctx, protocol.WorkerHeartbeat{
				Namespace: ns, WorkerID: name, Incarnation: name,
			}))
			must[protocol.FleetDrainState](t)(b.Fleet().OperateFleet(ctx, protocol.FleetRequest{
				Namespace: ns, FleetTarget: protocol.FleetTarget{WorkerID: name}, Verb: verb,
			}))
		}
	}
	// until waits until these sessions are drained, and no others.
	until := func(drained ...string) {
		t.Helper()
		eventually(t, fmt.Sprintf("only sessions %v are drained", drained), func() bool {
			var are []string
			if err := w.apps[0].Store().View(ctx, func(r store.Reader) error {
				list, err := r.Sessions(ctx, store.SessionQuery{Namespace: ns, Limit: 100})
				for i := range list {
					if list[i].Leaving {
						are = append(are, list[i].ID)
					}
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			slices.Sort(are)
			return slices.Equal(are, drained)
		})
	}
	operate(protocol.FleetDrain)
	until("a1", "a2", "a3", "b1")
	failing.refuse("a1", "a2")
	operate(protocol.FleetResume)
	until("a1", "a2")
	eventually(t, "the app repeats the updates that fail", func() bool {
		return failing.refused("a1") > 1 && failing.refused("a2") > 1
	})
	failing.refuse()
	until()
}

// The app with the heartbeats of a resumed worker stops before it has returned the worker's session, in which a task
// runs. The next app returns the session when the worker renews it, and dispatches the session's second task.
func TestTheNextAppReturnsTheSessionOfAResumedWorker(t *testing.T) {
	for _, verb := range []string{"worker heartbeat", "session heartbeat"} {
		t.Run(verb, func(t *testing.T) {
			apptest.Databases(t, func(t *testing.T, database string) {
				failing := &refusals{}
				first := apptest.Start(t, apptest.Options{Database: database, Change: func(o *app.Options) {
					open := o.Open
					o.Open = func(ctx context.Context, id string, d store.Dispatcher) (_ store.Store, err error) {
						failing.Store, err = open(ctx, id, d)
						return failing, err
					}
				}})
				w := &harness{t: t, apps: []*apptest.App{first}}
				ns, ctx := w.namespace("resume"), t.Context()
				must[protocol.RegisterResponse](t)(first.Broker().Register(ctx, worker(ns, "a", "a", 3, time.Hour)))
				w.decide(ns, "wf", inSession("s"), inSession("s"))
				task := must[*protocol.ActivityTask](t)(poll(ctx, first.Broker(), ns, "a", "a", 30))
				beat := func(a *apptest.App, sessions ...protocol.SessionRenewal) {
					must[protocol.WorkerHeartbeatResponse](t)(a.Broker().WorkerHeartbeat(ctx, protocol.WorkerHeartbeat{
						Namespace: ns, WorkerID: "a", Incarnation: "a", Sessions: sessions,
					}))
				}
				operate := func(verb string) {
					must[protocol.FleetDrainState](t)(first.Broker().Fleet().OperateFleet(ctx, protocol.FleetRequest{
						Namespace: ns, FleetTarget: protocol.FleetTarget{WorkerID: "a"}, Verb: verb,
					}))
				}
				leaving := func(a *apptest.App) (is bool) {
					if err := a.Store().View(ctx, func(r store.Reader) error {
						s, err := r.Session(ctx, engine.SessionKey{Namespace: ns, ID: "s"})
						is = s.Leaving
						return err
					}); err != nil {
						t.Fatal(err)
					}
					return is
				}
				beat(first)
				operate(protocol.FleetDrain)
				eventually(t, "the session is drained", func() bool { return leaving(first) })
				failing.refuse("s")
				operate(protocol.FleetResume)
				eventually(t, "the update fails", func() bool { return failing.refused("s") > 0 })
				first.Stop()

				next := apptest.Start(t, apptest.Options{Database: database})
				must[protocol.RegisterResponse](t)(next.Broker().Register(ctx, worker(ns, "a", "a", 3, time.Hour)))
				if !leaving(next) {
					t.Fatal("the session is returned before its renewal")
				}
				if verb == "worker heartbeat" {
					beat(next, protocol.SessionRenewal{SessionID: "s", Epoch: task.Session.Epoch})
				} else {
					must[protocol.SessionResponse](t)(next.Broker().HeartbeatSession(ctx, protocol.SessionVerb{
						Namespace: ns, WorkerID: "a", SessionID: "s", Epoch: task.Session.Epoch,
					}))
				}
				if leaving(next) {
					t.Error("the renewal did not return the session")
				}
				again := must[*protocol.ActivityTask](t)(poll(ctx, next.Broker(), ns, "a", "a", 30))
				if again == nil || again.TaskID == task.TaskID || again.Session.Epoch != task.Session.Epoch {
					t.Errorf("%+v after %+v", again, task)
				}
			})
		})
	}
}
