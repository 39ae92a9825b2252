package broker

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestHashesOfOutcomesDiffer(t *testing.T) {
	blob := func(s string) payload.Payload { return payload.Payload{Blob: s} }
	known := map[string]int{}
	for i, commands := range [][]protocol.Command{
		{},
		{{Type: protocol.CompleteWorkflow}},
		{{Type: protocol.CompleteWorkflow, Result: blob("a")}},
		{{Type: protocol.CompleteWorkflow, Result: blob("b")}},
		{{Type: protocol.CompleteWorkflow, Arguments: blob("a")}},
		{{Type: protocol.CompleteWorkflow, Entries: blob("a")}},
		{{Type: protocol.FailWorkflow, Message: "a"}},
		{{Type: protocol.ScheduleActivity, Arguments: blob("ab")}, {Type: protocol.ScheduleActivity, Arguments: blob("c")}},
		{{Type: protocol.ScheduleActivity, Arguments: blob("a")}, {Type: protocol.ScheduleActivity, Arguments: blob("bc")}},
		{
			{Type: protocol.ScheduleActivity, Arguments: blob("ab"), ActivityType: "c"},
			{Type: protocol.ScheduleActivity, Arguments: blob("c")},
		},
	} {
		h := hashCommands(commands)
		if before, taken := known[h]; taken || !strings.HasPrefix(h, bytesMark) {
			t.Errorf("commands %d have the hash %q of commands %d", i, h, before)
		}
		if known[h] = i; hashCommands(commands) != h {
			t.Errorf("commands %d have two hashes", i)
		}
	}
	if hashResult("a") == hashResult("b") {
		t.Error("two results have one hash")
	}
}

// Hashes that an earlier release stored are recognized.
func TestOutcomesOfThePreviousReleaseAreAccepted(t *testing.T) {
	in := &protocol.CompleteItem{Result: payload.Payload{Blob: "result"}}
	for _, c := range []struct {
		stored string
		want   bool
	}{
		{"9a40b5d4ba9ed67a74c72ae4", false},
		{hashOf("result"), true},
		{hashResult("result"), true},
		{hashOf("another"), false},
		{hashResult("another"), false},
	} {
		if got := sameOutcome(in, c.stored, hashResult("result")); got != c.want {
			t.Errorf("%s: %t, want %t", c.stored, got, c.want)
		}
	}
}
