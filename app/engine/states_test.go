package engine

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// arrows returns the arrows of one diagram of docs/states.md, as "from to". An arrow to a group counts as an arrow to
// each of its members.
func arrows(t *testing.T, of string) map[string]bool {
	t.Helper()
	raw, err := os.ReadFile("../../docs/states.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(raw), "\n## "+of+"\n")
	diagram, _, _ := strings.Cut(rest, "\n## ")
	groups, drawn, group := map[string][]string{}, map[string]bool{}, ""
	members := func(name string) []string {
		if all := groups[name]; all != nil {
			return all
		}
		return []string{name}
	}
	for line := range strings.Lines(diagram) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		from, to, arrow := strings.Cut(line, " --> ")
		switch {
		case strings.HasPrefix(line, "state ") && strings.HasSuffix(line, "{"):
			group = words[len(words)-2]
		case line == "}":
			group = ""
		case arrow:
			to, _, _ = strings.Cut(to, ":")
			for _, a := range members(from) {
				for _, b := range members(to) {
					drawn[a+" "+b] = true
				}
			}
		case group != "" && len(words) == 1:
			groups[group] = append(groups[group], line)
		}
	}
	if !found || len(drawn) == 0 {
		t.Fatalf("no diagram of %s", of)
	}
	return drawn
}

const nowhere = "[*]"

// drawnAs returns the name of a session's state in the diagram of docs/states.md.
func drawnAs(s *Session) string {
	switch {
	case s == nil:
		return nowhere
	case s.Status == protocol.SessionActive && s.Moving != "":
		return "draining"
	case s.Status == protocol.SessionActive && s.Owner != "":
		return "held"
	case s.Status == protocol.SessionActive:
		return "free"
	case s.Status == protocol.SessionExpired && s.Terminal:
		return "ended"
	}
	return string(s.Status)
}

// Every change of a session's state in random walks is an arrow of the diagram, and every arrow occurs. The walks have
// a fixed seed.
func TestSessionsFollowTheStateDiagram(t *testing.T) {
	w := randomWalk{t: t, chance: rand.New(rand.NewPCG(1, 2)), drawn: arrows(t, "Session"), gone: map[string]bool{}}
	for range 6000 {
		w.walk()
	}
	for way := range w.drawn {
		if from, to, _ := strings.Cut(way, " "); from != to && !w.gone[way] {
			t.Errorf("the arrow %s to %s never occurs", from, to)
		}
	}
	if t.Failed() {
		t.Logf("seen: %v", slices.Sorted(maps.Keys(w.gone)))
	}
}

// randomWalk applies random inputs to sessions and compares each step with the diagram.
type randomWalk struct {
	t           *testing.T
	chance      *rand.Rand
	drawn, gone map[string]bool
	now         time.Time
	session     *Session
}

func (w *randomWalk) walk() {
	w.now, w.session = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), nil
	options := protocol.SessionOptions{SessionID: "s", TTL: 600}
	if w.chance.IntN(3) == 0 { // sometimes the session has no_reacquire
		options.Reacquire = new(false)
	}
	for range 30 {
		worker := []string{"a", "b"}[w.chance.IntN(2)]
		lessee := Lessee{
			Worker: &Worker{ID: worker, Incarnation: worker + "1", Queues: []string{"q"}, MaxSessions: 9}, Counted: true,
		}
		holder := SessionHolder{Worker: worker}
		s := w.session
		var in SessionInput
		switch w.chance.IntN(17) {
		case 0: // a first activity creates the row, without an owner
			if s == nil {
				fresh := NewSession("ns", "s", &options, history.At(w.now))
				w.step(&fresh)
			}
		case 1, 2, 3:
			in = CreateSession{Namespace: "ns", Options: options, Lessee: lessee, EpochWatermark: noWatermark, Outcome: new("")}
		case 4:
			in = RenewSession{SessionHolder: holder}
		case 5:
			in = ReleaseSession{SessionHolder: holder, Why: ReasonShutdown}
		case 6:
			in = ReleaseSession{SessionHolder: holder, Failed: "crash"}
		case 7:
			in = MigrateSession{Operator: "o", For: worker, Force: w.chance.IntN(4) == 0}
		case 8:
			in = CloseSession{SessionHolder: holder}
		case 9:
			in = CloseSession{Operator: "o"}
		case 10:
			in = DueSession{}
		case 11:
			in = DueSession{Stale: worker}
		case 12:
			in = OrphanSession{Worker: worker, Incarnation: worker + "1"}
		case 13:
			in = CleanUp{Before: w.now}
		case 14: // an attempt in the session begins or ends
			if s != nil && s.Held(w.now) {
				s.Active = 1 - s.Active
			}
		case 15:
			w.now = w.now.Add(time.Duration(1+w.chance.IntN(400)) * time.Second)
		case 16: // evict the session as if it were implicit and idle
			if s != nil && s.Held(w.now) {
				idle := *s
				idle.Origin, idle.LastActivity = OriginImplicit, history.At(w.now.Add(-YieldIdle))
				if c, err := DecideSession(&idle, YieldSession{SessionHolder: holder, Held: 9, Limit: 9}, w.now); err == nil {
					c.Session.Origin = s.Origin
					w.step(&c.Session)
				}
			}
		}
		if in == nil {
			continue
		}
		if c, err := DecideSession(s, in, w.now); err == nil && c.Delete {
			w.step(nil)
		} else if err == nil {
			w.step(&c.Session)
		}
	}
}

