package httpapi

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A stream is a request that lasts for hours. The server ends it from time to time, since proxies and mobile networks
// drop old connections silently. It also ends the stream of a client that does not read, whose events would accumulate
// in memory.

// The server ends a stream after streamed, and a client of server-sent events reconnects automatically. It sends a
// keepalive every pulse. It disconnects a client that accepts no data for writeWait.
const (
	streamLimit       = 12 * time.Hour
	keepaliveInterval = 15 * time.Second
	writeWait         = 30 * time.Second
)

// streamHistory sends the history of a run as server-sent events, with sequence numbers as IDs, after the client's last
// event, and new events as they are committed. When the run has closed, an event named "end" contains the outcome, and
// the stream ends.
func streamHistory(a *API, c *call) (response, error) {
	after, err := lastSeen(c)
	if err != nil {
		return response{}, err
	}
	q := c.query()
	decoded, values := q.flag("decoded"), q.valuesOf()
	if q.err == nil && decoded && values == protocol.ValuesNone {
		q.err = protocol.Invalid("decoded", "must not be combined with values=none")
	}
	if q.err != nil {
		return response{}, q.err
	}
	out := http.NewResponseController(c.W)
	begun := false
	send := func(format string, args ...any) error {
		// A writer without support for deadlines is used without them.
		_ = out.SetWriteDeadline(time.Now().Add(writeWait))
		if _, err := fmt.Fprintf(c.W, format, args...); err != nil {
			return err
		}
		return out.Flush()
	}
	sendEvent := func(shown event, err error) error {
		if err != nil {
			return err
		}
		raw, err := httpjson.Encode(shown)
		if err != nil {
			return err
		}
		return send("id: %d\ndata: %s\n\n", shown.Seq, raw)
	}
	follower := view.Follower{
		Begin: func(protocol.RunView) error {
			h := c.W.Header()
			h.Set("Content-Type", "text/event-stream")
			h.Set("Cache-Control", "no-store")
			h.Set("X-Accel-Buffering", "no") // proxies that buffer responses would delay events
			h.Set(VersionHeader, Version)
			c.W.WriteHeader(http.StatusOK)
			begun = true
			return send("retry: 1000\n\n")
		},
		Event: func(e history.Event) error { return sendEvent(viewEvent(e, decoded)) },
		Beat:  func() error { return send(": still here\n\n") },
		Every: keepaliveInterval,
	}
	if values != protocol.ValuesFull {
		follower.Values = values
		follower.Outline = func(o history.Outline) error { return sendEvent(viewOutline(&o, values), nil) }
	}
	closed, err := a.opt.RunViews.Follow(c.Ctx, c.target(), after, follower)
	if err != nil && !begun { // nothing was sent, so an error response is still possible
		return response{}, err
	}
	// A separate event marks the end: a client reconnects to a stream that only breaks off.
	if closed {
		v, verr := a.opt.RunViews.DescribeValues(c.Ctx, c.target(), protocol.ValuesNone)
		if verr == nil {
			verr = sendEnd(send, v)
		}
		err = verr
	}
	if err != nil {
		a.opt.Log.Debug().Err(err).Str("operation", c.rt.Operation).Msg("event stream ended early")
	}
	return response{status: http.StatusOK}, nil
}

// streamEnd is the data of the last event of a stream: how the run closed.
type streamEnd struct {
	WorkflowID   string       `json:"workflow_id"`
	RunID        string       `json:"run_id"`
	Status       string       `json:"status"`
	ClosedReason *string      `json:"closed_reason"`
	ClosedAt     history.Time `json:"closed_at"`
}

func sendEnd(send func(string, ...any) error, v protocol.RunView) error {
	raw, err := httpjson.Encode(streamEnd{v.WorkflowID, v.RunID, v.Status, v.ClosedReason, v.ClosedAt})
	if err != nil {
		return err
	}
	return send("event: end\ndata: %s\n\n", raw)
}

// lastSeen returns the sequence number of the client's last event, from the Last-Event-ID header or the query string.
func lastSeen(c *call) (int64, error) {
	name, v := "Last-Event-ID", c.Header.Get("Last-Event-ID")
	if v == "" {
		name, v = "after", c.URL.Query().Get("after")
	}
	if v == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 {
		return 0, protocol.Invalid(name, "must be the sequence number of an event")
	}
	return n, nil
}

type streamQuery struct {
	After   int64 `json:"after"`   // sequence of the last event that the caller has, if it sends no Last-Event-ID
	Decoded bool  `json:"decoded"` // payloads also as plain JSON
	valuesQuery
}
