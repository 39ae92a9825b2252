package link_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

const ceiling = 2 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// linked is a link that runs, until the test ends.
type linked struct {
	*link.Link
	t    *testing.T
	done chan error
	stop context.CancelFunc
}

func start(t *testing.T, o link.Options) *linked {
	t.Helper()
	o.WorkerID, o.Log = "w", apptest.Log(t)
	if o.Incarnation == "" {
		o.Incarnation = "first"
	}
	if o.Release == "" {
		o.Release = "test"
	}
	if o.Register == nil {
		o.Register = func() protocol.RegisterRequest {
			return protocol.RegisterRequest{ActivityTypes: []string{"work"}, TaskQueues: []string{"default"}}
		}
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = heartbeat
	}
	o.BackoffMin, o.BackoffMax = time.Millisecond, 20*time.Millisecond
	l, err := link.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &linked{Link: l, t: t, done: make(chan error, 1), stop: stop}
	go func() { r.done <- l.Run(ctx) }()
	t.Cleanup(func() { _ = r.end() })
	return r
}

func (l *linked) end() error {
	l.stop()
	select {
	case err := <-l.done:
		l.done <- err
		return err
	case <-time.After(ceiling):
		l.t.Error("the link does not end")
		return nil
	}
}

func (l *linked) ready() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), ceiling)
	defer cancel()
	if err := l.Ready(ctx); err != nil {
		l.t.Fatal(err)
	}
}

// remote returns the carriers to an app in another process; their guarantees are the same.
func remote(t *testing.T, test func(t *testing.T, to func(urls ...string) link.Carrier)) {
	t.Run("socket", func(t *testing.T) {
		test(t, func(urls ...string) link.Carrier { return &link.Socket{URLs: urls} })
	})
	t.Run("http", func(t *testing.T) {
		test(t, func(urls ...string) link.Carrier { return &link.HTTP{URLs: urls, Refresh: 50 * time.Millisecond} })
	})
}

// heartbeat is the heartbeat interval of these tests: over HTTP, links notice changes in heartbeats.
const heartbeat = 100 * time.Millisecond

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(ceiling); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", ceiling, what)
		}
	}
}

func TestReconnectRegistersTheSameIncarnation(t *testing.T) {
	remote(t, func(t *testing.T, to func(...string) link.Carrier) {
		db := apptest.SQLite(t)
		a := apptest.Start(t, apptest.Options{Database: db})
		url := a.URL()
		var registered atomic.Int32
		l := start(t, link.Options{Carrier: to(url), Register: func() protocol.RegisterRequest {
			registered.Add(1)
			return protocol.RegisterRequest{ActivityTypes: []string{"work"}}
		}})
		l.ready()
		generation := l.Generation()
		a.Stop()
		eventually(t, "the link notices", func() bool { return !l.Connected() })
		if l.Generation() != generation+1 {
			t.Errorf("generation %d after %d", l.Generation(), generation)
		}
		b := apptest.Start(t, apptest.Options{Database: db, Change: func(o *app.Options) { o.Addr = url[len("http://"):] }})
		l.ready()
		list, err := b.View().Workers(t.Context(), "default", "", "")
		if err != nil {
			t.Fatal(err)
		}
		if registered.Load() < 2 || len(list) != 1 || list[0].WorkerID != "w" {
			t.Errorf("registered %d times, listed: %+v", registered.Load(), list)
		}
		no := int64(0)
		if _, err := l.Poll(t.Context(), protocol.PollRequest{Timeout: &no}); err != nil {
			t.Errorf("a poll over the new connection: %v", err)
		}
	})
}

// The first registration contains the heartbeat interval of the app's settings. With a shorter one the app would
// conclude that the worker has missed heartbeats.
func TestTheFirstRegistrationHasTheHeartbeatIntervalOfTheApp(t *testing.T) {
	a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) {
		o.Settings = func() protocol.WorkerSettings { return protocol.WorkerSettings{BeatSeconds: 40} }
	}})
	l := start(t, link.Options{Carrier: &link.Socket{URLs: []string{a.URL()}}, Heartbeat: -1})
	l.ready()
	w, err := a.Broker().Membership().Known(t.Context(), engine.WorkerKey{Namespace: "default", ID: "w"})
	if err != nil || w.HeartbeatSecs != 40 {
		t.Errorf("registered %+v, %v", w, err)
	}
}