// step checks one step. A step that does not change the state needs no arrow.
func (w *randomWalk) step(next *Session) {
	was, is := drawnAs(w.session), drawnAs(next)
	ways := []string{was + " " + is}
	if s := w.session; s != nil && s.Status == protocol.SessionActive && s.Owner != "" && !s.Held(w.now) {
		ways = append(ways, "expired "+is) // the lease has expired, and no app has recorded that yet
	}
	for _, way := range ways {
		w.gone[way] = true
	}
	if was != is && !slices.ContainsFunc(ways, func(way string) bool { return w.drawn[way] }) {
		w.t.Errorf("%s to %s happens, and is not drawn", was, is)
		w.drawn[ways[0]] = true // report each arrow once
	}
	w.session = next
}

// The routing word of a session's ready tasks prevents workers that may not run them from reading them.
func TestRoutingKeySelectsTheEligibleWorkers(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	held := Session{Status: protocol.SessionActive, Owner: "a", Release: "r", LeaseUntil: history.At(now.Add(time.Minute))}
	free := Session{Status: protocol.SessionActive, Release: "r"}
	with := func(s Session, change func(*Session)) Session { change(&s); return s }
	for what, c := range map[string]struct {
		s    Session
		want string
	}{
		"held":                              {held, "=a"},
		"held, room for one":                {with(held, func(s *Session) { s.MaxActivities, s.Active = 2, 1 }), "=a"},
		"held and full":                     {with(held, func(s *Session) { s.MaxActivities, s.Active = 2, 2 }), "-"},
		"held, its holder's number reached": {with(held, func(s *Session) { s.DefaultMaxActivities, s.Active = 2, 2 }), "-"},
		"held, its own number before that": {with(held, func(s *Session) {
			s.MaxActivities, s.DefaultMaxActivities, s.Active = 3, 2, 2
		}), "=a"},
		"held without a cap": {with(held, func(s *Session) { s.Active = 9 }), "=a"},
		"changing hands":     {with(held, func(s *Session) { s.Moving = "o" }), "-"},
		"its lease is over":  {with(held, func(s *Session) { s.LeaseUntil = history.At(now) }), "+"},
		"lost":               {with(held, func(s *Session) { s.Status = protocol.SessionExpired }), "+"},
		"free":               {free, "+"},
		"free, of a release": {with(free, func(s *Session) { s.ReleasePolicy = PolicyFinish }), "+r"},
		"kept for another": {with(free, func(s *Session) {
			s.For, s.ForUntil = "b", history.At(now.Add(time.Second))
		}), "=b"},
		"kept long enough": {with(free, func(s *Session) { s.For, s.ForUntil = "b", history.At(now) }), "+"},
		"drained to fail":  {with(free, func(s *Session) { s.Drained = true }), "-"},
	} {
		if got := c.s.StoredRoutingWord(c.s.RoutingWord(now, "")); got != c.want {
			t.Errorf("%s: got %q, want %q", what, got, c.want)
		}
	}
}

// The statuses in the glossary equal those in the code.
func TestTheGlossaryListsTheStatuses(t *testing.T) {
	raw, err := os.ReadFile("../../docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	for of, want := range map[string][]string{
		"run": texts(protocol.RunRunning, protocol.RunCompleted, protocol.RunFailed, protocol.RunCancelled,
			protocol.RunTerminated, protocol.RunTimedOut,
			protocol.RunContinued),
		"session": texts(
			protocol.SessionActive, protocol.SessionClosed, protocol.SessionExpired, protocol.SessionFailed,
			protocol.SessionOrphaned,
		),
		"worker": texts(protocol.WorkerActive, protocol.WorkerDraining, protocol.WorkerMismatched, protocol.WorkerStale),
		"task":   texts(Ready, Delayed, LeasedState, Quarantined),
	} {
		_, row, _ := strings.Cut(string(raw), "\n| "+of+" | `")
		row, _, _ = strings.Cut(row, " |\n")
		var listed []string
		for i, word := range strings.Split("`"+row, "`") {
			if i%2 == 1 {
				listed = append(listed, word)
			}
		}
		if !slices.Equal(listed, want) {
			t.Errorf("%s: the glossary lists %v, the code %v", of, listed, want)
		}
	}
}

func texts[T ~string](list ...T) []string {
	var all []string
	for _, s := range list {
		all = append(all, string(s))
	}
	return all
}

// noWatermark returns the epoch watermark of a namespace in which clean-up removed nothing.
func noWatermark(string) int64 { return 0 }
