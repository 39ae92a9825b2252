package broker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// lostLease is a case in which an app leased a task to an HTTP client and died without sending the response.
type lostLease struct {
	kind    protocol.TaskKind
	sdk     string
	lives   bool   // the app does not die
	arrived bool   // the client has received the task, and its attempt sent a heartbeat
	mute    bool   // the client stops polling, and another client polls
	rested  bool   // the next app has received heartbeats of the client without running tasks before
	slots   string // slots that the client's heartbeats report
}

const (
	allFree      = `{"workflow_available":4,"activity_available":4}`
	oneUsed      = `{"workflow_available":3,"activity_available":3}`
	python, rust = protocol.PythonSDK + "2.12.0", protocol.RustSDK + "4.10.2"
)

// given returns after what time a poll of the client at the next app receives the task, 0 for never. The client sends a
// heartbeat each every.
func (l lostLease) given(a *app, kill func(), next func() *app, every time.Duration) time.Duration {
	t, ctx := a.t, a.t.Context()
	t.Helper()
	four := 4
	must[protocol.RegisterResponse](t)(a.Register(ctx, protocol.RegisterRequest{
		WorkerID: "w", TaskQueue: "default", WorkflowTypes: []string{"wf"}, AnyActivity: true, SDKVersion: l.sdk,
		WorkflowSlots: &four, ActivitySlots: &four,
	}))
	beat := func(a *app) {
		_, err := a.WorkerHeartbeat(ctx, protocol.WorkerHeartbeat{WorkerID: "w", Slots: json.RawMessage(l.slots)})
		if err != nil {
			t.Error(err)
		}
	}
	beat(a)
	a.start("before") // another lease, so that the app registers itself as one whose workers have leases
	a.taken(a.decide(a.poll("w", protocol.KindWorkflow, 30), done()))
	poll := func(ctx context.Context, a *app, worker, id string) []protocol.Task {
		wait := int64(50)
		p, err := a.Poll(ctx, protocol.PollRequest{
			WorkerID: worker, Kinds: []protocol.TaskKind{l.kind}, PollID: id, Timeout: &wait,
		})
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		return p.Tasks
	}
	if l.rested {
		b := next()
		resting := make(chan []protocol.Task, 1)
		go func() { resting <- poll(ctx, b, "w", "p-rest") }()
		for range 2 {
			time.Sleep(every)
			beat(b)
		}
		if got := <-resting; len(got) > 0 {
			t.Fatalf("while the client does not poll it gets %+v", got)
		}
	}
	time.Sleep(every / 3)
	a.start("one")
	if l.kind == protocol.KindActivity {
		a.taken(a.decide(a.poll("w", protocol.KindWorkflow, 30), greet()))
	}
	had := poll(ctx, a, "w", "p-0")
	if len(had) != 1 {
		t.Fatalf("the poll got %+v", had)
	}
	since := time.Now()
	if !l.lives {
		kill()
	}
	time.Sleep(every / 3)
	b := next()
	if l.arrived {
		if h := must[protocol.HeartbeatResponse](t)(b.HeartbeatTask(ctx, protocol.HeartbeatRequest{
			Kind: l.kind, TaskID: had[0].Activity.TaskID, AttemptID: had[0].Activity.AttemptID, Owner: "w", Beat: true,
		})); !h.Renewed {
			t.Fatalf("the attempt's heartbeat: %+v", h)
		}
	}
	ctx, end := context.WithCancel(ctx)
	got := make(chan time.Duration, 1)
	go func() {
		defer close(got)
		worker := "w"
		if l.mute {
			worker = "v" // any live worker receives the released task
			b.register(worker)
		}
		for i := 1; ctx.Err() == nil; i++ {
			if second := poll(ctx, b, worker, fmt.Sprint("p-", i)); len(second) > 0 {
				got <- time.Since(since)
				return
			}
		}
	}()
	defer func() {
		end()
		<-got
	}()
	for range 8 {
		select {
		case d := <-got:
			return d
		case <-time.After(every):
			beat(b)
		}
	}
	return 0
}

