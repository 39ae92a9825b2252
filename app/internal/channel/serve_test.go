package channel_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sojourn-run/sojourn/app/internal/channel"
	room "github.com/sojourn-run/sojourn/app/internal/workerconn"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// nothing is an app for tests that call no method of it.
type nothing struct{ protocol.WorkerVerbs }

// among returns a separate connection registry for the workers of a test.
func among(t *testing.T, verbs protocol.WorkerVerbs, o room.Options) *room.Registry {
	t.Helper()
	o.Release = "test"
	peers := room.New(verbs, o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), ceiling)
		defer cancel()
		if err := peers.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return peers
}

// serve starts an HTTP server with a separate channel and returns its address.
func serve(t *testing.T, c *channel.Channel) string {
	t.Helper()
	s := httptest.NewServer(c)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), ceiling)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return s.URL
}

// authenticate accepts callers while the value in the channel is true.
func authenticate(valid chan bool) channel.Authenticate {
	return func(context.Context, string, *http.Request) (any, error) {
		ok := <-valid
		valid <- ok
		if !ok {
			return nil, protocol.Refuse(protocol.ReasonUnauthorized, "revoked")
		}
		return "somebody", nil
	}
}

func (nothing) CheckVisible(context.Context, string, string) error { return nil }
func (nothing) Gated(string, string) bool                          { return false }
