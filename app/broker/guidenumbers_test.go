package broker

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysTheNumbersOfTheBroker(t *testing.T) {
	o := Options{}.defaults()
	stated.In(t, "guide/http-api.md", "a `poll_request_id` sent again within {} gets the same lease again", pollKept)
	stated.In(t, "guide/workers-in-any-language.md", "After {} silent seconds it is stale.", int(o.Alive.Seconds()))
	stated.In(t, "guide/fleets.md", "It is `stale` {} after its last sign of life.", o.Alive)
}