func TestNextURLIsTriedWhenOneFails(t *testing.T) {
	remote(t, func(t *testing.T, to func(...string) link.Carrier) {
		a := apptest.Start(t, apptest.Options{})
		b := apptest.Start(t, apptest.Options{})
		l := start(t, link.Options{Carrier: to("http://127.0.0.1:1", a.URL(), b.URL())})
		l.ready()
		a.Stop()
		eventually(t, "the link goes to the other app", func() bool {
			list, err := b.View().Workers(t.Context(), "default", "", "")
			return err == nil && len(list) == 1
		})
	})
}

// A loop that pauses after a poll waits for the channel of Changed: it polls again when an operator resumes the worker.
func TestAResumedWorkerPollsAtOnce(t *testing.T) {
	remote(t, func(t *testing.T, to func(...string) link.Carrier) {
		a := apptest.Start(t, apptest.Options{})
		l := start(t, link.Options{Carrier: to(a.URL())})
		l.ready()
		operate := func(verb string) {
			if _, err := a.Broker().Fleet().OperateFleet(t.Context(), protocol.FleetRequest{
				FleetTarget: protocol.FleetTarget{WorkerID: "w"}, Verb: verb,
			}); err != nil {
				t.Fatal(err)
			}
		}
		operate(protocol.FleetDrain)
		eventually(t, "the worker is drained", l.Paused)
		changed := l.Changed()
		operate(protocol.FleetResume)
		select {
		case <-changed:
		case <-time.After(ceiling):
			t.Fatal("the channel stays open")
		}
		if !l.Connected() || l.Paused() {
			t.Errorf("connected: %t, paused: %t", l.Connected(), l.Paused())
		}
	})
}

func TestPollsPauseWhileReleasesDiffer(t *testing.T) {
	remote(t, func(t *testing.T, to func(...string) link.Carrier) {
		a := apptest.Start(t, apptest.Options{})
		l := start(t, link.Options{Carrier: to(a.URL()), Release: "another"})
		l.ready()
		answer, err := l.Poll(t.Context(), protocol.PollRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if answer.Status != protocol.PollMismatch || answer.RetryAfter != 10_000 || answer.AppRelease != "test" {
			t.Errorf("got %+v", answer)
		}
		// The release check applies only to polls: a worker of another release can finish its tasks.
		if _, err := l.ReleaseSession(t.Context(), protocol.SessionVerb{
			SessionID: "none",
		}); protocol.ReasonOf(err) != protocol.ReasonSessionNotFound {
			t.Errorf("got %v", err)
		}
	})
}

func TestRejectedTokenIsRetried(t *testing.T) {
	remote(t, func(t *testing.T, to func(...string) link.Carrier) {
		a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) {
			o.NoAuth, o.Token = false, "sjn_bootstrap_secretsecretsecretsecret"
		}})
		carrier := to(a.URL())
		_, err := carrier.Dial(t.Context(), protocol.ChannelAuth{Token: "wrong", WorkerID: "w", Protocol: 1}, nil)
		var refused *link.Refused
		if !errors.As(err, &refused) || refused.Reason != "unauthorized" {
			t.Fatalf("got %v", err)
		}
		var tries atomic.Int32
		l := start(t, link.Options{Carrier: counting{carrier, &tries}, Token: "wrong"})
		before := tries.Load()
		eventually(t, "several tries", func() bool { return tries.Load() > before+3 })
		if l.Connected() {
			t.Error("connected with a wrong token")
		}
		if err := l.end(); err != nil {
			t.Error(err)
		}
	})
}

// counting counts the dials of a carrier.
type counting struct {
	link.Carrier
	dials *atomic.Int32
}

func (c counting) Dial(
	ctx context.Context, hello protocol.ChannelAuth, notices protocol.WorkerNotices,
) (link.Conn, error) {
	c.dials.Add(1)
	return c.Carrier.Dial(ctx, hello, notices)
}

func TestSupersededLinkEnds(t *testing.T) {
	remote(t, func(t *testing.T, to func(...string) link.Carrier) {
		a := apptest.Start(t, apptest.Options{})
		older := start(t, link.Options{Carrier: to(a.URL()), Incarnation: "first"})
		older.ready()
		younger := start(t, link.Options{Carrier: to(a.URL()), Incarnation: "second"})
		younger.ready()
		older.Beat()
		select {
		case err := <-older.done:
			older.done <- err
			if !errors.Is(err, link.ErrSuperseded) {
				t.Errorf("got %v", err)
			}
		case <-time.After(ceiling):
			t.Fatal("the older process goes on")
		}
		if _, err := older.Poll(t.Context(), protocol.PollRequest{}); !errors.Is(err, link.ErrSuperseded) {
			t.Errorf("a later call: got %v", err)
		}
	})
}

