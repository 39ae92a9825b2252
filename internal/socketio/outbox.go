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
	fullWait   = time.Second     // time for a full queue to shrink; then the peer counts as not reading
)

// outbox is the bounded queue of packets on their way to one peer. With a websocket it is also that websocket's only
// writer, on a goroutine that lives while there is something to write; without one, long polls take from it.
type outbox struct {
	maxPackets, maxBytes int
	writeTimeout         time.Duration
	run                  func(func())  // starts a counted goroutine
	failed               func(error)   // ends the connection; called without mu
	wake                 chan struct{} // capacity 1; wakes a poll when packets are queued

	mu      sync.Mutex // guards the fields below
	queue   [][]frame
	head    int // the first packet of queue not yet taken
	bytes   int
	ws      *websocket.Conn
	busy    bool          // a goroutine is writing
	hasRoom chan struct{} // closed when a full queue gets room; nil if no goroutine waits
	closed  bool
	last    error       // set: nothing more is taken in, and the connection ends with it once the queue is empty
	grace   *time.Timer // bounds that
	grant   *budget.Grant
}

// countIn counts the queued bytes in a grant. A peer that does not read is disconnected when others need its bytes.
func (o *outbox) countIn(g *budget.Grant) {
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

// enqueue queues one packet with its attachments, all or none. If the queue is full, as for a moment after a burst, put
// waits for room until the given time; then the peer is disconnected.
func (o *outbox) enqueue(frames []frame, until time.Time) error {
	start, err := o.offer(frames, until)
	if start {
		o.run(o.write)
	}
	return err
}

// offer is put for a goroutine without other work: if it returns start, the caller must call write.
func (o *outbox) offer(frames []frame, until time.Time) (start bool, err error) {
	n := size(frames)
	for {
		o.mu.Lock()
		if o.closed || o.last != nil {
			o.mu.Unlock()
			return false, ErrClosed
		}
		waiting := len(o.queue) - o.head
		if waiting < o.maxPackets && (waiting == 0 || o.bytes+n <= o.maxBytes) {
			break
		}
		if o.hasRoom == nil {
			o.hasRoom = make(chan struct{})
		}
		room := o.hasRoom
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
		o.nudge()
	}
	return start, nil
}

// soon is until when a put outside a broadcast waits.
func soon() time.Time { return time.Now().Add(fullWait) }

// release wakes the goroutines that wait for room; mu is held.
func (o *outbox) release() {
	if o.hasRoom != nil {
		close(o.hasRoom)
		o.hasRoom = nil
	}
}

// nudge wakes the long poll, if there is one.
func (o *outbox) nudge() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// shift removes the oldest packet; mu is held and the queue is not empty.
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

// write empties the queue into the websocket.
func (o *outbox) write() {
	for {
		o.mu.Lock()
		if o.closed || len(o.queue) == 0 {
			o.busy = false
			last := o.last
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

// attach makes ws the way out, from the next packet on. It reports whether the outbox still is in use.
func (o *outbox) attach(ws *websocket.Conn) bool {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return false
	}
	o.ws = ws
	start := len(o.queue) > 0 || o.last != nil
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
	if o.closed || o.last != nil {
		o.mu.Unlock()
		return
	}
	o.last = cause
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
