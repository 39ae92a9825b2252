package socketio

import (
	"fmt"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sojourn-run/sojourn/internal/budget"
)

const (
	closeGrace = 5 * time.Second // time for a closing connection to write its queue
	fullWait   = time.Second     // maximum wait for space in a full queue; then the peer is disconnected
)

// outbox is the bounded queue of packets for one peer. With a websocket it is also the only writer of the websocket, on
// a goroutine that exists only while packets are queued. Without one, long polls dequeue the packets.
type outbox struct {
	maxPackets, maxBytes int
	writeTimeout         time.Duration
	run                  func(func())  // starts a counted goroutine
	failed               func(error)   // ends the connection; called without mu
	wake                 chan struct{} // capacity 1; wakes a poll when packets are queued

	mu       sync.Mutex // guards the fields below
	queue    [][]frame
	head     int // index of the first packet in queue that is not dequeued
	bytes    int
	ws       *websocket.Conn
	busy     bool          // a goroutine is writing
	hasSpace chan struct{} // closed when a full queue has space again; nil if no goroutine waits
	closed   bool
	finalErr error       // if set, enqueue fails, and the connection ends with this error when the queue is empty
	grace    *time.Timer // limits the time for writing the queue after finish
	grant    *budget.Grant
}

// charge charges the queued bytes to a grant. When the budget is exhausted, a peer that does not read is disconnected.
func (o *outbox) charge(g *budget.Grant) {
	g.MayBeCut(budget.CutFunc(func() { o.failed(ErrSlowPeer) }))
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		g.Release()
		return
	}
	o.grant = g
	g.Force(int64(o.bytes))
}

// enqueue queues one packet together with its attachments. If the queue is full, enqueue waits for space until the
// given time, and then disconnects the peer.
func (o *outbox) enqueue(frames []frame, until time.Time) error {
	start, err := o.offer(frames, until)
	if start {
		o.run(o.write)
	}
	return err
}

// offer is like enqueue, for a goroutine that can write the packet itself: if it returns start, the caller must call
// write.
func (o *outbox) offer(frames []frame, until time.Time) (start bool, err error) {
	n := size(frames)
	for {
		o.mu.Lock()
		if o.closed || o.finalErr != nil {
			o.mu.Unlock()
			return false, ErrClosed
		}
		waiting := len(o.queue) - o.head
		if waiting < o.maxPackets && (waiting == 0 || o.bytes+n <= o.maxBytes) {
			break
		}
		if o.hasSpace == nil {
			o.hasSpace = make(chan struct{})
		}
		room := o.hasSpace
		o.mu.Unlock()
		timer := time.NewTimer(time.Until(until))
		select {
		case <-room:
			timer.Stop()
		case <-timer.C:
			o.failed(ErrSlowPeer)
			return false, ErrSlowPeer
		}
	}
	o.queue = append(o.queue, frames)
	o.bytes += n
	o.grant.Force(int64(n))
	start = o.ws != nil && !o.busy
	if start {
		o.busy = true
	}
	o.mu.Unlock()
	if !start {
		o.wakePoll()
	}
	return start, nil
}

// enqueueDeadline returns the deadline of an enqueue outside a broadcast.
func enqueueDeadline() time.Time { return time.Now().Add(fullWait) }

// release wakes the goroutines that wait for space in the queue; the caller holds mu.
func (o *outbox) release() {
	if o.hasSpace != nil {
		close(o.hasSpace)
		o.hasSpace = nil
	}
}

// wakePoll wakes the long poll, if there is one.
func (o *outbox) wakePoll() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// shift removes the oldest packet. The caller holds mu, and the queue is not empty.
func (o *outbox) shift() []frame {
	frames := o.queue[o.head]
	o.queue[o.head] = nil
	o.bytes -= size(frames)
	o.grant.Return(int64(size(frames)))
	if o.head++; o.head == len(o.queue) {
		o.queue, o.head = o.queue[:0], 0
	}
	o.release()
	return frames
}

// write writes the queued packets to the websocket until the queue is empty.
func (o *outbox) write() {
	for {
		o.mu.Lock()
		if o.closed || len(o.queue) == 0 {
			o.busy = false
			last := o.finalErr
			o.mu.Unlock()
			if last != nil {
				o.failed(last)
			}
			return
		}
		frames, ws := o.shift(), o.ws
		o.mu.Unlock()
		if err := writeFrames(ws, frames, o.writeTimeout); err != nil {
			o.mu.Lock()
			o.busy = false
			o.mu.Unlock()
			o.failed(err)
			return
		}
	}
}

func writeFrames(ws *websocket.Conn, frames []frame, timeout time.Duration) error {
	if err := ws.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	for _, f := range frames {
		kind := websocket.TextMessage
		if f.binary {
			kind = websocket.BinaryMessage
		}
		if err := ws.WriteMessage(kind, f.data); err != nil {
			return fmt.Errorf("%w: write: %w", ErrPeerClosed, err)
		}
	}
	return nil
}

// dequeue returns packets of up to max bytes for a long poll, at least one if there is one.
func (o *outbox) dequeue(max int) (frames []frame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for total := 0; o.head < len(o.queue); {
		if total += size(o.queue[o.head]); total > max && len(frames) > 0 {
			break
		}
		frames = append(frames, o.shift()...)
	}
	return frames
}

// attach sets the websocket to which all further packets are written. It returns false if the outbox is closed.
func (o *outbox) attach(ws *websocket.Conn) bool {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return false
	}
	o.ws = ws
	start := len(o.queue) > 0 || o.finalErr != nil
	o.busy = start
	o.mu.Unlock()
	if start {
		o.run(o.write)
	}
	return true
}

// finish rejects further packets and ends the connection with cause when the queue is written, or after a grace period.
func (o *outbox) finish(cause error) {
	o.mu.Lock()
	if o.closed || o.finalErr != nil {
		o.mu.Unlock()
		return
	}
	o.finalErr = cause
	o.release()
	now := !o.busy
	if !now {
		o.grace = time.AfterFunc(closeGrace, func() { o.failed(cause) })
	}
	o.mu.Unlock()
	if now {
		o.failed(cause)
	}
}

// close drops everything queued and returns the websocket, if there is one.
func (o *outbox) close() *websocket.Conn {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.queue, o.head, o.bytes = true, nil, 0, 0
	o.grant.Release()
	o.release()
	if o.grace != nil {
		o.grace.Stop()
	}
	return o.ws
}
