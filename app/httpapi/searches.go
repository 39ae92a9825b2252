package httpapi

import (
	"context"
	"errors"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/budget"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A search that no index bounds, and an exact count, read as long as they may. An app has few under way, so that they
// do not take the database from all other requests. A caller alone may have all of them; when they are all under way,
// the next place goes to the namespace, and in it to the token, that has the fewest.

// mostSearches is how many searches and exact counts an app has under way.
const mostSearches = 4

// searches gives places to searches and exact counts.
type searches struct{ places *budget.Budget }

func newSearches() searches { return searches{budget.Places(mostSearches)} }

// enter waits a few seconds for a place, or refuses the search with throttled. The function it returns ends the search.
func (s *searches) enter(ctx context.Context, namespace string, who *auth.Principal) (leave func(), err error) {
	place, err := s.places.Acquire(ctx, who.Owner(namespace), 1, budget.Ordinary)
	if errors.Is(err, budget.ErrOverloaded) {
		return nil, protocol.Refuse(
			protocol.ReasonThrottled, "%d searches and exact counts are under way: try again", mostSearches,
		)
	}
	if err != nil {
		return nil, err
	}
	return place.Release, nil
}

// counted is for a route that counts exactly: it needs a place among the searches.
func counted(rt route) route {
	verb := rt.verb
	rt.verb = func(a *API, c *call) (answer, error) {
		leave, err := a.searches.enter(c.Ctx, c.NS, c.Who)
		if err != nil {
			return answer{}, err
		}
		defer leave()
		return verb(a, c)
	}
	return rt
}
