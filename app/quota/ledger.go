// Package quota counts what namespaces use, as one app knows it: what all apps had stored at the last exchange, and
// what this app committed since. It is memory alone and reads no database.
package quota

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// maxDebt is for how many seconds starts of other apps may take from this one's rate.
const maxDebt = 10

// Ledger counts the usage of namespaces. All methods may be called from any goroutine; none of them blocks.
type Ledger struct {
	mu       sync.Mutex // guards what follows
	defaults engine.QuotaLimits
	spaces   map[string]*space
	refused  map[Refusal]int64
	recent   [2]active // namespaces that committed last, newest first

	changed chan struct{}
}

// Refusal is what refusals are counted by.
type Refusal struct {
	Namespace string
	Quota     protocol.Quota
	What      string // start, signal, update, schedule, import, child, firing
}

// space is one namespace.
type space struct {
	known  bool // the row was read
	row    Row
	taken  engine.Usage // being exchanged now
	fresh  engine.Usage // committed since
	asked  bool         // somebody was refused: the row is read again though nothing was committed
	first  bool         // an exchange of this process included it
	doubt  bool         // some commits may be missing in the counts
	tokens float64      // starts that may follow
	at     time.Time    // of tokens
	second [2]int64     // starts in the second at, and in the one before it

	room    float64 // bytes of large payloads that need not wait
	pacedAt time.Time
}

// Row is what is stored of a namespace.
type Row struct {
	Usage     engine.Usage
	CountedAt time.Time // when its runs were counted; zero: never
	Own       protocol.QuotaValues
}

// New makes a ledger that limits nothing.
func New() *Ledger {
	return &Ledger{
		defaults: engine.NoQuotas, spaces: map[string]*space{}, refused: map[Refusal]int64{},
		changed: make(chan struct{}, 1),
	}
}

// Limit sets the quotas of namespaces that have none of their own.
func (l *Ledger) Limit(defaults engine.QuotaLimits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.defaults = defaults
}

// Changed receives a value when there is something to exchange.
func (l *Ledger) Changed() <-chan struct{} { return l.changed }

func (l *Ledger) wake() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l *Ledger) space(name string) *space {
	s := l.spaces[name]
	if s == nil {
		s = &space{}
		l.spaces[name] = s
	}
	return s
}

func (l *Ledger) limits(s *space) engine.QuotaLimits { return l.defaults.With(s.row.Own) }

// pass moves the rate to now.
func (l *Ledger) pass(s *space, now time.Time) {
	limit := float64(l.limits(s).StartsPerSecond)
	if s.at.IsZero() {
		s.tokens, s.at = limit, now
		return
	}
	s.tokens = min(limit, s.tokens+max(0, now.Sub(s.at).Seconds())*limit)
	if n := now.Unix() - s.at.Unix(); n == 1 {
		s.second = [2]int64{0, s.second[0]}
	} else if n > 1 {
		s.second = [2]int64{}
	}
	s.at = now
}

// Add counts what was committed.
func (l *Ledger) Add(namespace string, u engine.Usage) {
	if u == (engine.Usage{}) {
		return
	}
	l.mu.Lock()
	s, now := l.space(namespace), time.Now()
	s.fresh = s.fresh.Plus(u)
	l.worked(namespace, now)
	if u.Starts > 0 {
		l.pass(s, now)
		s.tokens -= float64(u.Starts)
		s.second[0] += u.Starts
	}
	l.mu.Unlock()
	l.wake()
}

// Standing is a namespace's usage beside its quotas, with what is about to be committed.
func (l *Ledger) Standing(namespace string, more engine.Usage) engine.QuotaStanding {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.space(namespace)
	l.pass(s, time.Now())
	return engine.QuotaStanding{
		Limits: l.limits(s), Usage: s.row.Usage.Plus(s.taken).Plus(s.fresh).Plus(more),
		Rate: max(s.second[0], s.second[1]) + more.Starts, Left: max(0, int64(s.tokens)-more.Starts),
	}
}

// Refused counts what a quota refused or held back. The row is read again, since other apps may have made room.
func (l *Ledger) Refused(r Refusal) {
	l.mu.Lock()
	l.refused[r]++
	l.space(r.Namespace).asked = true
	l.mu.Unlock()
	l.wake()
}

