package app

import (
	"context"
	"slices"
	"testing"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// oneEndpoint lists a namespace with a codec endpoint, unless the context has ended.
type oneEndpoint struct{}

func (oneEndpoint) Namespaces(ctx context.Context, _ func(string) bool) ([]protocol.NamespaceView, error) {
	return []protocol.NamespaceView{{CodecEndpoint: "https://codec.example.com/decode"}}, ctx.Err()
}

// Requests for the page need no token. Otherwise a caller that disconnects at once could remove the endpoints from the
// policy of all other viewers.
func TestARequestThatEndsDoesNotEmptyTheListOfCodecEndpoints(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	e := codecEndpoints{namespaces: oneEndpoint{}}
	e.urls(ended)
	if got := e.urls(t.Context()); !slices.Equal(got, []string{"https://codec.example.com/decode"}) {
		t.Errorf("got %q", got)
	}
}
