package engine

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Admit refuses each forbidden combination with its reason, although the store's queries already exclude most of them.
func TestAdmissionRejectsIndependentlyOfTheCaller(t *testing.T) {
	now := time.UnixMicro(1_000_000_000)
	held := Session{
		ID: "s", Status: protocol.SessionActive, Owner: "a", Incarnation: "a1", LeaseUntil: history.At(now.Add(time.Second)),
	}
	with := func(change func(*Session)) Session { s := held; change(&s); return s }
	for name, c := range map[string]struct {
		session Session
		worker  string
		holds   int
		want    protocol.Reason // empty: admitted
	}{
		"its holder":             {held, "a", 2, ""},
		"another":                {held, "b", 0, protocol.ReasonSessionOwned},
		"when the lease ended":   {with(func(s *Session) { s.LeaseUntil = history.At(now) }), "b", 0, ""},
		"at the cap":             {with(func(s *Session) { s.Owner = "" }), "b", 2, protocol.ReasonSessionLimit},
		"below the cap":          {with(func(s *Session) { s.Owner = "" }), "b", 1, ""},
		"while it changes hands": {with(func(s *Session) { s.Moving = "eve" }), "a", 1, protocol.ReasonSessionOwned},
		"while it is full": {with(func(s *Session) {
			s.MaxActivities, s.Active = 1, 1
		}), "a", 1, protocol.ReasonSessionActivityLimit},
		"needs what it lacks": {with(func(s *Session) {
			s.Requirements = []string{"gpu"}
		}), "a", 1, protocol.ReasonSessionRequirements},
		"when it has ended": {with(func(s *Session) {
			s.Status, s.Terminal = protocol.SessionClosed, true
		}), "a", 1, protocol.ReasonSessionClosed},
	} {
		t.Run(name, func(t *testing.T) {
			l := Lessee{
				Worker: &Worker{ID: c.worker, Incarnation: c.worker + "1", MaxSessions: 2}, Sessions: c.holds, Counted: true,
			}
			if v := AdmitSession(&c.session, l, now, false); v.Reason != c.want || v.OK != (c.want == "") {
				t.Errorf("got %+v, want %q", v, c.want)
			}
		})
	}
}