// Ask includes a namespace in the next exchange, though nothing was committed in it.
func (l *Ledger) Ask(namespace string) {
	l.mu.Lock()
	l.space(namespace).asked = true
	l.mu.Unlock()
	l.wake()
}

// Take begins an exchange: what was committed here since the last one, by namespace. Those in which somebody was
// refused are included, with nothing.
func (l *Ledger) Take() map[string]engine.Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]engine.Usage{}
	for name, s := range l.spaces {
		if s.fresh == (engine.Usage{}) && !s.asked {
			continue
		}
		out[name] = s.fresh
		s.taken, s.fresh, s.asked = s.fresh, engine.Usage{}, false
	}
	return out
}

// Settle ends the exchange of a namespace with its row, in which what was taken is included. Starts of other apps
// reduce what this app may start.
func (l *Ledger) Settle(namespace string, row Row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.space(namespace)
	l.pass(s, time.Now())
	if others := row.Usage.Starts - s.row.Usage.Starts - s.taken.Starts; s.known && others > 0 {
		s.tokens = max(s.tokens-float64(others), -maxDebt*float64(l.limits(s).StartsPerSecond))
		s.second[0] += others
	}
	l.setOwn(s, row.Own)
	s.row, s.known, s.taken = row, true, engine.Usage{}
}

// Own sets the quotas that a namespace has of its own, as they were just stored. They apply at once.
func (l *Ledger) Own(namespace string, own protocol.QuotaValues) {
	l.mu.Lock()
	s := l.space(namespace)
	l.pass(s, time.Now())
	l.setOwn(s, own)
	s.asked = true
	l.mu.Unlock()
	l.wake()
}

func (l *Ledger) setOwn(s *space, own protocol.QuotaValues) {
	before := l.limits(s).StartsPerSecond
	s.row.Own = own
	switch after := float64(l.limits(s).StartsPerSecond); {
	case after > float64(before):
		s.tokens = after
	case after < float64(before):
		s.tokens = min(s.tokens, after)
	}
}

// Correct replaces the row after a count. Nothing was taken for it.
func (l *Ledger) Correct(namespace string, row Row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.space(namespace).row = row
}

// Return ends an exchange that was not stored.
func (l *Ledger) Return(namespaces map[string]engine.Usage) {
	l.mu.Lock()
	for name := range namespaces {
		s := l.space(name)
		s.fresh, s.taken, s.asked = s.fresh.Plus(s.taken), engine.Usage{}, true
	}
	l.mu.Unlock()
	l.wake()
}

// Doubt says that commits may be missing in the counts of this app, so that all namespaces are counted again.
func (l *Ledger) Doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.spaces {
		s.doubt = true
	}
}

// Drop forgets a namespace that was removed.
func (l *Ledger) Drop(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.spaces, namespace)
	maps.DeleteFunc(l.refused, func(r Refusal, _ int64) bool { return r.Namespace == namespace })
}

// How old a count may be: when an app uses a namespace for the first time, and later.
const (
	firstAge = time.Hour
	dailyAge = 24 * time.Hour
	heldAge  = 10 * time.Minute // while children wait for room, which the counts have to be right for
)

// Uncounted says whether the runs of a namespace should be counted. Each count is due once; Uncounted begins it.
func (l *Ledger) Uncounted(namespace string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.space(namespace)
	age := dailyAge
	switch {
	case s.row.Usage.HeldRuns > 0:
		age = heldAge
	case !s.first:
		age = firstAge
	}
	due := s.doubt || s.row.CountedAt.IsZero() || now.Sub(s.row.CountedAt) > age
	s.first, s.doubt = true, false
	return due
}

// Pending is what of a namespace's usage this app has not stored yet.
func (l *Ledger) Pending(namespace string) engine.Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.spaces[namespace]; s != nil {
		return s.taken.Plus(s.fresh)
	}
	return engine.Usage{}
}

// Rate is how many runs of a namespace started in the last second.
func (l *Ledger) Rate(namespace string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.spaces[namespace]
	if s == nil || s.at.IsZero() {
		return 0
	}
	l.pass(s, time.Now())
	return max(s.second[0], s.second[1])
}

// Default is what limits a namespace without quotas of its own.
func (l *Ledger) Default() engine.QuotaLimits {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.defaults
}

// Namespaces are those that are known, by name.
func (l *Ledger) Namespaces() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.spaces))
}

// Refusals are the counts of what was refused since the start of the process.
func (l *Ledger) Refusals() map[Refusal]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.refused)
}
