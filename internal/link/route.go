package link

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// route is the order in which one worker tries the apps: a rendezvous hash of the worker ID and the URLs. It spreads
// the workers evenly over the apps, and the workers of a failed app evenly over the remaining apps. The first app is
// the worker's preferred app.
type route struct {
	mu   sync.Mutex // guards the fields below
	urls []string   // in this worker's order
	at   int        // index in urls of the app that is dialled next
}

// rendezvous sorts the URLs by the hash of each with the worker ID.
func rendezvous(urls []string, worker string) []string {
	urls = slices.Clone(urls)
	hash := func(url string) string {
		sum := sha256.Sum256([]byte(worker + "\n" + url))
		return string(sum[:])
	}
	slices.SortStableFunc(urls, func(a, b string) int { return cmp.Compare(hash(a), hash(b)) })
	return urls
}

// next returns the URL of the next dial; empty without URLs.
func (r *route) next(urls []string, worker string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.urls == nil {
		r.urls = rendezvous(urls, worker)
	}
	if len(r.urls) == 0 {
		return ""
	}
	return r.urls[r.at]
}

// failed switches to the app after url, unless the next dial already uses another app.
func (r *route) failed(url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.urls) > 0 && r.urls[r.at] == url {
		r.at = (r.at + 1) % len(r.urls)
	}
}

// returnWithin is the period over which workers return to their preferred app once it is ready again. Each worker
// returns at a random moment, about a tenth of them within 30 s.
const returnWithin = 10 * time.Minute

// place is the app that a connection leads to, and the route it was dialed from.
type place struct {
	route *route
	url   string
	// check fetches the settings of the app at url if that app is ready.
	check  func(ctx context.Context, url string) (protocol.WorkerSettings, error)
	within time.Duration // 0: returnWithin
}

// preferred returns the URL of the worker's preferred app.
func (p place) preferred() string {
	p.route.mu.Lock()
	defer p.route.mu.Unlock()
	return p.route.urls[0]
}

// Away reports that the connection leads to another app than the one that the worker prefers.
func (p place) Away() bool { return p.preferred() != p.url }

// ReturnWithin returns the time within which the worker returns to its preferred app.
func (p place) ReturnWithin() time.Duration { return cmp.Or(p.within, returnWithin) }

// CheckPreferred fetches the settings of the preferred app if that app is ready.
func (p place) CheckPreferred(ctx context.Context) (protocol.WorkerSettings, error) {
	return p.check(ctx, p.preferred())
}

// Return makes the next dial go to the preferred app.
func (p place) Return() {
	p.route.mu.Lock()
	defer p.route.mu.Unlock()
	p.route.at = 0
}
