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

// readBuffers is a pool of buffers for messages of unknown size, so that idle connections have none.
var readBuffers sync.Pool

// errUnjoinedPayload means that a frame is too large for a connection in no namespace.
var errUnjoinedPayload = fmt.Errorf("%w before CONNECT was accepted", ErrPayloadTooLarge)

// readMessage reads the next message into a buffer of its size. It calls limit during the read, since the connection
// may join or leave a namespace in the meantime; above the limit the error is errUnjoinedPayload. reserve acquires
// budget for a message above 16 KiB; nil: no budget.
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

// closeWebsocket sends a close frame, waits briefly for a write in progress, and closes the connection.
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
		// The connection is closed next, so an error can be ignored.
		_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(time.Second))
	}
	_ = ws.Close()
}

// readCause returns the reason for the end of a connection whose read failed.
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

// linger reads briefly, so that a peer that is still sending receives the close frame: closing a connection with unread
// bytes resets it and discards the frame.
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
