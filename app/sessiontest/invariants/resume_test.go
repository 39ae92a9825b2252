package invariants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

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
