package broker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// holdsSessions registers a worker with the given lease, lets it acquire sessions, and returns their renewals.
func (a *app) holdsSessions(worker string, lease time.Duration, sessions int) (held []protocol.SessionRenewal) {
	a.t.Helper()
	a.ours(worker, "p", lease, 0, sessions)
	for i := range sessions {
		id := fmt.Sprintf("%s-s%d", worker, i)
		out := must[protocol.SessionResponse](a.t)(a.CreateSession(a.t.Context(), protocol.SessionCreate{
			WorkerID: worker, SessionOptions: protocol.SessionOptions{SessionID: id, Queue: "default"},
		}))
		held = append(held, protocol.SessionRenewal{SessionID: id, Epoch: out.Session.Epoch})
	}
	return held
}

// atRest lets idle workers renew their sessions three times per lease, at different phases, for a number of leases, and
// returns the store's statistics. It checks that the responses agree with the stored leases.
func (a *app) atRest(workers, sessions int, lease time.Duration, leases int) (spent store.Stats) {
	a.t.Helper()
	held := map[string][]protocol.SessionRenewal{}
	for i := range workers {
		id := fmt.Sprintf("w%d", i)
		held[id] = a.holdsSessions(id, lease, sessions)
	}
	stats := a.store.(interface{ Stats() store.Stats })
	before := stats.Stats()
	var group sync.WaitGroup
	i := 0
	for id, list := range held {
		first := lease / 3 * time.Duration(i) / time.Duration(workers)
		i++
		group.Go(func() {
			time.Sleep(first)
			for range 3 * leases {
				next := time.After(lease / 3)
				got, err := a.WorkerHeartbeat(a.t.Context(), protocol.WorkerHeartbeat{
					WorkerID: id, Incarnation: "p", FromSettings: true, Patient: true, Sessions: list,
				})
				if err != nil || len(got.Sessions) != len(list) {
					a.t.Errorf("%s: %d sessions, %v", id, len(got.Sessions), err)
					return
				}
				for k, s := range got.Sessions {
					if !s.Held || s.SessionID != list[k].SessionID || s.Epoch != list[k].Epoch ||
						time.Until(s.LeaseExpiresAt.Time) < lease {
						a.t.Errorf("%s: %+v", id, s)
					}
				}
				<-next
			}
		})
	}
	group.Wait()
	now := stats.Stats()
	return store.Stats{
		Statements: now.Statements - before.Statements, Commits: now.Commits - before.Commits,
		Changes: now.Changes - before.Changes, Reads: now.Reads - before.Reads,
	}
}

// The renewals of an idle fleet share transactions: the number of statements per second does not depend on the size of
// the fleet. Renewals wait for a tenth of a lease and are due every third, which makes at most four transactions per
// lease, plus a few for heartbeats in between.
func TestTheSessionsOfAFleetAreRenewedTogether(t *testing.T) {
	if testing.Short() {
		t.Skip("renews 3,000 sessions for two minutes of virtual time")
	}
	const lease = 30 * time.Second
	for _, size := range []struct{ workers, sessions int }{{20, 5}, {200, 15}} {
		inBubble(t, fmt.Sprintf("%d by %d", size.workers, size.sessions), func(o *harness) {
			a, _ := o.app("a", false)
			const leases = 4
			spent := a.atRest(size.workers, size.sessions, lease, leases)
			seconds := int64(leases * lease / time.Second)
			if n := spent.Statements + spent.Reads; n > 2*seconds {
				t.Errorf("%d workers with %d sessions each: %d statements in %d s, want at most two a second: %+v",
					size.workers, size.sessions, n, seconds, spent)
			}
		})
	}
}

// On PostgreSQL, in real time, a transaction of renewals has six statements; there are at most as many transactions as
// fit into the time if each waits for a tenth of a lease.
func TestTheSessionsOfAFleetAreRenewedTogetherOnPostgres(t *testing.T) {
	for _, size := range []struct{ workers, sessions int }{{10, 5}, {60, 15}} {
		_, a, _ := onPostgres(t, apptest.Postgres(t), "a", time.Hour)
		const lease, leases = 10 * time.Second, 1
		spent := a.atRest(size.workers, size.sessions, lease, leases)
		if most := int64(10*leases + 10); spent.Changes > most || spent.Statements > 6*spent.Commits {
			t.Errorf("%d workers with %d sessions each: %+v, want at most %d changes of 6 statements",
				size.workers, size.sessions, spent, most)
		}
	}
}

