// Package budget limits the bytes that an app has in flight: request bodies, decoded values and unsent responses.
//
// A single caller may use the whole budget. When the budget is exhausted, requests wait briefly, and freed bytes go to
// the namespace with the lowest use, and within it to the token with the lowest use. To serve a caller below its share,
// the app closes the connection of a caller above its share whose request is still being read or that does not read its
// response.
package budget

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// ErrOverloaded reports that the bytes of a request did not become free in time, or that a caller below its share
// needed them.
var ErrOverloaded = errors.New("too many bytes are in flight")

// Owner is the namespace and the token to which bytes are charged.
type Owner struct{ Namespace, Token string }

// Class is the purpose for which bytes are used.
type Class int

// These are the classes.
const (
	Ordinary Class = iota
	// outcomes, heartbeats, renewals, session requests and probes: a part of the budget is reserved for them
	Reserved
)

// These are limits of waiting requests: the maximum wait, the wait after which a request of a caller above its share is
// cut off so that its bytes become free, and the maximum number of waiting requests of one token and in total.
const (
	waitFor    = 5 * time.Second
	cutAfter   = time.Second
	mayWait    = 64
	mayWaitAll = 4096
	minCut     = 64 << 10 // minimum bytes of a grant whose request is cut off
)

// Budget limits the number of bytes in flight. New creates it. A nil Budget has no limit.
type Budget struct {
	total    int64
	reserved int64

	mu         sync.Mutex // guards the fields below, and those of every Grant
	used       int64
	part       int64 // bytes used by the class Reserved
	namespaces map[string]*holder
	waiting    list.List // *request values in order of arrival
	refused    [2]int64  // number of refused requests by class
	cut        int64
}

// holder counts the bytes of a namespace, or of one of its tokens.
type holder struct {
	used, waiting int64
	small         int64              // part of used that was granted by Small
	tokens        map[string]*holder // tokens of a namespace
	grants        map[*Grant]struct{}
}

// request is a waiting request.
type request struct {
	grant   *Grant
	n       int64
	class   Class
	granted chan struct{}
	element *list.Element
}

// Grant holds bytes of an owner. A nil Grant and the zero Grant count nothing.
type Grant struct {
	budget *Budget
	owner  Owner
	class  Class
	n      int64
	small  int64 // bytes granted by Small
	cut    Cutter
	wasCut bool
	ended  bool
}

// Cutter ends a request whose bytes another caller needs. Cut runs in its own goroutine, at most once.
type Cutter interface{ Cut() }

// CutFunc implements Cutter with a function.
type CutFunc func()

// Cut calls f.
func (f CutFunc) Cut() { f() }

// New returns a budget of total bytes, of which a quarter is for Reserved alone.
func New(total int64) *Budget {
	return &Budget{total: total, reserved: total / 4, namespaces: map[string]*holder{}}
}

// Places returns a budget that counts places instead of bytes and reserves none.
func Places(total int) *Budget { return &Budget{total: int64(total), namespaces: map[string]*holder{}} }

// Stats are counts of a Budget.
type Stats struct {
	Total, Used, Waiting int64
	Refused              [2]int64 // requests whose bytes did not become free in time, by Class
	Cut                  int64    // requests that were cut off to free bytes for callers below their share
}

