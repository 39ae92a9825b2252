package engine

import (
	"testing"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The timeouts of awakeables do not count as open timers, as in the worker, which delays timers above the limit.
func TestTimeoutsOfAwakeablesAreNoOpenTimers(t *testing.T) {
	run := &Run{}
	for seq := range int64(protocol.MaxPending) {
		run.awakeableOpened(&history.AwakeableOpened{Sequence: seq + 1})
		run.Timers.Put(seq+1, Timer{Kind: AwakeableTimeout})
	}
	if err := Validate(run, []protocol.Command{{Type: protocol.StartTimer, Delay: new(int64)}}); err != nil {
		t.Errorf("a timer next to %d awakeables: %v", protocol.MaxPending, err)
	}
	more := protocol.Command{Type: protocol.OpenAwakeable}
	if err := Validate(run, []protocol.Command{more}); protocol.ReasonOf(err) != protocol.ReasonStructuralLimit {
		t.Errorf("one more awakeable: %v", err)
	}
}
