// Package connlimit limits connections whose callers have not authenticated yet, and reserves file descriptors for
// health probes. When all places are in use, the oldest connection of the address that has the most of them is closed,
// so that one address cannot keep others out.
package connlimit

import (
	"container/heap"
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Default is the number of unauthenticated connections of an app.
const Default = 2048

// Limit is a limit on unauthenticated connections. The zero value allows [Default].
type Limit struct {
	Max         int             // 0: Default
	Descriptors int             // file descriptors of the process; 0: RLIMIT_NOFILE
	Scarce      func(limit int) // called when the reserve is reached, at most once a minute; nil: no call

	mu          sync.Mutex // guards the fields below, and those of every Place
	count       int
	added       uint64
	addresses   map[string]*address
	most        byCount
	closed      int64
	descriptors descriptors
}

// Place is the place of one unauthenticated connection. Its methods may be called at any time, also on a nil Place.
type Place struct {
	limit    *Limit
	close    func()
	at       *address
	element  *list.Element
	number   uint64
	added    time.Time
	reserved bool // its connection uses a descriptor of the reserve
}

// address lists the places of one address, the oldest first.
type address struct {
	name   string
	places list.List
	index  int // index in Limit.most
}

func (a *address) oldest() *Place { return a.places.Front().Value.(*Place) }

// byCount is a heap: the address with the most places is first, of equal ones the address with the oldest place.
type byCount []*address

func (h byCount) Len() int { return len(h) }

func (h byCount) Less(i, j int) bool {
	a, b := h[i], h[j]
	if a.places.Len() != b.places.Len() {
		return a.places.Len() > b.places.Len()
	}
	return a.places.Len() > 0 && a.oldest().number < b.oldest().number
}

func (h byCount) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *byCount) Push(x any) {
	a := x.(*address)
	a.index = len(*h)
	*h = append(*h, a)
}

func (h *byCount) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return a
}

// Add reserves a place for a connection from an address. To make room for another connection, the limit calls close, at
// most once and on a separate goroutine.
func (l *Limit) Add(from string, close func()) *Place { return l.prepare(from, close, func(*Place) {}) }

// prepare is like Add, and calls a function that initializes the place before another connection can close it.
func (l *Limit) prepare(from string, close func(), first func(*Place)) *Place {
	p := &Place{limit: l, close: close, added: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	first(p)
	if l.addresses == nil {
		l.addresses = map[string]*address{}
	}
	l.added++
	p.number = l.added
	l.enter(p, from)
	limit := l.Max
	if limit <= 0 {
		limit = Default
	}
	if l.count > limit {
		oldest := l.most[0].oldest()
		l.remove(oldest)
		l.closed++
		go oldest.close()
	}
	return p
}

// Count returns the number of places in use, and how many connections were closed for others.
func (l *Limit) Count() (used int, closed int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count, l.closed
}

// Leave releases the place: its connection has authenticated, or has ended.
func (p *Place) Leave() {
	if p == nil {
		return
	}
	p.limit.mu.Lock()
	defer p.limit.mu.Unlock()
	p.limit.remove(p)
}

// Move counts the place for another address, for example when a trusted proxy has named the client.
func (p *Place) Move(to string) {
	if p == nil {
		return
	}
	p.limit.mu.Lock()
	defer p.limit.mu.Unlock()
	if p.at == nil || p.at.name == to {
		return
	}
	p.limit.remove(p)
	p.limit.enter(p, to)
}

// enter adds p; the caller holds mu.
func (l *Limit) enter(p *Place, from string) {
	a := l.addresses[from]
	if a == nil {
		a = &address{name: from}
		l.addresses[from] = a
		p.element = a.places.PushBack(p)
		heap.Push(&l.most, a)
	} else {
		p.element = a.places.PushBack(p)
		heap.Fix(&l.most, a.index)
	}
	p.at = a
	l.count++
}

// remove removes p, if it is still in use; the caller holds mu.
func (l *Limit) remove(p *Place) {
	a := p.at
	if a == nil {
		return
	}
	a.places.Remove(p.element)
	p.at, p.element = nil, nil
	l.count--
	if a.places.Len() > 0 {
		heap.Fix(&l.most, a.index)
		return
	}
	heap.Remove(&l.most, a.index)
	delete(l.addresses, a.name)
}

// Listen returns a listener that gives each accepted connection a place.
func (l *Limit) Listen(inner net.Listener) net.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.descriptors.limit = l.Descriptors; l.Descriptors == 0 {
		l.descriptors.limit = descriptorLimit()
	}
	l.descriptors.young = minIdleAge
	return &listener{inner, l}
}

type listener struct {
	net.Listener
	limit *Limit
}

func (l *listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		if outOfDescriptors(err) {
			l.limit.makeRoom()
		}
		return nil, err // http.Server accepts again after a pause
	}
	host, _, err := net.SplitHostPort(inner.RemoteAddr().String())
	if err != nil {
		host = inner.RemoteAddr().String()
	}
	c := &conn{Conn: inner, accepted: time.Now()}
	closing := func() { _ = c.Conn.Close() } // the reader gets the end of the connection
	c.place = l.limit.prepare(host, closing, func(p *Place) { p.reserved = l.limit.accept(c, descriptor(inner)) })
	return c, nil
}

// conn is an accepted connection.
type conn struct {
	net.Conn
	place    *Place
	accepted time.Time
	requests atomic.Int64

	// in the lists of Limit.descriptors, guarded by Limit.mu
	element *list.Element
	in      *list.List
	entered time.Time
}

func (c *conn) Close() error {
	c.place.limit.ended(c)
	return c.Conn.Close()
}

// CloseWrite closes the sending side of the connection, if the connection supports it.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

type connKey struct{}

// Context is for http.Server.ConnContext: it stores the connection in the context of its requests.
func Context(ctx context.Context, c net.Conn) context.Context {
	if o := own(c); o != nil {
		return context.WithValue(ctx, connKey{}, o)
	}
	return ctx
}

// Requests counts the requests of each connection. It counts the place of an unauthenticated connection for the address
// of its requests. A connection in the descriptor reserve ends after its first response.
func Requests(next http.Handler, from func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.requests.Add(1)
			c.place.Move(from(r))
			if c.place.reserved {
				w.Header().Set("Connection", "close")
			}
		}
		next.ServeHTTP(w, r)
	})
}

// From returns the place of the connection of a request, or nil if it has none.
func From(ctx context.Context) *Place {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		return c.place
	}
	return nil
}

// Accepted returns the time at which the connection was accepted, for its first request; else zero.
func Accepted(ctx context.Context) time.Time {
	if c, ok := ctx.Value(connKey{}).(*conn); ok && c.requests.Load() <= 1 {
		return c.accepted
	}
	return time.Time{}
}
