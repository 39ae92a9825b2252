package workflow

import (
	"errors"
	"fmt"
)

// ErrChannelClosed is returned by Send on a closed Channel.
var ErrChannelClosed = errors.New("the channel is closed")

// Channel passes values between the branches of one run, in order. It replaces a Go channel, which is not
// deterministic, and is not recorded in history. Values are not copied. A Channel is an item of Select: it is ready
// when Receive returns without waiting.
type Channel[T any] struct {
	m         *machine
	size      int
	closed    bool
	queue     []*sent[T] // values that no branch has received; the first size of them are buffered
	receivers []*waiter
}

// sent is a value in a Channel.
type sent[T any] struct {
	value    T
	accepted bool // the value is buffered or received, so Send returns
	sender   *waiter
}

func (s *sent[T]) accept() {
	s.accepted = true
	if s.sender != nil {
		s.sender.notify()
	}
}

// NewChannel returns a channel that buffers up to size values. With size 0 a Send waits until its value is received.
// A negative size panics.
func NewChannel[T any](ctx Context, size int) *Channel[T] {
	if size < 0 {
		panic(fmt.Sprintf("workflow: NewChannel with the negative size %d", size))
	}
	m := ctx.inner().m
	m.currentBranch()
	return &Channel[T]{m: m, size: size}
}

func (c *Channel[T]) isReady() bool    { return len(c.queue) > 0 || c.closed }
func (c *Channel[T]) attach(w *waiter) { c.receivers = append(c.receivers, w) }
func (c *Channel[T]) detach(w *waiter) { c.receivers = without(c.receivers, w) }

// Send sends a value. It waits until the value is buffered or received. It returns ErrCancelled if ctx is cancelled
// first, and ErrChannelClosed if the channel is closed; the value is then not sent.
func (c *Channel[T]) Send(ctx Context, value T) error {
	c.m.currentBranch()
	if c.closed {
		return ErrChannelClosed
	}
	s := &sent[T]{value: value}
	c.queue = append(c.queue, s)
	c.buffer()
	c.wakeReceivers()
	if s.accepted {
		return nil
	}
	s.sender = &waiter{need: 1}
	err := wait(ctx, s.sender, func() bool { return s.accepted || c.closed })
	switch s.sender = nil; {
	case s.accepted: // also if ctx was cancelled at the same time: a branch may have received the value
		return nil
	case err == nil:
		err = ErrChannelClosed
	}
	c.queue = without(c.queue, s)
	return err
}

// TrySend sends a value if it can be buffered. It reports whether it was: false if the buffer is full, the channel has
// no buffer, or it is closed.
func (c *Channel[T]) TrySend(value T) bool {
	c.m.currentBranch()
	if c.closed || len(c.queue) >= c.size {
		return false
	}
	c.queue = append(c.queue, &sent[T]{value: value, accepted: true})
	c.wakeReceivers()
	return true
}

// Receive waits for the next value. ok is false if the channel is closed and has no more values. The error is
// ErrCancelled if ctx is cancelled first.
func (c *Channel[T]) Receive(ctx Context) (value T, ok bool, err error) {
	c.m.currentBranch()
	if !c.isReady() {
		if err := wait(ctx, &waiter{need: 1}, c.isReady, c); err != nil {
			return value, false, err
		}
	}
	value, ok = c.removeFirst()
	return value, ok, nil
}

// TryReceive receives the next value without waiting. ok is false if the channel has none.
func (c *Channel[T]) TryReceive() (value T, ok bool) {
	c.m.currentBranch()
	return c.removeFirst()
}

// Len returns the number of values that can be received, with those of branches that wait in Send.
func (c *Channel[T]) Len() int { return len(c.queue) }

// Close closes the channel. Buffered values can still be received. A Send that waits returns ErrChannelClosed. Closing
// a closed channel has no effect.
func (c *Channel[T]) Close() {
	c.m.currentBranch()
	if c.closed {
		return
	}
	c.closed = true
	for _, s := range c.queue {
		if !s.accepted {
			s.sender.notify()
		}
	}
	c.queue = c.queue[:min(len(c.queue), c.size)]
	c.wakeReceivers()
}

func (c *Channel[T]) removeFirst() (value T, ok bool) {
	if len(c.queue) == 0 {
		return value, false
	}
	first := c.queue[0]
	c.queue[0] = nil
	c.queue = c.queue[1:]
	if !first.accepted {
		first.accept()
	}
	c.buffer()
	return first.value, true
}

// buffer accepts the values for which the buffer has room.
func (c *Channel[T]) buffer() {
	for _, s := range c.queue[:min(len(c.queue), c.size)] {
		if !s.accepted {
			s.accept()
		}
	}
}

// wakeReceivers wakes the branches that wait to receive, in the order in which they began to wait. A branch that finds
// no value waits again.
func (c *Channel[T]) wakeReceivers() {
	for _, w := range c.receivers {
		w.notify()
	}
}
