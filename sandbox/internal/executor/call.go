package executor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/sandbox/frame"
)

// throttle is the minimum time between two progress frames, or two heartbeats, of one call.
const throttle = 100 * time.Millisecond

// Call is a call from the view of its handler, without the input.
type Call struct {
	IsNew bool // the first call of the session's epoch in this executor

	id     string
	state  *State
	server *server
	cancel context.CancelCauseFunc

	mu       sync.Mutex // guards the fields below
	beat     time.Time
	progress time.Time
	pending  []byte // progress that the throttle delays; sent with the result
	done     bool
}

// Session returns the state of the session, or nil outside a session.
func (c *Call) Session() *State { return c.state }

// Heartbeat reports to the worker that the call is alive. At most ten heartbeats per second are sent.
func (c *Call) Heartbeat() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); !c.done && now.Sub(c.beat) >= throttle {
		c.beat = now
		c.server.trySend(frame.Frame{Header: frame.Header{T: frame.Heartbeat, ID: c.id}})
	}
}

// Progress reports the progress of the call as JSON. At most ten reports per second are sent, the latest ones.
func (c *Call) Progress(value []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	switch {
	case c.done:
	case now.Sub(c.progress) >= throttle:
		c.progress, c.pending = now, nil
		c.server.trySend(frame.Frame{Header: frame.Header{T: frame.Progress, ID: c.id}, Body: value})
	default:
		c.pending = append([]byte(nil), value...)
	}
}

// Log writes one line to the log of the activity. Level is debug, info, warn or error.
func (c *Call) Log(level, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done {
		c.server.trySend(frame.Frame{
			Header: frame.Header{T: frame.Log, ID: c.id, Level: level}, Body: fmt.Appendf(nil, format, args...),
		})
	}
}

// finish sends the call's last frames; no frames are sent for it afterwards.
func (c *Call) finish(last frame.Frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = true
	if c.pending != nil {
		c.server.trySend(frame.Frame{Header: frame.Header{T: frame.Progress, ID: c.id}, Body: c.pending})
	}
	// The frame is too large, but the worker must learn that the call has ended.
	if err := c.server.send(last); err != nil {
		no := false
		c.server.trySend(frame.Frame{Header: frame.Header{
			T: frame.Error, ID: c.id, Type: string(
				UserError,
			), Class: "ResultTooLarge",
			Message: err.Error(), Retryable: &no,
		}})
	}
}
