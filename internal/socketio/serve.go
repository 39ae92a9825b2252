package socketio

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gorilla/websocket"
)

// These are the error codes of Engine.IO.
const (
	errorUnknownTransport = iota
	errorUnknownSession
	errorBadMethod
	errorBadRequest
	errorForbidden
	errorUnsupportedProtocol
)

var errorTexts = [...]string{
	"Transport unknown", "Session ID unknown", "Bad handshake method", "Bad request", "Forbidden",
	"Unsupported protocol version",
}

// refuse responds with one of the error codes of Engine.IO.
func refuse(w http.ResponseWriter, status, code int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A write error means that the client has disconnected.
	_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "message": errorTexts[code]})
}

// ServeHTTP serves handshakes, polls, posts and websocket upgrades.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.group.add()
	defer s.group.done()
	if s.options.Admit != nil && !s.options.Admit(r) || !s.admitOrigin(w, r) {
		refuse(w, http.StatusForbidden, errorForbidden)
		return
	}
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	query := r.URL.Query()
	if query.Get("EIO") != "4" {
		refuse(w, http.StatusBadRequest, errorUnsupportedProtocol)
		return
	}
	transport := query.Get("transport")
	if !s.allows(transport) {
		refuse(w, http.StatusBadRequest, errorUnknownTransport)
		return
	}
	isUpgrade := websocket.IsWebSocketUpgrade(r)
	if isUpgrade != (transport == "websocket") {
		refuse(w, http.StatusBadRequest, errorBadRequest)
		return
	}
	id := query.Get("sid")
	if id == "" {
		s.handshake(w, r, isUpgrade) //nolint:contextcheck // the session outlives this request
		return
	}
	session := s.find(id)
	if session != nil && !isUpgrade {
		session.useConnection(r)
	}
	switch {
	case session == nil:
		refuse(w, http.StatusBadRequest, errorUnknownSession)
	case isUpgrade:
		session.upgrade(w, r)
	case r.Method == http.MethodGet:
		session.poll(w, r)
	case r.Method == http.MethodPost:
		session.post(w, r)
	default:
		refuse(w, http.StatusBadRequest, errorBadMethod)
	}
}

// handshake opens a session and sends its parameters to the client.
func (s *Server) handshake(w http.ResponseWriter, r *http.Request, overWebsocket bool) {
	if r.Method != http.MethodGet {
		refuse(w, http.StatusBadRequest, errorBadMethod)
		return
	}
	if headerBytes(r) > maxHandshakeHeaders {
		http.Error(w, "the headers of the handshake exceed 16 KiB", http.StatusRequestHeaderFieldsTooLarge)
		return
	}
	var ws *websocket.Conn
	if overWebsocket {
		var err error
		if ws, err = s.accept(w, r); err != nil {
			return // accept has responded
		}
	}
	session := newSession(s, r)
	session.useConnection(r)
	if !s.addSession(session) {
		session.closeWith(ErrServerClosed)
		if ws != nil {
			closeWebsocket(ws, ErrServerClosed)
			return
		}
		http.Error(w, "too many connections", http.StatusServiceUnavailable)
		return
	}
	terms := map[string]any{
		"sid": session.id, "upgrades": []string{}, "maxPayload": s.options.MaxPayload,
		"pingInterval": s.options.PingInterval.Milliseconds(), "pingTimeout": s.options.PingTimeout.Milliseconds(),
	}
	if ws == nil && s.allows("websocket") {
		terms["upgrades"] = []string{"websocket"}
	}
	text, _ := json.Marshal(terms) // cannot fail for text and numbers
	opening := []frame{{data: append([]byte{engineOpen}, text...)}}
	if ws == nil {
		writePoll(w, opening)
		return
	}
	if err := writeFrames(ws, opening, s.options.WriteTimeout); err != nil {
		session.closeWith(err)
		closeWebsocket(ws, err)
		return
	}
	session.serve(ws)
}

// headerBytes returns the size of the part of a request that a session stores.
func headerBytes(r *http.Request) int {
	n := len(r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// accept upgrades the request to a websocket, or sends an error response.
func (s *Server) accept(w http.ResponseWriter, r *http.Request) (*websocket.Conn, error) {
	ws, err := s.upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(int64(s.options.MaxPayload))
	return ws, nil
}

func (s *Server) allows(transport string) bool {
	if transport != "websocket" && transport != "polling" {
		return false
	}
	return len(s.options.Transports) == 0 || slices.Contains(s.options.Transports, transport)
}

// admitOrigin accepts requests without an origin, from the server's own host, and from the allowed origins.
func (s *Server) admitOrigin(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	if u, err := url.Parse(origin); err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host) {
		return true
	}
	if !slices.Contains(s.options.Origins, "*") && !slices.ContainsFunc(s.options.Origins, func(o string) bool {
		return strings.EqualFold(strings.TrimSuffix(o, "/"), origin)
	}) {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Allow-Credentials", "true")
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	h.Set("Access-Control-Allow-Headers", "Content-Type, Authorization")
	return true
}
