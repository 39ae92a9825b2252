package app

import (
	"context"
	"slices"
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

// urls returns the URLs, sorted. If they cannot be read it returns those of the last read.
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
	slices.Sort(e.list)
	e.list = slices.Compact(e.list)
	return e.list
}
