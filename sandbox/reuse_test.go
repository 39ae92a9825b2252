package sandbox_test

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/sandbox"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// Outside sessions an executor serves up to a hundred calls, for up to ten minutes.
func TestAnExecutorIsUsedForAHundredCallsOrTenMinutes(t *testing.T) {
	b := native(t, sandbox.Options{Blank: -1})
	pid := func() int {
		t.Helper()
		return Got[int](t, b.Run(b.Call("pid")))
	}
	waits := func() bool { return b.Idle() == 1 }
	first := pid()
	for n := 2; n <= 100; n++ {
		Eventually(t, "it waits for another call", waits)
		if got := pid(); got != first {
			t.Fatalf("call %d is served by %d, the first was by %d", n, got, first)
		}
	}
	Eventually(t, "it has ended", func() bool { return Gone(first) })
	second := pid()
	if second == first {
		t.Error("it serves a hundred and one calls")
	}
	Eventually(t, "it waits for another call", waits)
	b.Age(10*time.Minute - 5*time.Second)
	if got := pid(); got != second {
		t.Error("it is used for less than ten minutes")
	}
	Eventually(t, "it waits for another call", waits)
	b.Age(5 * time.Second)
	if got := pid(); got == second {
		t.Error("it is used for more than ten minutes")
	}
}