// Stats returns the counters.
func (b *Budget) Stats() Stats {
	if b == nil {
		return Stats{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{Total: b.total, Used: b.used, Waiting: int64(b.waiting.Len()), Refused: b.refused, Cut: b.cut}
}

// limit returns the maximum number of bytes of a class.
func (b *Budget) limit(c Class) int64 {
	if c == Reserved {
		return b.total
	}
	return b.total - b.reserved
}

// Acquire returns a grant of n bytes, at most the limit of the class, after waiting until they are free. The error is
// ErrOverloaded or the cause of ctx.
func (b *Budget) Acquire(ctx context.Context, o Owner, n int64, c Class) (*Grant, error) {
	g := b.Open(o)
	return g, g.Acquire(ctx, n, c)
}

// Force returns a grant of n bytes without waiting, even above the limit. It is for small requests and for responses.
func (b *Budget) Force(o Owner, n int64) *Grant {
	g := b.Open(o)
	g.Force(n)
	return g
}

// Open returns an ordinary grant without bytes.
func (b *Budget) Open(o Owner) *Grant {
	if b == nil {
		return nil
	}
	g := new(Grant)
	g.Open(b, o)
	return g
}

// Place returns a grant of one place without waiting, for a request that lasts long and can be ended at once. When all
// places are taken, it cuts a grant of the owner with the most places, if o stays below that owner; otherwise it
// returns false.
func (b *Budget) Place(o Owner, cut Cutter) (*Grant, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+1 > b.total {
		victim := b.largestCuttable(o, 1)
		if victim == nil {
			b.drop(o)
			return nil, false
		}
		b.cutOne(victim)
		b.releaseGrant(victim)
	}
	g := &Grant{budget: b, owner: o, cut: cut}
	b.grantBytes(g, 1)
	return g, true
}

// Open makes a zero Grant count ordinary bytes of an owner. With a nil Budget it counts nothing.
func (g *Grant) Open(b *Budget, o Owner) { g.budget, g.owner = b, o }

// uncounted reports whether the grant belongs to no Budget.
func (g *Grant) uncounted() bool { return g == nil || g.budget == nil }

// Small adds n bytes without waiting, if all small requests of the owner then use at most a 64th of the budget. So
// small requests do not wait for large ones, nor for the tasks in responses to the same token's polls.
func (g *Grant) Small(n int64) bool {
	if g.uncounted() {
		return true
	}
	b := g.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	_, token := b.holders(g.owner)
	if token.small+n > b.total/64 {
		b.drop(g.owner)
		return false
	}
	b.grantBytes(g, n)
	g.small += n
	token.small += n
	return true
}

// Acquire moves a grant without bytes to a class and waits for n bytes. The error is ErrOverloaded or the cause of ctx.
func (g *Grant) Acquire(ctx context.Context, n int64, c Class) error {
	if g.uncounted() {
		return nil
	}
	g.class = c
	return g.Grow(ctx, n)
}

// Grow waits for n bytes more. The error is ErrOverloaded or the cause of ctx.
func (g *Grant) Grow(ctx context.Context, n int64) error {
	if g.uncounted() || n <= 0 {
		return nil
	}
	b := g.budget
	b.mu.Lock()
	if g.ended {
		b.mu.Unlock()
		return ErrOverloaded
	}
	n = min(n, max(0, b.limit(g.class)-g.n))
	if b.inPart(g.class, n) || b.used+n <= b.limit(g.class) && !b.waiterFirst(g.owner, g.class) {
		b.grantBytes(g, n)
		b.mu.Unlock()
		return nil
	}
	_, token := b.holders(g.owner)
	if token.waiting >= mayWait || b.waiting.Len() >= mayWaitAll {
		b.refused[g.class]++
		b.drop(g.owner)
		b.mu.Unlock()
		return ErrOverloaded
	}
	r := &request{grant: g, n: n, class: g.class, granted: make(chan struct{})}
	r.element = b.waiting.PushBack(r)
	b.count(g.owner, 1)
	b.mu.Unlock()
	timeout, cutter := time.NewTimer(waitFor), time.NewTimer(cutAfter)
	defer timeout.Stop()
	defer cutter.Stop()
	var err error
	for err == nil {
		select {
		case <-r.granted:
			return nil
		case <-cutter.C:
			b.cutFor(r)
			cutter.Reset(cutAfter / 4)
		case <-timeout.C:
			err = ErrOverloaded
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-r.granted: // the bytes were granted at the same moment
		return nil
	default:
	}
	b.refused[r.class]++
	b.dequeue(r)
	return err
}

// Try adds n bytes if they are free and no waiting request precedes this one; it does not wait.
func (g *Grant) Try(n int64) bool {
	if g.uncounted() || n <= 0 {
		return true
	}
	b := g.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, max(0, b.limit(g.class)-g.n))
	if g.ended || b.used+n > b.limit(g.class) || b.waiterFirst(g.owner, g.class) {
		b.drop(g.owner)
		return false
	}
	b.grantBytes(g, n)
	return true
}

// Bytes returns the bytes of the grant.
func (g *Grant) Bytes() int64 {
	if g.uncounted() {
		return 0
	}
	g.budget.mu.Lock()
	defer g.budget.mu.Unlock()
	return g.n
}

// Force adds n bytes without waiting, even above the limit.
func (g *Grant) Force(n int64) {
	if g.uncounted() {
		return
	}
	g.budget.mu.Lock()
	defer g.budget.mu.Unlock()
	if g.ended {
		return
	}
	g.budget.grantBytes(g, n)
	g.budget.cutToLimit()
}

// Shrink returns all bytes above n.
func (g *Grant) Shrink(n int64) { g.Return(g.Bytes() - n) }

// Return returns at most n bytes.
func (g *Grant) Return(n int64) {
	if g.uncounted() || n <= 0 {
		return
	}
	g.budget.mu.Lock()
	defer g.budget.mu.Unlock()
	if !g.ended {
		g.budget.grantBytes(g, -min(n, g.n))
		g.budget.grantWaiting()
	}
}

// MayBeCut sets how the request is ended when a caller below its share needs its bytes; nil: it may not be cut.
func (g *Grant) MayBeCut(cut Cutter) {
	if g.uncounted() {
		return
	}
	g.budget.mu.Lock()
	defer g.budget.mu.Unlock()
	if !g.wasCut {
		g.cut = cut
	}
}

// Release returns all bytes; a second call has no effect.
func (g *Grant) Release() {
	if g.uncounted() {
		return
	}
	b := g.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.ended {
		return
	}
	b.releaseGrant(g)
	b.grantWaiting()
}

// releaseGrant returns all bytes of a grant; the caller holds mu.
func (b *Budget) releaseGrant(g *Grant) {
	if g.n > 0 { // a grant without bytes can be missing in the map of its owner
		b.grantBytes(g, -g.n)
	}
	g.ended = true
	if ns := b.namespaces[g.owner.Namespace]; ns != nil {
		if token := ns.tokens[g.owner.Token]; token != nil {
			token.small -= g.small
			delete(token.grants, g)
		}
	}
	b.drop(g.owner)
}

// holders returns the holders of an owner; the caller holds mu.
func (b *Budget) holders(o Owner) (namespace, token *holder) {
	namespace = b.namespaces[o.Namespace]
	if namespace == nil {
		namespace = &holder{tokens: map[string]*holder{}}
		b.namespaces[o.Namespace] = namespace
	}
	token = namespace.tokens[o.Token]
	if token == nil {
		token = &holder{grants: map[*Grant]struct{}{}}
		namespace.tokens[o.Token] = token
	}
	return namespace, token
}

// drop removes an owner that has no bytes and no waiting request; the caller holds mu.
func (b *Budget) drop(o Owner) {
	namespace := b.namespaces[o.Namespace]
	if namespace == nil {
		return
	}
	if token := namespace.tokens[o.Token]; token != nil && token.waiting == 0 && len(token.grants) == 0 {
		delete(namespace.tokens, o.Token)
	}
	if len(namespace.tokens) == 0 {
		delete(b.namespaces, o.Namespace)
	}
}

// grantBytes adds n bytes to a grant, or removes them if n is negative; the caller holds mu.
func (b *Budget) grantBytes(g *Grant, n int64) {
	namespace, token := b.holders(g.owner)
	token.grants[g] = struct{}{}
	g.n += n
	b.used += n
	if g.class == Reserved {
		b.part += n
	}
	namespace.used += n
	token.used += n
}

// count changes the number of an owner's waiting requests; the caller holds mu.
func (b *Budget) count(o Owner, n int64) {
	namespace, token := b.holders(o)
	namespace.waiting += n
	token.waiting += n
}

// dequeue removes a waiting request; the caller holds mu.
func (b *Budget) dequeue(r *request) {
	b.waiting.Remove(r.element)
	b.count(r.grant.owner, -1)
	b.drop(r.grant.owner)
}

// usesFewer reports whether owner a has fewer bytes than o: it compares namespaces, and for equal namespaces tokens.
// The caller holds mu.
func (b *Budget) usesFewer(a, o Owner) bool {
	an, at := b.holders(a)
	on, ot := b.holders(o)
	if a.Namespace != o.Namespace {
		return an.used < on.used
	}
	return at.used < ot.used
}

// inPart reports whether a request fits into the part that is reserved for its class; the caller holds mu.
func (b *Budget) inPart(c Class, n int64) bool {
	return c == Reserved && b.part+n <= b.reserved && b.used+n <= b.total
}

// waiterFirst reports whether a waiting request precedes a new request of this owner. If both owners have equal bytes,
// the waiting request is first, but an ordinary request never precedes an outcome. The caller holds mu.
func (b *Budget) waiterFirst(o Owner, c Class) bool {
	for e := b.waiting.Front(); e != nil; e = e.Next() {
		r := e.Value.(*request)
		if r.class >= c && !b.usesFewer(o, r.grant.owner) || r.class < c && b.usesFewer(r.grant.owner, o) {
			b.drop(o)
			return true
		}
	}
	return false
}

// firstWaiting returns the waiting request of a class whose owner has the fewest bytes, and of this owner the request
// with the most bytes, because it can finish and release them. The caller holds mu.
func (b *Budget) firstWaiting(c Class) (best *request) {
	for e := b.waiting.Front(); e != nil; e = e.Next() {
		r := e.Value.(*request)
		if r.class == c && (best == nil || b.usesFewer(r.grant.owner, best.grant.owner) ||
			r.grant.owner == best.grant.owner && r.grant.n > best.grant.n) {
			best = r
		}
	}
	return best
}

// grantWaiting grants waiting requests that fit, in the order of their owners' bytes, the fewest first. The caller
// holds mu. A request that does not fit is overtaken only by requests that fit into the reserved part.
func (b *Budget) grantWaiting() {
	for {
		r, ordinary := b.firstWaiting(Reserved), b.firstWaiting(Ordinary)
		if r == nil || !b.inPart(Reserved, r.n) && ordinary != nil && b.usesFewer(ordinary.grant.owner, r.grant.owner) {
			r = ordinary
		}
		if r == nil || b.used+r.n > b.limit(r.class) && !b.inPart(r.class, r.n) {
			return
		}
		b.waiting.Remove(r.element)
		b.count(r.grant.owner, -1)
		if !r.grant.ended {
			b.grantBytes(r.grant, r.n)
		}
		close(r.granted)
	}
}

// cutFor cuts requests of the owner with the most bytes above its share, if the owner of the waiting request is below
// its share.
func (b *Budget) cutFor(r *request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for needed := b.used + r.n - b.limit(r.class); needed > 0; {
		victim := b.largestCuttable(r.grant.owner, r.n)
		if victim == nil {
			return
		}
		needed -= b.cutOne(victim)
	}
}

// largestCuttable returns the largest grant that may be cut so that o can have n more bytes. It belongs to the owner
// with the most bytes, which must exceed those of o including the n bytes. Owners are compared by namespace, and by
// token within the namespace of o. The caller holds mu.
func (b *Budget) largestCuttable(o Owner, n int64) (victim *Grant) {
	mine, own := b.holders(o)
	most := int64(0)
	for name, namespace := range b.namespaces {
		for _, token := range namespace.tokens {
			has, wants := namespace.used, mine.used+n
			if name == o.Namespace {
				has, wants = token.used, own.used+n
			}
			if has <= wants || has < most {
				continue
			}
			for g := range token.grants {
				if g.cut != nil && g.n >= min(minCut, n) && (has > most || victim == nil || g.n > victim.n) {
					victim, most = g, has
				}
			}
		}
	}
	return victim
}

// cutOne cuts a request and returns the bytes that become free. The caller holds mu.
func (b *Budget) cutOne(g *Grant) int64 {
	cut := g.cut
	g.cut, g.wasCut = nil, true
	b.cut++
	go cut.Cut()
	return g.n
}

// cutToLimit cuts requests that may be cut while more bytes are in use than the total: requests of the namespace with
// the most bytes, within it of the token with the most bytes, the largest first. A request that was cut counts as
// ended. The caller holds mu.
func (b *Budget) cutToLimit() {
	excess := b.used - b.total
	if excess <= 0 {
		return
	}
	for _, namespace := range b.namespaces {
		for _, token := range namespace.tokens {
			for g := range token.grants {
				if g.wasCut {
					excess -= g.n
				}
			}
		}
	}
	for excess > 0 {
		var victim *Grant
		var of, at int64
		for _, namespace := range b.namespaces {
			for _, token := range namespace.tokens {
				for g := range token.grants {
					if g.cut == nil || g.n < minCut {
						continue
					}
					if victim == nil || namespace.used > of || namespace.used == of &&
						(token.used > at || token.used == at && g.n > victim.n) {
						victim, of, at = g, namespace.used, token.used
					}
				}
			}
		}
		if victim == nil {
			return
		}
		excess -= b.cutOne(victim)
	}
}

// WasCut reports whether the request was ended to free its bytes for another one.
func (g *Grant) WasCut() bool {
	if g.uncounted() {
		return false
	}
	g.budget.mu.Lock()
	defer g.budget.mu.Unlock()
	return g.wasCut
}
