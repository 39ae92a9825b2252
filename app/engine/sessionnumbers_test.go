package engine

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func reasonIn(err error) protocol.Reason {
	var e *protocol.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// New limits in session options apply from the next acquisition on. A renewal by the owner changes them immediately,
// except the TTL.
func TestNumbersHoldFromTheNextClaim(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a, b := Lessee{Worker: &Worker{ID: "a", Queues: []string{"q"}, MaxSessions: 2}, Counted: true},
		Lessee{Worker: &Worker{ID: "b", Queues: []string{"q"}, MaxSessions: 2}, Counted: true}
	first := protocol.SessionOptions{SessionID: "s", Lease: 60, TTL: 600, MaxActivities: 1}
	other := protocol.SessionOptions{SessionID: "s", Lease: 90, TTL: protocol.NoTTL, MaxActivities: 3, Idle: 5}
	s := NewSession("default", "s", &first, history.At(now))
	s.acquire(a, 0, now, "")
	s.move(now)

	want := NewSession("default", "s", &other, history.At(now))
	if !s.fits(&other) {
		t.Fatal("other limits are not compatible")
	}
	asked := s
	asked.requestLimits(want.numbers())
	if asked.Lease != s.Lease || asked.TTL != 600 || asked.MaxActivities != 1 {
		t.Errorf("limits changed while the session is held: %+v", asked)
	}
	asked.LeaseUntil = history.At(now)
	asked.acquire(b, 0, now.Add(time.Second), "")
	if asked.Lease != 90_000_000 || asked.TTL != 0 || !asked.TTLUntil.IsZero() || asked.MaxActivities != 3 ||
		asked.Idle != 5_000_000 || asked.Next != nil {
		t.Errorf("the next claim has %+v", asked)
	}

	outcome := ""
	create := func(l Lessee, o protocol.SessionOptions) (SessionChange, error) {
		return DecideSession(&s, CreateSession{
			Namespace: "default", Options: o, Lessee: l, EpochWatermark: noWatermark, Outcome: &outcome,
		}, now.Add(time.Second))
	}
	c, err := create(a, other)
	if n := c.Session; err != nil || outcome != "reused" || n.Lease != 90_000_000 || n.MaxActivities != 3 ||
		n.TTL != 600 || n.Next == nil || n.Next.TTL != 0 {
		t.Errorf("the holder's verb: %v, %s, %+v", err, outcome, n)
	}
	changed := other
	changed.Requirements = []string{"gpu"}
	for _, o := range []protocol.SessionOptions{first, other, changed} {
		if _, err := create(b, o); reasonIn(err) != protocol.ReasonSessionOwned {
			t.Errorf("another worker gets %v", err)
		}
	}
	if _, err := create(a, changed); reasonIn(err) != protocol.ReasonInvalidSession {
		t.Errorf("other requirements: %v", err)
	}
}

// For its owner, an expired session is already closed; other workers can acquire it.
func TestAHolderClosesWhatExpiredUnderIt(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := NewSession("default", "s", &protocol.SessionOptions{SessionID: "s"}, history.At(now))
	s.acquire(Lessee{Worker: &Worker{ID: "a"}}, 0, now, "")
	s.move(now)
	c, err := DecideSession(&s, CloseSession{SessionHolder: SessionHolder{Worker: "a"}}, now.Add(time.Hour/6))
	if err != nil || len(c.Timeline) > 0 || c.Session.Terminal {
		t.Errorf("%v, %+v", err, c)
	}
	if _, err = DecideSession(&s, CloseSession{
		SessionHolder: SessionHolder{Worker: "b"},
	}, now.Add(time.Hour/6)); reasonIn(err) != protocol.ReasonSessionOwner {
		t.Errorf("a stranger's close: %v", err)
	}
}

// Every way to create a session validates the same limits and IDs, and refuses the same values.
func TestOneValidationOfSessionOptions(t *testing.T) {
	for _, c := range []struct{ json, wrong string }{
		{`{"session_id":"s"}`, ""},
		{`{"session_id":"s","lease_seconds":null,"max_concurrent_activities":null,"ttl_seconds":null}`, ""},
		{`{"session_id":"s","lease_seconds":1,"ttl_seconds":1,"max_concurrent_activities":1,"scope":"namespace"}`, ""},
		{`{"session_id":"s","lease_seconds":0}`, "lease_seconds"},
		{`{"session_id":"s","lease_seconds":-1}`, "lease_seconds"},
		{`{"session_id":"s","ttl_seconds":0}`, "ttl_seconds"},
		{`{"session_id":"s","ttl_seconds":-1}`, "ttl_seconds"},
		{`{"session_id":"s","max_concurrent_activities":0}`, "max_concurrent_activities"},
		{`{"session_id":"s","ttl_seconds":315360001}`, "ttl_seconds"},
		{`{"session_id":"s","scope":"galaxy"}`, "scope"},
		{`{"session_id":"  "}`, "session_id"},
	} {
		var o protocol.SessionOptions
		if err := json.Unmarshal([]byte(c.json), &o); err != nil {
			t.Fatal(err)
		}
		err := Validate(&Run{}, []protocol.Command{{Type: protocol.ScheduleActivity, ActivityType: "x", WorkerSession: &o}})
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(errorText(err), c.wrong) {
			t.Errorf("%s: %v, want %q refused", c.json, err, c.wrong)
		}
		raw, _ := json.Marshal(&o)
		var back protocol.SessionOptions
		if err := json.Unmarshal(raw, &back); c.wrong == "" && (err != nil || back.TTL != o.TTL || back.Lease != o.Lease) {
			t.Errorf("%s comes back as %s, %v", c.json, raw, err)
		}
	}
}

func errorText(err error) string {
	var e *protocol.Error
	if errors.As(err, &e) {
		raw, _ := json.Marshal(e)
		return err.Error() + string(raw)
	}
	return err.Error()
}

// The next owner of a session receives the reason why the previous epoch ended, also if the acquisition itself ends
// that epoch because no sweep ran after its lease expired.
func TestAcquisitionReportsWhyThePreviousEpochEnded(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	by := func(id, incarnation string) Lessee {
		return Lessee{Worker: &Worker{ID: id, Incarnation: incarnation, Queues: []string{"q"}, MaxSessions: 2}, Counted: true}
	}
	options := protocol.SessionOptions{SessionID: "s", Lease: 60, MaxActivities: 1}
	idle := func(s *Session) { s.Idle, s.LastActivity = 40_000_000, history.At(now) }
	busy := func(s *Session) { s.Idle, s.LastActivity = 40_000_000, history.At(now.Add(50*time.Second)) }
	for name, c := range map[string]struct {
		next  Lessee
		after time.Duration
		want  string
		in    func(*Session)
	}{
		"its lease was over":        {by("b", "1"), time.Minute, ReasonLeaseLost, nil},
		"it was idle":               {by("b", "1"), time.Minute, ReasonEvictedIdle, idle},
		"its lease ended in use":    {by("b", "1"), 10 * time.Minute, ReasonLeaseLost, busy},
		"its process is another":    {by("a", "2"), time.Second, ReasonRestarted, nil},
		"it left its tasks waiting": {by("b", "1"), time.Second, ReasonFallback, nil},
	} {
		s := NewSession("default", "s", &options, history.At(now))
		s.acquire(by("a", "1"), 0, now, "")
		s.move(now)
		if s.Before != "" {
			t.Errorf("%s: the first holding follows one that ended for %q", name, s.Before)
		}
		if c.in != nil {
			c.in(&s)
		}
		if s.acquire(c.next, 0, now.Add(c.after), ""); s.Before != c.want || s.Reason != "" {
			t.Errorf("%s: it ended for %q, and reason %q, want %q", name, s.Before, s.Reason, c.want)
		}
	}
}
