package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
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

// An administrator of some namespaces sets endpoints with the maximum length. The header stays small enough for reverse
// proxies, and the endpoints of other namespaces stay in it.
func TestLongCodecEndpointsAreLeftOut(t *testing.T) {
	const own = "https://codec.example.com/decode"
	urls := []string{own, own}
	for i := range 50 {
		urls = append(urls, fmt.Sprintf("https://%d.example.com/%s", i, strings.Repeat("x", 950)))
	}
	got := fitting(urls)
	if !slices.Contains(got, own) || len(got) != 3 || len(strings.Join(got, " ")) > maxEndpointBytes {
		t.Errorf("%d endpoints of %d bytes: %.60q", len(got), len(strings.Join(got, " ")), got)
	}
}

func TestGuideStatesHowManyCodecEndpointsThePolicyHas(t *testing.T) {
	docnumbers.In(t, "guide/encryption.md", "The policy has room for {} of such URLs over all namespaces", maxEndpointBytes)
}