// Each session is renewed separately, also in a shared transaction: a renewal with an old epoch, of another worker's
// session or by an unknown worker is rejected, and the other renewals succeed.
func TestRejectedRenewalDoesNotAffectOthers(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		mine, other := a.holdsSessions("a", 30*time.Second, 3), a.holdsSessions("b", 30*time.Second, 1)
		asked := []protocol.SessionRenewal{
			mine[0],
			{SessionID: mine[1].SessionID, Epoch: mine[1].Epoch - 1},
			other[0],
			{SessionID: "never", Epoch: 1},
			mine[2], mine[0],
		}
		var group sync.WaitGroup
		group.Go(func() { // waits for the renewal that cannot wait
			got := must[protocol.WorkerHeartbeatResponse](t)(a.WorkerHeartbeat(t.Context(), protocol.WorkerHeartbeat{
				WorkerID: "b", Incarnation: "p", Patient: true, Sessions: other,
			}))
			if len(got.Sessions) != 1 || !got.Sessions[0].Held {
				t.Errorf("the other worker: %+v", got.Sessions)
			}
		})
		got := must[protocol.WorkerHeartbeatResponse](t)(a.WorkerHeartbeat(t.Context(), protocol.WorkerHeartbeat{
			WorkerID: "a", Incarnation: "p", Sessions: asked,
		}))
		group.Wait()
		for i, held := range []bool{true, false, false, false, true, true} {
			s := got.Sessions[i]
			if s.Held != held || held == s.LeaseExpiresAt.IsZero() || held == (s.Reason != "") {
				t.Errorf("renewal %d: %+v", i, s)
			}
		}
	})
}

// If an app hangs while it has locked the row of a session, only the renewal of this session is delayed, although one
// transaction renews many sessions, and no worker gets the response that a session is lost.
func TestALockedSessionDelaysNoOtherRenewal(t *testing.T) {
	database := apptest.Postgres(t)
	_, a, _ := onPostgres(t, database, "a", time.Hour)
	one, _, _ := onPostgres(t, database, "b", time.Hour)
	held, other := a.holdsSessions("a", 30*time.Second, 2), a.holdsSessions("b", 30*time.Second, 1)
	db, err := sql.Open("pgx", database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	locked, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	refused := errors.New("refused")
	var decided atomic.Int32
	go func() {
		defer close(done)
		_, err := one.store.Commit(context.WithoutCancel(t.Context()), store.Transaction{
			Needs: store.Keys{Sessions: []engine.SessionKey{{Namespace: "default", ID: held[1].SessionID}}},
			Decide: func(store.Rows, time.Time) (store.Writes, error) {
				if decided.Add(1) == 1 {
					close(locked)
				}
				<-release
				return store.Writes{}, refused
			},
		})
		if !errors.Is(err, refused) {
			t.Error(err)
		}
	}()
	<-locked
	beat := func(worker string, patient bool, list ...protocol.SessionRenewal) []protocol.SessionState {
		return must[protocol.WorkerHeartbeatResponse](t)(a.WorkerHeartbeat(t.Context(), protocol.WorkerHeartbeat{
			WorkerID: worker, Incarnation: "p", Patient: patient, Sessions: list,
		})).Sessions
	}
	all := make(chan []protocol.SessionState, 1)
	go func() { all <- beat("a", true, held...) }()
	for !a.Gathers() { // the renewal waits for others
		time.Sleep(time.Millisecond)
	}
	if s := beat("b", false, other...)[0]; !s.Held || s.LeaseExpiresAt.IsZero() {
		t.Errorf("beside a session that is locked: %+v", s)
	}
	var id string
	err = db.QueryRow("SELECT session_id FROM sessions WHERE session_id = $1 FOR UPDATE NOWAIT", held[1].SessionID).Scan(&id)
	// Otherwise the renewal would have waited until PostgreSQL ended the blocked transaction.
	if n := decided.Load(); err == nil || n != 1 {
		t.Errorf("the response came only after the lock was released: %q, decided %d times", id, n)
	}
	close(release)
	<-done
	for _, s := range <-all {
		if !s.Held || s.LeaseExpiresAt.IsZero() {
			t.Errorf("after the lock was released: %+v", s)
		}
	}
}
