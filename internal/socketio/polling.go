package socketio

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/sojourn-run/sojourn/internal/budget"
)

// separator separates the packets of one polling body.
const separator = '\x1e'

// pollGrace is the time for which a client's close packet waits for a poll that the client sent concurrently over
// another TCP connection.
const pollGrace = 100 * time.Millisecond

// poll responds to a GET with the queued packets, and waits until there is one.
func (s *session) poll(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	switch {
	case s.pinged && !s.packetSeen && time.Since(s.pingedAt) >= s.server.options.PingTimeout*49/50:
		s.mu.Unlock()
		s.closeWith(ErrPingTimeout) // this process's timer may be late, so check the ping timeout here, too
		refuse(w, http.StatusBadRequest, errorUnknownSession)
		return
	case s.onWebsocket:
		s.mu.Unlock()
		refuse(w, http.StatusBadRequest, errorBadRequest)
		return
	case s.polling:
		s.mu.Unlock()
		s.closeWith(fmt.Errorf("%w: concurrent polls of one session", ErrProtocol))
		refuse(w, http.StatusBadRequest, errorBadRequest)
		return
	}
	s.polling = true
	if s.pollArrived != nil {
		close(s.pollArrived)
		s.pollArrived = nil
	}
	late := s.upgrading // the client may have completed the upgrade over the websocket
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.polling = false
		s.mu.Unlock()
	}()
	var grace <-chan time.Time
	if late {
		timer := time.NewTimer(upgradeGrace)
		defer timer.Stop()
		grace = timer.C
	}
	// A poll is held for longer than other responses, so the server's write timeout must not apply. A server that does
	// not support this has no timeout.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	for {
		s.mu.Lock()
		moved, probed := s.onWebsocket, s.probed
		s.mu.Unlock()
		if moved && late {
			refuse(w, http.StatusBadRequest, errorBadRequest)
			return
		}
		if moved {
			writePoll(w, []frame{{data: []byte{engineNoop}}})
			return
		}
		if frames := s.out.dequeue(s.server.options.MaxPayload); len(frames) > 0 {
			writePoll(w, frames)
			return
		}
		if probed && !late {
			writePoll(w, []frame{{data: []byte{engineNoop}}})
			return
		}
		select {
		case <-s.out.wake:
		case <-grace:
			late = false
		case <-s.ctx.Done():
			last := byte(engineClose)
			if errors.Is(context.Cause(s.ctx), ErrPeerClosed) { //nolint:contextcheck // the session's end, not the poll's
				last = engineNoop
			}
			writePoll(w, []frame{{data: []byte{last}}})
			return
		case <-r.Context().Done():
			s.closeWith(fmt.Errorf("%w: poll cancelled", ErrPeerClosed))
			return
		}
	}
}

// post processes the packets of a body.
func (s *session) post(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.onWebsocket || s.posting {
		concurrent := s.posting
		s.mu.Unlock()
		if concurrent {
			s.closeWith(fmt.Errorf("%w: concurrent posts of one session", ErrProtocol))
		}
		refuse(w, http.StatusBadRequest, errorBadRequest)
		return
	}
	s.posting = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.posting = false
		s.mu.Unlock()
	}()
	body, grant, err := s.readBody(w, r)
	defer grant.Release()
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			s.closeWith(ErrPayloadTooLarge)
			refuse(w, http.StatusRequestEntityTooLarge, errorBadRequest)
			return
		}
		s.closeWith(fmt.Errorf("%w: %w", ErrPeerClosed, err))
		return
	}
	for more := true; more; {
		var part []byte
		part, body, more = bytes.Cut(body, []byte{separator})
		f, err := decodePolled(part)
		if err == nil {
			err = s.receive(f)
		}
		if errors.Is(err, ErrPeerClosed) {
			s.awaitPoll()
		}
		if err != nil {
			s.closeWith(err)
			if errors.Is(err, ErrPeerClosed) {
				break
			}
			refuse(w, http.StatusBadRequest, errorBadRequest)
			return
		}
	}
	w.Header().Set("Content-Type", "text/html")
	_, _ = w.Write([]byte("ok")) // the next poll detects a disconnected client
}

// readBody reads a polling body up to the current maxPayload.
func (s *session) readBody(w http.ResponseWriter, r *http.Request) (body []byte, grant *budget.Grant, err error) {
	limit := s.maxPayload()
	if r.ContentLength > int64(limit) {
		w.Header().Set("Connection", "close") // do not read the rest of the body
		return nil, nil, &http.MaxBytesError{Limit: int64(limit)}
	}
	if r.ContentLength < 0 || r.ContentLength > DefaultMaxUnjoinedPayload {
		if grant, err = s.reserve(); err != nil {
			return nil, nil, err
		}
	}
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
	grant.MayBeCut(nil)
	grant.Shrink(frameFactor * int64(len(body)))
	return body, grant, err
}

// awaitPoll waits up to pollGrace for a poll, which then receives the last packets of a session that its client closes.
func (s *session) awaitPoll() {
	s.mu.Lock()
	if s.polling {
		s.mu.Unlock()
		return
	}
	awaited := make(chan struct{})
	s.pollArrived = awaited
	s.mu.Unlock()
	timer := time.NewTimer(pollGrace)
	defer timer.Stop()
	select {
	case <-awaited:
	case <-timer.C:
	case <-s.ctx.Done():
	}
}

// decodePolled decodes one packet of a polling body, in which binary data is base64 with the prefix b.
func decodePolled(part []byte) (frame, error) {
	if len(part) == 0 || part[0] != 'b' {
		return frame{data: part}, nil
	}
	data := make([]byte, base64.StdEncoding.DecodedLen(len(part)-1))
	n, err := base64.StdEncoding.Decode(data, part[1:])
	if err != nil {
		return frame{}, fmt.Errorf("%w: attachment: %w", ErrProtocol, err)
	}
	return frame{binary: true, data: data[:n]}, nil
}

func writePoll(w http.ResponseWriter, frames []frame) {
	var body []byte
	for i, f := range frames {
		if i > 0 {
			body = append(body, separator)
		}
		if f.binary {
			body = append(body, 'b')
			body = base64.StdEncoding.AppendEncode(body, f.data)
		} else {
			body = append(body, f.data...)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=UTF-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // the next poll detects a disconnected client
}
