package sessiontest

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// An activity soon after the last renewal does not change the session's row and its lease. The worker renews by the
// stored lease and not by its last activity, so that a pause after such an activity loses nothing with the default
// settings.
func TestStepThatExtendsNoLeaseDoesNotDelayItsRenewal(t *testing.T) {
	for _, pause := range []int{4, 9} { // seconds: within a third of the lease
		bubble(t, "", func(h *harness) {
			h.flow("pauses", func(ctx workflow.Context) error {
				for i, item := range []string{"first", "second", "third"} {
					if i > 0 {
						wait := pause
						if i == 2 {
							wait = 120
						}
						if err := workflow.Sleep(ctx, time.Duration(wait)*sec); err != nil {
							return err
						}
					}
					if _, err := in(ctx, "s", item, 1); err != nil {
						return err
					}
				}
				return nil
			})
			h.start("a", byDefault)
			h.start("b", byDefault)
			h.finish(h.begin("pauses"))
			first, third := h.once("first"), h.once("third")
			if third.worker != first.worker || third.session.Epoch != first.session.Epoch || third.session.IsNew {
				t.Errorf("with a pause of %d s: %+v after %+v", pause, third, first)
			}
			h.equal("timeline", h.timeline("s"), []string{"claimed"})
		})
	}
}
