package worker

import (
	"runtime"
	"testing"
)

// A worker runs more Go activities than executor activities concurrently, because Go code mostly waits and each
// executor is a process. The number of concurrent activities in an implicit session is the same in both cases.
func TestSlotsByWhatRunsThem(t *testing.T) {
	few := 2 * runtime.GOMAXPROCS(0)
	if all, together := (&Worker{}).defaultSlots(); all != max(128, few) || together != few {
		t.Errorf("Go functions: %d, %d in a session", all, together)
	}
	if all, together := (&Worker{executes: true}).defaultSlots(); all != few || together != 0 {
		t.Errorf("with executors: %d, %d in a session", all, together)
	}
	if o := (Options{}).defaults(); o.Workflows != 256 {
		t.Errorf("%d workflow tasks at once", o.Workflows)
	}
}
