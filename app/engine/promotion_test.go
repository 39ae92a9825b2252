package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The last sixteen promotions can be rolled back one by one; older ones are not stored.
func TestTheLastSixteenPromotionsCanBeRolledBack(t *testing.T) {
	key, now := QueueKey{Namespace: "default", Name: "q"}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var q *Queue
	decide := func(in QueueChange) error {
		next, err := DecideQueue(q, key, in, now)
		if now = now.Add(time.Minute); err == nil {
			q = &next
		}
		return err
	}
	build := func(n int) string { return fmt.Sprint("v", n) }
	for n := range 20 {
		if err := decide(PromoteBuild{BuildID: build(n)}); err != nil {
			t.Fatal(err)
		}
	}
	for n := 19; n > 19-16; n-- {
		if err := decide(RollbackBuild{BuildID: build(n)}); err != nil || q.Promoted != build(n-1) {
			t.Fatalf("after the rollback of %s new runs use build %s, %v", build(n), q.Promoted, err)
		}
	}
	if err := decide(RollbackBuild{BuildID: q.Promoted}); protocol.ReasonOf(err) != protocol.ReasonNoEarlier {
		t.Errorf("the seventeenth: %v, new runs go to %s", err, q.Promoted)
	}
}