// An app dies after it leased a task to an HTTP client and before it sent the response. The client, which gives up its
// poll a second later, does not know the task, and its heartbeats list its tasks without it. An app that was alone
// releases the task within 40 s, one of several apps within 80 s, at default settings with a lease of 300 s. The task
// is not released if there is any sign that the client may have received it.
func TestUndeliveredMessagesOfADeadAppAreDelivered(t *testing.T) {
	const flow, step = protocol.KindWorkflow, protocol.KindActivity
	for name, c := range map[string]struct {
		lostLease
		goes bool
	}{
		"an activity":                          {lostLease{kind: step, sdk: python, slots: allFree}, true},
		"an activity of Rust":                  {lostLease{kind: step, sdk: rust, slots: allFree}, true},
		"an activity, after a rest":            {lostLease{kind: step, sdk: python, slots: allFree, rested: true}, true},
		"a workflow task":                      {lostLease{kind: flow, sdk: rust, slots: allFree}, true},
		"a workflow task, a slot for the poll": {lostLease{kind: flow, sdk: python, slots: oneUsed}, true},
		"an activity, one is running":          {lostLease{kind: step, sdk: python, slots: oneUsed}, false},
		"a workflow task, one is running":      {lostLease{kind: flow, sdk: rust, slots: oneUsed}, false},
		"an activity, slots not reported":      {lostLease{kind: step, sdk: python}, false},
		"an activity, another process polls":   {lostLease{kind: step, sdk: python, slots: allFree, mute: true}, false},
		"an activity that sent a heartbeat":    {lostLease{kind: step, sdk: python, slots: allFree, arrived: true}, false},
		"an activity, the app lives":           {lostLease{kind: step, sdk: python, slots: allFree, lives: true}, false},
	} {
		for shared, within := range map[bool]time.Duration{false: 40 * time.Second, true: 80 * time.Second} {
			if !shared && (c.lives || c.rested) {
				continue // only one app
			}
			inBubble(t, fmt.Sprintf("%s, shared %t", name, shared), func(o *harness) {
				a, kill := o.app("a", shared)
				next := func() *app { b, _ := o.app("b", shared); return b }
				if shared { // the client continues at an app that was already running
					b, _ := o.app("b", shared)
					next = func() *app { return b }
				}
				switch d := c.given(a, kill, next, 15*time.Second); {
				case c.goes && (d == 0 || d > within):
					o.t.Errorf("given after %s", d)
				case !c.goes && d != 0:
					o.t.Errorf("delivered again after %s", d)
				}
			})
		}
	}
	t.Run("on PostgreSQL", func(t *testing.T) { // with a fiftieth of the standard times
		for name, c := range map[string]struct {
			lostLease
			goes bool
		}{
			"free": {lostLease{kind: step, sdk: python, slots: allFree}, true},
			"used": {lostLease{kind: step, sdk: python, slots: oneUsed}, false},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				database := apptest.Postgres(t)
				quick := broker.Options{
					Alive: 1200 * time.Millisecond, StoreAlive: 1200 * time.Millisecond, Heartbeat: 300 * time.Millisecond,
				}
				_, a, kill := onPostgresWith(t, database, "a", quick)
				_, b, _ := onPostgresWith(t, database, "b", quick)
				if d := c.given(a, kill, func() *app { return b }, quick.Heartbeat); c.goes != (d != 0) {
					t.Errorf("given after %s", d)
				}
			})
		}
	})
}

// Long after an app last ended, the check for lost deliveries costs no read per heartbeat of a client, with one client
// or fifty.
func TestClientHeartbeatReadsNothingIfNoAppDied(t *testing.T) {
	for _, clients := range []int{1, 50} {
		inBubble(t, fmt.Sprint(clients), func(o *harness) {
			a, _ := o.app("a", false)
			ctx, end := context.WithCancel(o.t.Context())
			var polls sync.WaitGroup
			beat := func() (reads bool) {
				hook := func() { reads = true }
				o.reading.Store(&hook)
				defer o.reading.Store(nil)
				for i := range clients {
					if _, err := a.WorkerHeartbeat(ctx, protocol.WorkerHeartbeat{
						WorkerID: fmt.Sprint("w", i), Slots: json.RawMessage(`{"activity_available":100}`),
					}); err != nil {
						o.t.Fatal(err)
					}
				}
				return reads
			}
			for i := range clients {
				a.register(fmt.Sprint("w", i))
				polls.Go(func() {
					for wait := int64(60); ctx.Err() == nil; {
						_, err := a.Poll(ctx, protocol.PollRequest{
							WorkerID: fmt.Sprint("w", i), Kinds: []protocol.TaskKind{protocol.KindActivity}, Timeout: &wait,
						})
						if err != nil && ctx.Err() == nil {
							o.t.Error(err)
						}
					}
				})
			}
			o.t.Cleanup(polls.Wait)
			o.t.Cleanup(end)
			beat()
			time.Sleep(20 * time.Second)
			if !beat() {
				o.t.Error("soon after the start nothing is looked for")
			}
			for range 20 {
				time.Sleep(15 * time.Second)
				beat()
			}
			time.Sleep(17 * time.Second)
			if beat() {
				o.t.Error("the app still looks for it")
			}
		})
	}
}
