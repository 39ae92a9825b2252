// Package admission limits how many HTTP requests an app processes at once while several namespaces are active and the
// process is short of processor time.
//
// Without the limit, a client with many connections occupies the processors, and each step of every other namespace
// waits behind its requests. The requests of a namespace that is active alone are not limited.
package admission

import (
	"container/list"
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"time"
)

// ErrOverloaded reports that a request was not admitted in time, or that too many requests of its namespace wait.
var ErrOverloaded = errors.New("too many requests of this namespace are in progress")

const (
	maxWait    = 5 * time.Second // maximum wait of a request
	maxWaiting = 1024            // maximum number of waiting requests of a namespace
	// perProcessor is the minimum of the limit, in requests in progress for each processor.
	perProcessor = 2
	// The limit is adjusted once per interval: it is halved if the scheduler's delay was above maxDelay.
	interval = 20 * time.Millisecond
	maxDelay = 200 * time.Microsecond
	// An inactive namespace is removed when there are more namespaces than this.
	rememberedNamespaces = 256
)

// Options of a Limiter.
type Options struct {
	// OthersActive reports whether a namespace other than the given one had commits within the last second.
	OthersActive func(namespace string) bool
	// Delay returns the 90th percentile of the time that goroutines waited for a processor since the last call; nil:
	// measured in this process.
	Delay func() time.Duration
	// Processors is the number of processors; 0: GOMAXPROCS.
	Processors int
}

// Limiter limits the requests in progress. New creates it. A nil Limiter has no limit.
type Limiter struct {
	opt      Options
	minLimit int

	mu         sync.Mutex // guards the fields below and every Place
	namespaces map[string]*namespace
	running    int // weight of the requests in progress
	waiting    int
	limit      int // maximum of running requests; math.MaxInt while the process is not short of processor time
	adjustedAt time.Time
	refused    int64
}

// namespace contains the running and waiting requests of a namespace.
type namespace struct {
	running int       // weight of the requests in progress
	waiting list.List // *request values in order of arrival
}

// request is a waiting request.
type request struct {
	place    *Place
	weight   int
	admitted chan struct{} // closed when the request is admitted
}

// Place is the place of one request in progress. The zero Place is that of a request that was not admitted.
type Place struct {
	limiter   *Limiter
	namespace string
	weight    int
}

// Stats are counts of a Limiter.
type Stats struct {
	Waiting int64
	Refused int64 // counted by CountRefusal
}

// New returns a limiter.
func New(o Options) *Limiter {
	if o.Processors <= 0 {
		o.Processors = runtime.GOMAXPROCS(0)
	}
	if o.Delay == nil {
		o.Delay = new(schedulerDelay).read
	}
	return &Limiter{
		opt: o, minLimit: perProcessor * o.Processors, namespaces: map[string]*namespace{}, limit: math.MaxInt,
	}
}

// Stats returns the counters.
func (l *Limiter) Stats() Stats {
	if l == nil {
		return Stats{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Waiting: int64(l.waiting), Refused: l.refused}
}

// CountRefusal counts a request that its caller refuses because Enter returned ErrOverloaded.
func (l *Limiter) CountRefusal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused++
}

// Enter waits until a request of a namespace is admitted. weight is 1 for a small request, and more for one that takes
// as much time as several. The error is ErrOverloaded or the cause of ctx.
func (p *Place) Enter(ctx context.Context, l *Limiter, name string, weight int) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	n := l.namespaces[name]
	if n == nil {
		n = &namespace{}
		l.namespaces[name] = n
	}
	l.adjust()
	if n.waiting.Len() == 0 && l.mayRun(name, n, weight) {
		l.admit(p, name, n, weight)
		l.mu.Unlock()
		return nil
	}
	if n.waiting.Len() >= maxWaiting {
		l.mu.Unlock()
		return ErrOverloaded
	}
	r := &request{place: p, weight: weight, admitted: make(chan struct{})}
	e := n.waiting.PushBack(r)
	l.waiting++
	l.mu.Unlock()
	return l.await(ctx, n, e)
}

// await returns when a waiting request is admitted, or removes it from the queue of its namespace.
func (l *Limiter) await(ctx context.Context, n *namespace, e *list.Element) error {
	r := e.Value.(*request)
	timeout := time.NewTimer(maxWait)
	defer timeout.Stop()
	var err error
	select {
	case <-r.admitted:
		return nil
	case <-timeout.C:
		err = ErrOverloaded
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-r.admitted: // the request was admitted at the same moment
		return nil
	default:
	}
	n.waiting.Remove(e)
	l.waiting--
	l.serve() // the next request of the namespace may be smaller
	return err
}

// mayRun reports whether a request may run now. A namespace with fewer requests in progress than there are processors
// never waits.
func (l *Limiter) mayRun(name string, n *namespace, weight int) bool {
	return n.running < l.opt.Processors || l.running+weight <= l.limit || !l.opt.OthersActive(name)
}

func (l *Limiter) admit(p *Place, name string, n *namespace, weight int) {
	*p = Place{limiter: l, namespace: name, weight: weight}
	n.running += weight
	l.running += weight
}

// Leave ends the request. It may be called more than once.
func (p *Place) Leave() {
	l := p.limiter
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.namespaces[p.namespace]
	n.running -= p.weight
	l.running -= p.weight
	if n.running == 0 && n.waiting.Len() == 0 && len(l.namespaces) > rememberedNamespaces {
		delete(l.namespaces, p.namespace)
	}
	p.limiter = nil
	l.adjust()
	l.serve()
}

// serve admits waiting requests; the namespace with the fewest requests in progress comes first.
func (l *Limiter) serve() {
	for l.waiting > 0 {
		var next *namespace
		var name string
		for key, n := range l.namespaces {
			if n.waiting.Len() > 0 && (next == nil || n.running < next.running) {
				name, next = key, n
			}
		}
		e := next.waiting.Front()
		r := e.Value.(*request)
		if !l.mayRun(name, next, r.weight) {
			return
		}
		next.waiting.Remove(e)
		l.waiting--
		l.admit(r.place, name, next, r.weight)
		close(r.admitted)
	}
}

// adjust halves the limit while the process is short of processor time, and otherwise raises it by one, until it is far
// above the number of requests in progress.
func (l *Limiter) adjust() {
	if l.limit == math.MaxInt && l.running < l.minLimit {
		return
	}
	now := time.Now()
	if now.Sub(l.adjustedAt) < interval {
		return
	}
	l.adjustedAt = now
	switch {
	case l.opt.Delay() > maxDelay:
		l.limit = max(l.minLimit, min(l.limit, l.running)/2)
	case l.limit < 2*max(l.minLimit, l.running):
		l.limit++
	default:
		l.limit = math.MaxInt
	}
}
