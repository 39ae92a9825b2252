package channel_test

import (
	"context"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// If a session ends at another caller's request, its owner is notified at once, not at its next renewal. A worker gets
// no notice of a session that it ended itself.
func TestOwnerIsNotifiedOfTheEndOfItsSession(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	received := make(chan protocol.SessionNotice, 10)
	notices := rpc.Handlers{}
	rpc.Handle(notices, protocol.NoticeSession, func(_ context.Context, n protocol.SessionNotice) (rpc.None, error) {
		received <- n
		return rpc.None{}, nil
	})
	w, err := dial(t, a, protocol.ChannelAuth{WorkerID: "w", Protocol: 1}, func(s *socketio.Socket) {
		rpc.Serve(s, notices, rpc.Serving{})
	})
	if err != nil {
		t.Fatal(err)
	}
	w.settings(map[string]any{"workerProps": map[string]any{"version": "test"}})
	call[protocol.RegisterResponse](
		w, protocol.MethodRegister, map[string]any{"task_queue": "default", "capabilities": []string{"worker_sessions"}},
	)
	epochs := map[string]int64{}
	for _, id := range []string{"own", "closed", "moved", "ttl"} {
		ttl := 600
		if id == "ttl" {
			ttl = 1
		}
		out := call[protocol.SessionResponse](
			w, protocol.MethodCreateSession, map[string]any{"session_id": id, "ttl_seconds": ttl},
		)
		epochs[id] = out.Session.Epoch
	}
	call[protocol.SessionResponse](w, protocol.MethodCloseSession, map[string]any{"session_id": "own"})
	for verb, id := range map[string]string{"close": "closed", "migrate": "moved"} {
		_, err := a.Broker().OperateSession(
			within(t), protocol.SessionOperation{SessionID: id, Verb: verb, Identity: "eve", Reason: "test"},
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{"closed": "test by eve", "moved": "migrated: test", "ttl": "ttl_expired"}
	for range want {
		select {
		case n := <-received:
			if n.Epoch != epochs[n.SessionID] || n.Reason != want[n.SessionID] {
				t.Errorf("got %+v, want epoch %d, reason %q", n, epochs[n.SessionID], want[n.SessionID])
			}
		case <-time.After(ceiling):
			t.Fatal("the holder was not told")
		}
	}
	select {
	case n := <-received:
		t.Errorf("told of %+v as well", n)
	default:
	}
}

func TestCloseOverTheSocketReleasesASession(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	w, err := dial(t, a, protocol.ChannelAuth{WorkerID: "w", Protocol: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.settings(map[string]any{"workerProps": map[string]any{"version": "test"}})
	call[protocol.RegisterResponse](
		w, protocol.MethodRegister, map[string]any{"task_queue": "default", "capabilities": []string{"worker_sessions"}},
	)
	call[protocol.SessionResponse](w, protocol.MethodCreateSession, map[string]any{"session_id": "s"})
	for i, outcome := range []string{"closed", "already_closed"} {
		got := call[protocol.SessionResponse](
			w, protocol.MethodCloseSession, map[string]any{"session_id": "s", "reason": protocol.ReasonWorkerShutdown},
		)
		if got.Outcome != outcome || got.Session.Status != protocol.SessionClosed || *got.Session.LeaseOwner != "w" {
			t.Errorf("close %d: %s, %+v", i+1, got.Outcome, got.Session)
		}
	}
	if v, err := a.View().Session(t.Context(), "default", "s"); err != nil || v.LeaseOwner != nil ||
		v.EndedReason != "released" {
		t.Errorf("the session is %+v, %v", v, err)
	}
}
