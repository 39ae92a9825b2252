package httpapi

import (
	"testing"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// One caller has a bounded number of searches under way, and takes nothing from another.
func TestACallerHasFewSearchesUnderWay(t *testing.T) {
	var s searches
	ann, bob := &auth.Principal{TokenID: "a"}, &auth.Principal{TokenID: "b"}
	var leave func()
	for range mostSearches {
		var err error
		if leave, err = s.enter(ann); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.enter(ann); protocol.ReasonOf(err) != protocol.ReasonThrottled {
		t.Errorf("one more: %v, want throttled", err)
	}
	done, err := s.enter(bob)
	if err != nil {
		t.Errorf("another caller: %v", err)
	}
	done()
	leave()
	if _, err := s.enter(ann); err != nil {
		t.Errorf("after one ended: %v", err)
	}
	if len(s.by) != 1 {
		t.Errorf("%d callers are remembered, want 1", len(s.by))
	}
}
