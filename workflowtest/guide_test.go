package workflowtest

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesHowLongATestWaits(t *testing.T) {
	docnumbers.In(t, "guide/testing.md", "after {} of virtual time in which nothing moved (`SetPatience`)", standstill)
	docnumbers.In(t, "guide/testing.md", "after {} of real time in its code without a call", busyLimit)
}
