package workflowtest

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysHowLongATestWaits(t *testing.T) {
	stated.In(t, "guide/workflows-in-go.md", "after {} of virtual time in which nothing moved (`SetPatience`)", standstill)
	stated.In(t, "guide/workflows-in-go.md", "after {} of real time in its code without a call", busyLimit)
}
