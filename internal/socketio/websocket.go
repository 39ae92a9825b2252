package socketio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sojourn-run/sojourn/internal/budget"
)

// readBuffers are where messages are read into before their size is known. Idle connections hold none.
var readBuffers sync.Pool

// errUnjoinedPayload ends the reading of a frame that is too large for a connection in no namespace.
var errUnjoinedPayload = fmt.Errorf("%w before CONNECT was accepted", ErrPayloadTooLarge)

// readMessage reads the next message into memory of exactly its size. limit is asked while the message is read, since
// a namespace may be joined or left meanwhile; above it the error is errUnjoinedPayload. reserve waits for the bytes of
// a message above 16 KiB; nil: they are not counted.
func readMessage(
	ws *websocket.Conn, limit func() int, reserve func() (*budget.Grant, error),
) (kind int, data []byte, grant *budget.Grant, err error) {
	kind, r, err := ws.NextReader()
	if err != nil {
		return 0, nil, nil, err
	}
	reserved := reserve == nil
	defer func() {
		if err != nil {
			grant.Release()
			grant = nil
		}
	}()
	buf, ok := readBuffers.Get().(*bytes.Buffer)
	if !ok {
		buf = new(bytes.Buffer)
	}
	buf.Reset()
	for {
		buf.Grow(bytes.MinRead)
		n, err := r.Read(buf.AvailableBuffer()[:buf.Available()])
		buf.Write(buf.AvailableBuffer()[:n])
		if buf.Len() > limit() {
			return 0, nil, grant, errUnjoinedPayload
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, nil, grant, err
		}
		if !reserved && buf.Len() > DefaultMaxUnjoinedPayload {
			reserved = true
			if grant, err = reserve(); err != nil {
				return 0, nil, nil, err
			}
		}
	}
	data = bytes.Clone(buf.Bytes())
	grant.MayBeCut(nil)
	grant.Shrink(frameFactor * int64(len(data)))
	if buf.Cap() <= 1<<20 {
		readBuffers.Put(buf)
	}
	return kind, data, grant, nil
}

// closeWebsocket says goodbye to a peer that reads, waiting a moment for a write that is under way, and closes.
func closeWebsocket(ws *websocket.Conn, cause error) {
	if !errors.Is(cause, ErrSlowPeer) && !errors.Is(cause, ErrPingTimeout) {
		code := websocket.CloseNormalClosure
		switch {
		case errors.Is(cause, ErrServerClosed):
			code = websocket.CloseGoingAway
		case errors.Is(cause, ErrPayloadTooLarge):
			code = websocket.CloseMessageTooBig
		case errors.Is(cause, ErrProtocol):
			code = websocket.CloseProtocolError
		}
		// The connection is closed next, so nothing is lost when this fails.
		_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(time.Second))
	}
	_ = ws.Close()
}

// readCause turns what ended a read into why the connection ended.
func readCause(err error) error {
	var closed *websocket.CloseError
	switch {
	case errors.Is(err, websocket.ErrReadLimit):
		return ErrPayloadTooLarge
	case errors.Is(err, errUnjoinedPayload):
		return err
	case errors.As(err, &closed) && closed.Code == websocket.CloseMessageTooBig:
		return fmt.Errorf("%w for the peer: %w", ErrPayloadTooLarge, err)
	}
	return fmt.Errorf("%w: %w", ErrPeerClosed, err)
}

// linger lets a peer that is still sending see the close frame it was sent: closing at once, with its bytes unread,
// would reset the connection and take the frame with it.
func linger(ws *websocket.Conn, max int) {
	half, ok := ws.NetConn().(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	if ws.NetConn().SetReadDeadline(time.Now().Add(2*time.Second)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, ws.NetConn(), int64(2*max))
}
