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

// readBuffers pools buffers for messages of unknown size. Idle connections have none.
var readBuffers sync.Pool

// errUnjoinedPayload ends the reading of a frame that is too large for a connection in no namespace.
var errUnjoinedPayload = fmt.Errorf("%w before CONNECT was accepted", ErrPayloadTooLarge)

// readMessage reads the next message into memory of exactly its size. It calls limit during the read, since a namespace
// may be joined or left meanwhile; above the limit the error is errUnjoinedPayload. reserve waits for the bytes of a
// message above 16 KiB; nil: they are not counted.
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

// closeWebsocket sends a close frame, waits a moment for a write in progress, and closes the connection.
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

// readCause converts the error of a read to the reason for the connection's end.
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

// linger reads for a moment, so that a peer that is still sending receives the close frame: closing a connection with
// unread bytes resets it and loses the frame.
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