// Deregistering a worker ID without an incarnation is not a request of the process itself. If a heartbeat of the
// process arrives meanwhile, its response ends the process; if the process polls later, it registers again. Removal by
// an operator is another verb, which prevents registration.
func TestDeregistrationByAnotherStopsOrReregistersAWorker(t *testing.T) {
	remote(t, func(t *testing.T, to func(...string) link.Carrier) {
		a := apptest.Start(t, apptest.Options{})
		l := start(t, link.Options{Carrier: to(a.URL())})
		l.ready()
		if _, err := a.Broker().Deregister(t.Context(), protocol.DeregisterRequest{WorkerID: "w"}); err != nil {
			t.Fatal(err)
		}
		ended := func(err error) bool {
			if err == nil {
				return false
			}
			select {
			case why := <-l.done:
				l.done <- why
				if !errors.Is(why, link.ErrSuperseded) {
					t.Errorf("it ended with %v, and the call with %v", why, err)
				}
			case <-time.After(ceiling):
				t.Fatalf("got %v, and the process goes on", err)
			}
			return true
		}
		no := int64(0)
		_, err := l.Poll(t.Context(), protocol.PollRequest{Timeout: &no})
		if ended(err) || ended(l.Deregister(t.Context())) {
			return
		}
		if _, err := l.Poll(t.Context(), protocol.PollRequest{Timeout: &no}); !errors.Is(err, link.ErrLeft) {
			t.Errorf("after leaving: got %v", err)
		}
		list, err := a.View().Workers(t.Context(), "default", "", "")
		if err != nil || len(list) != 0 {
			t.Errorf("left, and listed: %+v, %v", list, err)
		}
	})
}

func TestChangedSettingsReachTheWorkerWithoutARestart(t *testing.T) {
	var level atomic.Value
	level.Store("info")
	a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) {
		o.Settings = func() protocol.WorkerSettings { return protocol.WorkerSettings{LogLevel: level.Load().(string)} }
	}})
	for name, carrier := range map[string]link.Carrier{
		"socket": &link.Socket{URLs: []string{a.URL()}}, "local": link.Local{Join: a.Connections().Join},
		"http": &link.HTTP{URLs: []string{a.URL()}, Refresh: 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan string, 10)
			l := start(t, link.Options{Carrier: carrier, Incarnation: name, OnSettings: func(s protocol.WorkerSettings) {
				got <- s.LogLevel
			}})
			l.ready()
			<-got
			level.Store("debug " + name)
			a.Connections().SettingsChanged("")
			select {
			case s := <-got:
				if s != "debug "+name || l.Settings().LogLevel != s {
					t.Errorf("got %q, kept %q", s, l.Settings().LogLevel)
				}
			case <-time.After(ceiling):
				t.Error("the worker was not told")
			}
			_ = l.end()
		})
	}
}

func TestAWorkerLeavesAnAppOfAnotherReleaseForOneOfItsOwn(t *testing.T) {
	remote(t, func(t *testing.T, to func(...string) link.Carrier) {
		other := apptest.Start(t, apptest.Options{Change: func(o *app.Options) { o.Release = "other" }})
		own := apptest.Start(t, apptest.Options{})
		l := start(t, link.Options{Carrier: to(other.URL(), own.URL())})
		eventually(t, "the link goes to the app of its release", func() bool {
			list, err := own.View().Workers(t.Context(), "default", "", "")
			return err == nil && len(list) == 1 && l.Gated() == ""
		})
	})
}

func TestWorkerOfAnotherReleaseStaysAndRetries(t *testing.T) {
	remote(t, func(t *testing.T, to func(...string) link.Carrier) {
		change := func(o *app.Options) { o.Release = "other" }
		a, b := apptest.Start(t, apptest.Options{Change: change}), apptest.Start(t, apptest.Options{Change: change})
		l := start(t, link.Options{Carrier: to(a.URL(), b.URL()), MismatchPause: 20 * time.Millisecond})
		eventually(t, "the link has asked both and goes round", func() bool { return l.Generation() >= 5 })
		for _, app := range []*apptest.App{a, b} {
			if list, err := app.View().Workers(t.Context(), "default", "", ""); err != nil || len(list) != 1 ||
				list[0].Gate == "" {
				t.Errorf("got %+v %v", list, err)
			}
		}
	})
}
