package link

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/internal/certs"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// These are the values of the setting link: kinds of connections to the app.
const (
	WayAuto   = "auto"   // a socket; if no socket can be opened, HTTP
	WaySocket = "socket" // Socket.IO over a websocket
	WayHTTP   = "http"   // plain requests and long polls
)

// To returns the carrier to the apps at urls; an empty way is WayAuto.
func To(way string, urls []string) Carrier { return Over(way, urls, nil) }

// Over is like To, with a TLS configuration for https URLs.
func Over(way string, urls []string, rules certs.Rules) Carrier {
	switch way {
	case WaySocket:
		return &Socket{URLs: urls, TLS: rules}
	case WayHTTP:
		return &HTTP{URLs: urls, TLS: rules}
	}
	return &Auto{Socket: &Socket{URLs: urls, TLS: rules}, HTTP: &HTTP{URLs: urls, TLS: rules}}
}

// Auto is the carrier that prefers a socket and uses HTTP if an app responds to requests but no socket can be opened to
// it.
type Auto struct {
	Socket *Socket
	HTTP   *HTTP
}

// Dial tries the socket, then HTTP, and then the socket once more, because the app may not have been ready for sockets
// at the first try.
func (c *Auto) Dial(ctx context.Context, hello protocol.ChannelAuth, notices protocol.WorkerNotices) (Conn, error) {
	conn, err := c.socket(ctx, hello, notices)
	var refused *Refused
	if err == nil || errors.As(err, &refused) || ctx.Err() != nil {
		return conn, err
	}
	plain, plainErr := c.HTTP.Dial(ctx, hello, notices)
	if plainErr != nil {
		if errors.As(plainErr, &refused) {
			return nil, plainErr
		}
		return nil, err
	}
	if conn, err := c.socket(ctx, hello, notices); err == nil {
		plain.Close()
		return conn, nil
	}
	return plain, nil
}

// socket uses a third of the time, because some proxies do not respond at all to protocols that they do not support.
func (c *Auto) socket(ctx context.Context, hello protocol.ChannelAuth, notices protocol.WorkerNotices) (Conn, error) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/3)
		defer cancel()
	}
	return c.Socket.Dial(ctx, hello, notices)
}

// Apps returns the number of configured app URLs.
func (c *Auto) Apps() int { return c.Socket.Apps() }
