package app

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// codecEndpoints reads the codec endpoints of all namespaces for the content security policy of the dashboard, which is
// one page for all namespaces.
type codecEndpoints struct {
	namespaces interface {
		Namespaces(ctx context.Context, visible func(string) bool) ([]protocol.NamespaceView, error)
	}

	mu   sync.Mutex // guards the fields below
	list []string
	read time.Time
}

// endpointsAge is how long the list is cached: requests for the page need no token, so they must not each read the
// database.
const endpointsAge = 2 * time.Second

// maxEndpointBytes limits the header with the policy. Reverse proxies refuse responses with large headers: nginx has a
// buffer of 4 KiB by default. Without a limit, an administrator of one namespace could make the dashboard fail for all.
const maxEndpointBytes = 2 << 10

// urls returns the URLs, sorted by length. If they cannot be read it returns those of the last read.
func (e *codecEndpoints) urls(ctx context.Context) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.read.IsZero() && time.Since(e.read) < endpointsAge {
		return e.list
	}
	// The list is for all requests: a caller that disconnects must not end the read.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endpointsAge)
	defer cancel()
	all, err := e.namespaces.Namespaces(ctx, func(string) bool { return true })
	e.read = time.Now()
	if err != nil {
		return e.list
	}
	e.list = nil
	for _, n := range all {
		if n.CodecEndpoint != "" {
			e.list = append(e.list, n.CodecEndpoint)
		}
	}
	e.list = fitting(e.list)
	return e.list
}

// fitting returns the distinct URLs, sorted by length, that together have at most maxEndpointBytes. The longest ones
// are left out.
func fitting(urls []string) []string {
	slices.SortFunc(urls, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
	urls = slices.Compact(urls)
	n := 0
	for i, u := range urls {
		if n += len(u) + 1; n > maxEndpointBytes {
			return urls[:i]
		}
	}
	return urls
}
