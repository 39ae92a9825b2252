package httpapi

import (
	"context"
	"errors"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A search without a usable index, or an exact count, reads until its time limit. An app runs few of them at once, so
// that they do not starve all other requests of the database. A single caller may use all places; when all are in use,
// the next free place goes to the namespace with the fewest running searches, and within it to the token with the
// fewest.

// maxSearches is the number of searches and exact counts that an app runs at once.
const maxSearches = 4

// searches limits concurrent searches and exact counts.
type searches struct{ places *budget.Budget }

func newSearches() searches { return searches{budget.Places(maxSearches)} }

// acquire waits a few seconds for a place, or refuses the search with throttled. The returned function releases the
// place.
func (s *searches) acquire(ctx context.Context, namespace string, caller *auth.Principal) (release func(), err error) {
	place, err := s.places.Acquire(ctx, caller.Owner(namespace), 1, budget.Ordinary)
	if errors.Is(err, budget.ErrOverloaded) {
		return nil, protocol.Refuse(
			protocol.ReasonThrottled, "%d searches and exact counts are running, which is the maximum; try again", maxSearches,
		)
	}
	if err != nil {
		return nil, err
	}
	return place.Release, nil
}

// limitedSearch is for a route that counts exactly: it counts towards the limit of searches.
func limitedSearch(rt route) route {
	verb := rt.verb
	rt.verb = func(a *API, c *call) (response, error) {
		release, err := a.searches.acquire(c.Ctx, c.NS, c.Principal)
		if err != nil {
			return response{}, err
		}
		defer release()
		return verb(a, c)
	}
	return rt
}
