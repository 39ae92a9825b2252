// Package quota holds the usage of namespaces in the memory of one app: the totals of all apps at the last exchange,
// plus the app's own commits since. It does not access the database.
package quota

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// maxDebt limits, in seconds of the rate, how far starts of other apps may reduce the starts that this app admits.
const maxDebt = 10

// Ledger counts the usage of namespaces. It is safe for concurrent use, and no method blocks.
type Ledger struct {
	mu       sync.Mutex // guards the fields below
	defaults engine.QuotaLimits
	spaces   map[string]*space
	refused  map[Refusal]int64
	recent   [2]active // namespaces that committed last, newest first
	batch    int64     // number of the last batch that this process committed

	changed chan struct{}
}

// Refusal is the label set by which refusals are counted.
type Refusal struct {
	Namespace string
	Quota     protocol.Quota
	What      string // start, signal, update, schedule, import, child, firing
}

// space is the usage of one namespace.
type space struct {
	known  bool // the namespace's row was read
	row    Row
	taken  engine.Usage // usage that the exchange in progress stores
	fresh  engine.Usage // usage of commits since the last exchange began
	stored engine.Usage // sum of all exchanges of this process
	asked  bool         // the next exchange reads the row even without commits
	first  bool         // the namespace was in an exchange of this process
	doubt  bool         // some commits may be missing in the counts
	tokens float64      // starts that the rate limit admits
	at     time.Time    // time of the last change of the tokens
	second [2]int64     // starts in the second of at and in the second before

	room    float64 // bytes of large payloads admitted without delay
	pacedAt time.Time
}

// Row is the stored usage of a namespace.
type Row struct {
	Usage     engine.Usage
	CountedAt time.Time // time of the last recount; zero: never
	Own       protocol.QuotaValues
}

// New returns a ledger without limits.
func New() *Ledger {
	return &Ledger{
		defaults: engine.NoQuotas, spaces: map[string]*space{}, refused: map[Refusal]int64{},
		changed: make(chan struct{}, 1),
	}
}

// Limit sets the limits of namespaces that override none.
func (l *Ledger) Limit(defaults engine.QuotaLimits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.defaults = defaults
}

// Changed returns a channel that receives a value when an exchange is due.
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

// refill refills the rate limit up to now.
func (l *Ledger) refill(s *space, now time.Time) {
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

// Add counts the usage of a commit.
func (l *Ledger) Add(namespace string, u engine.Usage) {
	if u == (engine.Usage{}) {
		return
	}
	l.mu.Lock()
	s, now := l.space(namespace), time.Now()
	s.fresh = s.fresh.Plus(u)
	l.worked(namespace, now)
	if u.Starts > 0 {
		l.refill(s, now)
		s.tokens -= float64(u.Starts)
		s.second[0] += u.Starts
	}
	l.mu.Unlock()
	l.wake()
}

// Committed notes the number of a batch that this process committed, after its usage was added.
func (l *Ledger) Committed(batch int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batch = batch
}

// Standing returns the usage of a namespace with its limits, including usage that is about to be committed.
func (l *Ledger) Standing(namespace string, more engine.Usage) engine.QuotaStanding {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.space(namespace)
	l.refill(s, time.Now())
	return engine.QuotaStanding{
		Limits: l.limits(s), Usage: s.row.Usage.Plus(s.taken).Plus(s.fresh).Plus(more),
		Rate: max(s.second[0], s.second[1]) + more.Starts, Left: max(0, int64(s.tokens)-more.Starts),
	}
}

// CountRefusal counts a refusal or a held child. The next exchange reads the row again, since other apps may have freed
// usage.
func (l *Ledger) CountRefusal(r Refusal) {
	l.mu.Lock()
	l.refused[r]++
	l.space(r.Namespace).asked = true
	l.mu.Unlock()
	l.wake()
}

// RequestExchange includes a namespace in the next exchange even without commits.
func (l *Ledger) RequestExchange(namespace string) {
	l.mu.Lock()
	l.space(namespace).asked = true
	l.mu.Unlock()
	l.wake()
}

// TakeUsage begins an exchange. It returns the usage of this app's commits since the last exchange by namespace, and
// zero usage for namespaces with refusals.
func (l *Ledger) TakeUsage() map[string]engine.Usage {
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

// Settle ends the exchange of a namespace with its row, which includes the taken usage. Starts of other apps since the
// last exchange reduce the starts that this app admits.
func (l *Ledger) Settle(namespace string, row Row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.space(namespace)
	l.refill(s, time.Now())
	if others := row.Usage.Starts - s.row.Usage.Starts - s.taken.Starts; s.known && others > 0 {
		s.tokens = max(s.tokens-float64(others), -maxDebt*float64(l.limits(s).StartsPerSecond))
		s.second[0] += others
	}
	l.setOwn(s, row.Own)
	s.stored = s.stored.Plus(s.taken)
	s.row, s.known, s.taken = row, true, engine.Usage{}
}

// SetOverrides sets the limits that a namespace overrides, after they were stored. They apply at once.
func (l *Ledger) SetOverrides(namespace string, own protocol.QuotaValues) {
	l.mu.Lock()
	s := l.space(namespace)
	l.refill(s, time.Now())
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

// Return ends an exchange that failed: its usage is sent again with the next one.
func (l *Ledger) Return(namespaces map[string]engine.Usage) {
	l.mu.Lock()
	for name := range namespaces {
		s := l.space(name)
		s.fresh, s.taken, s.asked = s.fresh.Plus(s.taken), engine.Usage{}, true
	}
	l.mu.Unlock()
	l.wake()
}

// MarkUncertain makes all namespaces be recounted, because the outcome of a commit is unknown.
func (l *Ledger) MarkUncertain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.spaces {
		s.doubt = true
	}
}

// Remove removes a deleted namespace.
func (l *Ledger) Remove(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.spaces, namespace)
	maps.DeleteFunc(l.refused, func(r Refusal, _ int64) bool { return r.Namespace == namespace })
}

// These are the maximum ages of a recount: when an app first uses a namespace, and later.
const (
	firstAge = time.Hour
	dailyAge = 24 * time.Hour
	heldAge  = 10 * time.Minute // while children wait for a quota
)

// Uncounted reports whether a recount of a namespace is due, and marks it as begun.
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

// Position is the progress of this process in counting its commits.
type Position struct {
	Batch   int64        // number of the last batch that was counted
	Pending engine.Usage // usage of a namespace that is not stored yet
	Stored  engine.Usage // usage of the namespace that this process has stored since its start
	Storing bool         // an exchange is storing some of the pending usage
}

// Position returns the position of a namespace.
func (l *Ledger) Position(namespace string) Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := Position{Batch: l.batch}
	if s := l.spaces[namespace]; s != nil {
		p.Pending, p.Stored, p.Storing = s.taken.Plus(s.fresh), s.stored, s.taken != engine.Usage{}
	}
	return p
}

// Rate returns the starts of a namespace in the last second.
func (l *Ledger) Rate(namespace string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.spaces[namespace]
	if s == nil || s.at.IsZero() {
		return 0
	}
	l.refill(s, time.Now())
	return max(s.second[0], s.second[1])
}

// Default returns the limits of namespaces that override none.
func (l *Ledger) Default() engine.QuotaLimits {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.defaults
}

// Namespaces returns the names of the known namespaces, sorted.
func (l *Ledger) Namespaces() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.spaces))
}

// Refusals returns the refusals since the start of the process.
func (l *Ledger) Refusals() map[Refusal]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.refused)
}
