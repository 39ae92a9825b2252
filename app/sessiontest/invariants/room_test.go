package invariants

import (
	"context"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker with its maximum of sessions polls at one app, and another app ends one of its sessions: the held poll or
// the next one receives the session that waited for a place.
func TestRoomThatAnotherAppMadeIsTakenByOpenPolls(t *testing.T) {
	for _, held := range []bool{true, false} {
		w := onPostgres(t, 2)
		ns := w.namespace("room")
		here, there := w.apps[0].Broker(), w.apps[1]
		must[protocol.RegisterResponse](t)(there.Broker().Register(t.Context(), worker(ns, "a", "a1", 1, time.Hour)))
		options := func(id string) protocol.Command { // sessions with options are never evicted while they are idle
			return withOptions(protocol.SessionOptions{SessionID: id, Lease: 3600})
		}
		ask := func(seconds int64) (*protocol.ActivityTask, error) {
			return poll(context.WithoutCancel(t.Context()), there.Broker(), ns, "a", "a1", seconds)
		}
		w.decide(ns, "one", options("first"))
		first := must[*protocol.ActivityTask](t)(ask(30))
		if first == nil {
			t.Fatal("it gets nothing")
		}
		if a := finish(t.Context(), there.Broker(), ns, first, nil); a.Err != nil {
			t.Fatal(a.Err)
		}
		w.step(ns, "one", options("second"))
		if more := must[*protocol.ActivityTask](t)(ask(1)); more != nil {
			t.Fatalf("above its cap it gets %s", more.AttemptID)
		}
		release := func() {
			if _, err := here.ReleaseSession(t.Context(), protocol.SessionVerb{
				Namespace: ns, WorkerID: "a", SessionID: "first",
			}); err != nil {
				t.Fatal(err)
			}
		}
		type answer struct {
			task *protocol.ActivityTask
			err  error
		}
		got := make(chan answer, 1)
		if held {
			go func() {
				task, err := ask(60)
				got <- answer{task, err}
			}()
			for end := time.Now().Add(time.Minute); there.Dispatch().Counts().Waiting == 0 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			release()
		} else {
			release()
			task, err := ask(60)
			got <- answer{task, err}
		}
		if a := <-got; a.err != nil || a.task == nil || a.task.Session.SessionID != "second" {
			t.Errorf("a poll that was held %t is given %+v, %v", held, a.task, a.err)
		}
	}
}
