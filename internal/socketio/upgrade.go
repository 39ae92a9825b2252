package socketio

import (
	"context"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
)

// upgradeGrace is the time for which a poll is held during an upgrade, so that packets that the client sent before it
// over the websocket are read first.
const upgradeGrace = 100 * time.Millisecond

// upgrade replaces the transport of a polling session by a websocket: the client sends a probe, the pending poll is
// released, and the client's packet "5" completes the upgrade. After a failed probe the session continues to poll. A
// session has one websocket: another one is accepted and closed at once, since a browser hides a rejected handshake
// from its page.
func (s *session) upgrade(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.onWebsocket || s.upgrading || s.ended.Load() {
		s.mu.Unlock()
		if ws, err := s.server.accept(w, r); err == nil { // else accept has responded
			closeWebsocket(ws, ErrClosed)
		}
		return
	}
	s.upgrading = true
	s.mu.Unlock()
	s.useConnection(r)
	ws, err := s.server.accept(w, r)
	if err != nil {
		s.stayPolling() // accept has responded
		return
	}
	s.server.group.run(func() {
		if !s.probe(ws) {
			s.stayPolling()
			closeWebsocket(ws, ErrClosed)
			return
		}
		s.serve(ws)
	})
}

// probe performs the upgrade exchange on ws and reports whether the websocket has replaced polling.
func (s *session) probe(ws *websocket.Conn) bool {
	stop := context.AfterFunc(s.ctx, func() { _ = ws.Close() })
	defer stop()
	if ws.SetReadDeadline(time.Now().Add(s.server.options.ConnectTimeout)) != nil {
		return false
	}
	if !expect(ws, "2probe") {
		return false
	}
	if writeFrames(ws, []frame{{data: []byte("3probe")}}, s.server.options.WriteTimeout) != nil {
		return false
	}
	s.mu.Lock()
	s.probed = true
	s.mu.Unlock()
	s.out.wakePoll()
	if !expect(ws, "5") || ws.SetReadDeadline(time.Time{}) != nil {
		return false
	}
	s.mu.Lock()
	s.onWebsocket, s.upgrading, s.probed = true, false, false
	s.mu.Unlock()
	s.out.wakePoll()
	return true
}

func expect(ws *websocket.Conn, want string) bool {
	kind, data, _, err := readMessage(ws, func() int { return DefaultMaxUnjoinedPayload }, nil)
	return err == nil && kind == websocket.TextMessage && string(data) == want
}

func (s *session) stayPolling() {
	s.mu.Lock()
	s.upgrading, s.probed = false, false
	s.mu.Unlock()
}
