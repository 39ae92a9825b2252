package httpapi

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A single caller may use all searches of an app. When other callers wait too, the next place goes to another caller
// first.
func TestSearchesAreSharedByNamespaceAndToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSearches()
		loud, quiet := &auth.Principal{TokenID: "loud"}, &auth.Principal{TokenID: "quiet"}
		search := func(namespace string, principal *auth.Principal, outcomes chan<- error) {
			leave, err := s.acquire(t.Context(), namespace, principal)
			if outcomes <- err; err == nil {
				time.Sleep(time.Second)
				leave()
			}
		}
		const flood = 40
		outcomes, others := make(chan error, flood), make(chan error, 2)
		for range flood {
			go search("a", loud, outcomes)
		}
		synctest.Wait()
		if len(outcomes) != maxSearches {
			t.Errorf("a caller alone has %d searches under way, want %d", len(outcomes), maxSearches)
		}
		began := time.Now()
		go search("a", quiet, others)
		go search("b", loud, others)
		for range 2 {
			if err := <-others; err != nil {
				t.Errorf("a bystander: %v", err)
			}
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("bystanders waited %s, want no longer than for the next search to end", took)
		}
		served, refused := 0, 0
		for range flood {
			switch err := <-outcomes; {
			case err == nil:
				served++
			case protocol.ReasonOf(err) == protocol.ReasonThrottled:
				refused++
			default:
				t.Error(err)
			}
		}
		if served < 4*maxSearches || refused == 0 {
			t.Errorf("of the flood %d were served and %d refused", served, refused)
		}
		time.Sleep(time.Minute)
		if used := s.places.Stats().Used; used != 0 {
			t.Errorf("%d places are taken after the end", used)
		}
	})
}
