package httpapi

import (
	"sync"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A search that no index bounds reads for as long as it may. A limit for each caller, and not one for all, keeps
// somebody who asks for much of it from making the others wait.

// mostSearches is how many listings with a filter or a text one caller may have under way. What no index answers reads
// for as long as it may: one caller who asks for much of it must not take the database from all others.
const mostSearches = 4

// searches counts the searches under way by caller.
type searches struct {
	mu sync.Mutex
	by map[string]int
}

// enter begins a search, or refuses it with throttled. What it returns ends the search.
func (s *searches) enter(who *auth.Principal) (leave func(), err error) {
	caller := string(who.Method) + " " + who.TokenID + " " + who.Name
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[caller] >= mostSearches {
		return nil, protocol.Refuse(
			protocol.ReasonThrottled, "%d searches of this caller are under way: wait for one of them", mostSearches,
		)
	}
	if s.by == nil {
		s.by = map[string]int{}
	}
	s.by[caller]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.by[caller]--; s.by[caller] == 0 {
			delete(s.by, caller)
		}
	}, nil
}
