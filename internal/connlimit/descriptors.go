package connlimit

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"syscall"
	"time"
)

// Reserve is the number of file descriptors that are reserved for health probes and for the app itself, such as its
// connections to the database. A process that may open fewer than 128 descriptors reserves half of them.
const Reserve = 64

// minIdleAge is the time for which a new connection is not closed to free its descriptor: it may be about to send a
// request.
const minIdleAge = time.Second

// ErrReserved reports that a request over a connection in the reserve is not a health probe.
var ErrReserved = errors.New("out of file descriptors; the remaining ones are reserved for health probes")

// descriptors groups the connections of a listener by their treatment when descriptors are scarce. The kernel assigns
// the lowest free descriptor, so a connection whose descriptor is in the reserve shows that all lower ones are in use.
// It serves health probes only.
type descriptors struct {
	limit int // limit of the process; 0: unknown, nothing is reserved
	// *conn values without a request, the longest idle first: [0] unauthenticated, [1] authenticated connections
	idle     [2]list.List
	reserved list.List // *conn values in the reserve, the oldest first
	young    time.Duration
	warned   time.Time
	stats    DescriptorStats
}

// DescriptorStats are counters of the descriptor reserve.
type DescriptorStats struct {
	Limit    int   // descriptors that the process may open; 0: not known
	Reserved int64 // connections accepted in the reserve
	Closed   int64 // connections closed to free their descriptors
}

// DescriptorStats returns the counts.
func (l *Limit) DescriptorStats() DescriptorStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.descriptors.stats.Limit = l.descriptors.limit
	return l.descriptors.stats
}

// accept reports whether a descriptor is in the reserve, and if so closes a connection to free one. The caller holds
// mu.
func (l *Limit) accept(c *conn, descriptor int) (reserved bool) {
	d := &l.descriptors
	reserve := min(Reserve, d.limit/2)
	if d.limit == 0 || descriptor < d.limit-reserve {
		return false
	}
	d.stats.Reserved++
	if d.reserved.Len() >= reserve/2 { // the other half is reserved for the app itself
		l.closeFirst(&d.reserved)
	}
	c.moveTo(&d.reserved)
	now := time.Now()
	l.free(now.Add(-d.young))
	if l.Scarce != nil && now.Sub(d.warned) > time.Minute {
		d.warned = now
		go l.Scarce(d.limit)
	}
	return true
}

// makeRoom closes a connection, as free does, for a connection that could not be accepted.
func (l *Limit) makeRoom() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free(time.Now())
}

// free closes the connection that has been idle for longest, an unauthenticated one first. If none has been idle since
// before the given time, it closes the oldest unauthenticated connection of the address with the most. The caller holds
// mu.
func (l *Limit) free(before time.Time) {
	for i := range l.descriptors.idle {
		first := l.descriptors.idle[i].Front()
		if first != nil && !first.Value.(*conn).entered.After(before) {
			l.closeFirst(&l.descriptors.idle[i])
			return
		}
	}
	if len(l.most) > 0 {
		if oldest := l.most[0].oldest(); !oldest.reserved && !oldest.added.After(before) {
			l.remove(oldest)
			l.descriptors.stats.Closed++
			go oldest.close()
		}
	}
}

// closeFirst closes the first connection of a list; the caller holds mu.
func (l *Limit) closeFirst(of *list.List) {
	c := of.Front().Value.(*conn)
	c.moveTo(nil)
	l.descriptors.stats.Closed++
	go func() { _ = c.Conn.Close() }() // the reader gets the end of the connection
}

// moveTo moves a connection to a list; nil: removes it from its list. The caller holds Limit.mu.
func (c *conn) moveTo(to *list.List) {
	if c.element != nil {
		c.in.Remove(c.element)
	}
	if c.in, c.element = to, nil; to != nil {
		c.element, c.entered = to.PushBack(c), time.Now()
	}
}

// State is for http.Server.ConnState: it distinguishes idle connections from connections with a request.
func (l *Limit) State(of net.Conn, state http.ConnState) {
	c := own(of)
	if c == nil || c.place.reserved {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case state != http.StateNew && state != http.StateIdle:
		c.moveTo(nil)
	case c.place.at != nil:
		c.moveTo(&l.descriptors.idle[0])
	default:
		c.moveTo(&l.descriptors.idle[1])
	}
}

// ended removes a connection.
func (l *Limit) ended(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.moveTo(nil)
	l.remove(c.place)
}

// Reserved reports whether the connection of a request has a descriptor of the reserve and serves health probes only.
func Reserved(ctx context.Context) bool {
	c, ok := ctx.Value(connKey{}).(*conn)
	return ok && c.place.reserved
}

// own returns the connection of this package inside a connection of a server.
func own(c net.Conn) *conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	o, _ := c.(*conn)
	return o
}

// descriptor returns a connection's file descriptor; -1 if it is unknown.
func descriptor(c net.Conn) int {
	number := -1
	if s, ok := c.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { number = int(fd) }) // fails for a connection that was closed
		}
	}
	return number
}

// outOfDescriptors reports whether the process or the machine has no free descriptors.
func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
