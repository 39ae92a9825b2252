package broker_test

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// softSession lets a worker acquire a session with a fallback of ten minutes. One activity has ended in it, and another
// activity is ready.
func (o *harness) softSession(a *app, holder string, beats bool, every int64, affinity string) {
	o.t.Helper()
	o.hired(a, holder, func(in *protocol.RegisterRequest) {
		if beats && every > 0 {
			in.HeartbeatSecs = new(every)
		}
	})
	if beats {
		o.beat(a, holder, "", 0)
	}
	options := &protocol.SessionOptions{SessionID: "s", Lease: 6000, Affinity: affinity}
	if affinity == protocol.AffinitySoft {
		options.FallbackAfter = 600
	}
	c := protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "turn", WorkerSession: options}
	a.start("one")
	a.taken(a.decide(a.poll(holder, protocol.KindWorkflow, 0), c, c))
	a.taken(a.result(a.poll(holder, protocol.KindActivity, 0), "x"))
	if beats {
		o.beat(a, holder, "", 0)
	}
}

// takes polls as a worker once a second, for at most the duration most. It returns how long it took until the worker
// received an activity; zero if it received none.
func (o *harness) takes(b *app, worker string, most time.Duration, each func(time.Duration)) time.Duration {
	o.t.Helper()
	for at := time.Second; at <= most; at += time.Second {
		time.Sleep(time.Second)
		if each != nil {
			each(at)
		}
		if b.poll(worker, protocol.KindActivity, 0) != nil {
			return at
		}
	}
	return 0
}

// With two apps at default settings, another worker receives the ready activity of a soft session once both apps have
// missed two heartbeats of the owner. The activity waits for an owner that missed one heartbeat, that sends heartbeats
// to the other app, or that never sends any. Activities of a hard session always wait for the owner.
func TestASoftSessionSkipsAHolderThatMissedTwoHeartbeats(t *testing.T) {
	for name, c := range map[string]struct {
		affinity  string
		quiet     bool          // the owner sends no heartbeats
		every     int64         // heartbeat interval in its registration, in seconds; 0: none
		beats     time.Duration // interval of heartbeats at the other app; 0: none
		from, til time.Duration // when another worker receives the activity; 0: never
	}{
		"silent": {affinity: protocol.AffinitySoft, from: 30 * time.Second, til: 38 * time.Second},
		"silent, its own interval": {
			affinity: protocol.AffinitySoft, every: 10, from: 20 * time.Second, til: 27 * time.Second,
		},
		"misses one":              {affinity: protocol.AffinitySoft, beats: 29 * time.Second},
		"sends its heartbeats on": {affinity: protocol.AffinitySoft, beats: 15 * time.Second},
		"sends no heartbeats":     {affinity: protocol.AffinitySoft, quiet: true},
		"silent, a hard session":  {affinity: protocol.AffinityHard},
	} {
		inBubble(t, name, func(o *harness) {
			a, _ := o.app("a", true)
			b, _ := o.app("b", true)
			o.softSession(a, "holder", !c.quiet, c.every, c.affinity)
			o.hired(b, "other", nil)
			got := o.takes(b, "other", 55*time.Second, func(at time.Duration) {
				if c.beats > 0 && at%c.beats == 0 {
					o.beat(b, "holder", "", 0)
				}
			})
			if got < c.from || got > c.til {
				t.Errorf("another worker received the activity after %s, want %s to %s", got, c.from, c.til)
			}
		})
	}
}

// The owner missed heartbeats while no task was ready in its session, and sends heartbeats again before one is. The
// activity then waits for it.
func TestSoftSessionWaitsForAnOwnerWhoseHeartbeatsResume(t *testing.T) {
	inBubble(t, "", func(o *harness) {
		a, _ := o.app("a", true)
		b, _ := o.app("b", true)
		o.softSession(a, "holder", true, 0, protocol.AffinitySoft)
		o.hired(b, "other", nil)
		if last := a.poll("holder", protocol.KindActivity, 0); last == nil {
			t.Fatal("the holder received nothing")
		} else {
			a.taken(a.result(last, "x"))
		}
		o.beat(a, "holder", "", 0)
		time.Sleep(40 * time.Second)
		if s := o.session("s"); !s.HolderSilent {
			t.Error("the owner has not missed two heartbeats after 40 s")
		}
		o.beat(b, "holder", "", 0)
		time.Sleep(4 * time.Second)
		o.beat(b, "holder", "", 0)
		a.taken(a.decide(a.poll("other", protocol.KindWorkflow, 0), protocol.Command{
			Type: protocol.ScheduleActivity, ActivityType: "turn", SessionID: "s",
		}))
		if got := o.takes(b, "other", 30*time.Second, func(time.Duration) { o.beat(b, "holder", "", 0) }); got != 0 {
			t.Errorf("another worker received the activity after %s", got)
		}
	})
}

// This is the same test on PostgreSQL, where each app has its own connections, with a tenth of the default times.
func TestASoftSessionSkipsASilentHolderOnPostgres(t *testing.T) {
	database := apptest.Postgres(t)
	with := broker.Options{
		Alive: 6 * time.Second, StoreAlive: 3 * time.Second, Heartbeat: time.Second, Quiet: 1500 * time.Millisecond,
	}
	o, a, _ := onPostgresWith(t, database, "a", with)
	_, b, _ := onPostgresWith(t, database, "b", with)
	o.softSession(a, "holder", true, 0, protocol.AffinitySoft)
	o.hired(b, "other", nil)
	if b.poll("other", protocol.KindActivity, 0) != nil {
		t.Fatal("another worker received the activity immediately")
	}
	if b.poll("other", protocol.KindActivity, 60) == nil {
		t.Error("no other worker received the activity, though the fallback is ten minutes")
	}
}
