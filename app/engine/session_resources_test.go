package engine

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func resources(t *testing.T, text string) protocol.Resources {
	t.Helper()
	r, err := protocol.ParseResources(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func amounts(r protocol.Resources) (a Amounts) {
	a.Add(r, 1)
	return a
}

func TestAdmissionComparesResources(t *testing.T) {
	for name, c := range map[string]struct {
		has, defaults, needs, used string
		definition                 string
		reason                     protocol.Reason
	}{
		"fits exactly": {has: "gpu_mem=80GiB", needs: "gpu_mem=24GiB", used: "gpu_mem=56GiB"},
		"lacks a thousandth": {
			has: "licence=3", needs: "licence=1", used: "licence=2001m", reason: protocol.ReasonSessionLimit,
		},
		"never": {has: "licence=3", needs: "licence=4", reason: protocol.ReasonSessionRequirements},
		"never, although another lacks first": {
			has: "a=3,b=1", needs: "a=1,b=2", used: "a=3", reason: protocol.ReasonSessionRequirements,
		},
		"declares nothing":       {needs: "licence=1", reason: protocol.ReasonSessionRequirements},
		"memory without a limit": {needs: "memory=64GiB"},
		"memory with a limit":    {has: "memory=32GiB", needs: "memory=64GiB", reason: protocol.ReasonSessionRequirements},
		"one of two":             {has: "a=3,b=3", needs: "a=1,b=1", used: "b=3", reason: protocol.ReasonSessionLimit},
		"default of its definition": {
			has: "a=3", defaults: "a=2", definition: "d", used: "a=2", reason: protocol.ReasonSessionLimit,
		},
		"options before defaults": {has: "a=3", defaults: "a=2", definition: "d", needs: "a=1", used: "a=2"},
		"another definition":      {has: "a=3", defaults: "a=2", definition: "e", used: "a=2"},
	} {
		w := &Worker{
			ID: "w", Queues: []string{"q"}, MaxSessions: 10, Resources: resources(t, c.has),
			SessionResources: map[string]protocol.Resources{"d": resources(t, c.defaults)},
			Capabilities:     []string{protocol.DefinitionCapability("d"), protocol.DefinitionCapability("e")},
		}
		s := NewSession("ns", "s", nil, history.At(noon))
		s.Resources, s.Definition = resources(t, c.needs), c.definition
		l := Lessee{Worker: w, Counted: true, Used: amounts(resources(t, c.used))}
		if v := AdmitSession(&s, l, noon, false); v.Reason != c.reason {
			t.Errorf("%s: got %q, want %q", name, v.Reason, c.reason)
		}
		key := s.ResourceRequirements()
		if c.definition != "" {
			key = append(key, protocol.DefinitionCapability(c.definition))
		}
		if fits := w.FitsSessionOf(key, l.Used); fits != (c.reason == "") {
			t.Errorf("%s: a claim reads its routing key: %v", name, fits)
		}
	}
}

func TestResourcesUsedAtAWorker(t *testing.T) {
	at := func(d time.Duration) history.Time { return history.At(noon.Add(d)) }
	w := &Worker{ID: "a", Incarnation: "1"}
	licence := resources(t, "licence=1")
	held := Session{
		Status: protocol.SessionActive, Owner: "a", Incarnation: "1", Epoch: 5, LeaseUntil: at(time.Minute), Used: licence,
	}
	change := func(f func(*Session)) Session {
		s := held
		f(&s)
		return s
	}
	for name, c := range map[string]struct {
		s    Session
		want bool
	}{
		"its owner":             {held, true},
		"by an earlier process": {change(func(s *Session) { s.Incarnation = "0" }), true},
		"of another worker":     {change(func(s *Session) { s.Owner = "b" }), false},
		"suspended": {change(func(s *Session) {
			s.Status, s.LeaseUntil = protocol.SessionExpired, at(-4*time.Minute)
		}), true},
		"suspended by an earlier process": {change(func(s *Session) {
			s.Status, s.LeaseUntil, s.Incarnation = protocol.SessionExpired, at(-4*time.Minute), "0"
		}), false},
		"suspended for too long": {change(func(s *Session) {
			s.Status, s.LeaseUntil = protocol.SessionExpired, at(-SuspendedTime)
		}), false},
		"prepared": {change(func(s *Session) {
			s.Owner = "b"
			s.Prepare = &Preparation{Worker: "a", Incarnation: "1", Epoch: 5, Until: at(time.Second), Resources: licence}
		}), true},
		"prepared until its lease ended": {change(func(s *Session) {
			s.Owner = "b"
			s.Prepare = &Preparation{Worker: "a", Incarnation: "1", Epoch: 5, Until: at(0), Resources: licence}
		}), false},
	} {
		if got := len(c.s.UsedBy(w, noon)) > 0; got != c.want {
			t.Errorf("%s: counts %v, want %v", name, got, c.want)
		}
	}
}

// Without declared resources the numbers of sessions decide, otherwise the resource of which the owner uses most.
func TestBalanceComparesShares(t *testing.T) {
	for name, c := range map[string]struct {
		owner, to        string // resources in use
		session          string
		ownerHas, toHave int
		want             bool
	}{
		"numbers":                {ownerHas: 3, toHave: 1, want: true},
		"numbers are even":       {ownerHas: 2, toHave: 1},
		"shares":                 {owner: "gpu_mem=60GiB", to: "gpu_mem=20GiB", session: "gpu_mem=20GiB", want: true},
		"a move only swaps them": {owner: "gpu_mem=60GiB", to: "gpu_mem=50GiB", session: "gpu_mem=10GiB"},
		"uses none of it":        {owner: "gpu_mem=60GiB", to: "gpu_mem=20GiB", ownerHas: 9},
	} {
		has := resources(t, "gpu_mem=80GiB")
		s := Session{Used: resources(t, c.session), Resources: resources(t, c.session)}
		owner := Lessee{Worker: &Worker{Resources: has}, Sessions: c.ownerHas, Used: amounts(resources(t, c.owner))}
		to := Lessee{Worker: &Worker{Resources: has}, Sessions: c.toHave, Used: amounts(resources(t, c.to))}
		if got := s.Evens(&owner, &to); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// A successor without enough free resources prepares no session. Prepared state uses them.
func TestAPreparationReservesResources(t *testing.T) {
	capability := protocol.PrepareCapability("model")
	worker := func(id string) *Worker {
		return &Worker{
			ID: id, Incarnation: id, Queues: []string{"q"}, MaxSessions: 10, SessionLease: int64(30e6),
			Resources:    resources(t, "gpu_mem=80GiB"),
			Capabilities: []string{CapSessions, capability, protocol.DefinitionCapability("model")},
		}
	}
	a, b := worker("a"), worker("b")
	s := NewSession("ns", "s", nil, history.At(noon))
	s.Definition, s.Resources = "model", resources(t, "gpu_mem=24GiB")
	s.Owner, s.Incarnation, s.Epoch, s.SetUpEpoch = "a", "a", 5, 5
	s.LeaseUntil, s.EverAcquired, s.Used = history.At(noon.Add(time.Minute)), true, s.Resources
	for used, want := range map[string]bool{"gpu_mem=56GiB": true, "gpu_mem=57GiB": false} {
		c, err := DecideSession(&s, PrepareSession{
			Owner: a, Successor: Lessee{Worker: b, Counted: true, Used: amounts(resources(t, used))},
		}, noon)
		if prepares := err == nil; prepares != want {
			t.Errorf("with %s in use it prepares the session: %v, %v", used, prepares, err)
		}
		if err == nil && c.Session.UsedBy(b, noon).String() != "gpu_mem=24GiB" {
			t.Errorf("its reserved place uses %s", c.Session.UsedBy(b, noon))
		}
	}
}
