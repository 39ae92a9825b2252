package sandbox_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/sandbox"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// Executors have a default memory limit. An executor that exceeds it is ended, and the failure reports the reason.
func TestMemoryIsLimitedByDefault(t *testing.T) {
	if Race {
		t.Skip("the race detector needs more memory than there is by default")
	}
	everyRuntime(t, sandbox.Options{Blank: -1}, func(t *testing.T, b *Bench) {
		WantType(t, b.Fail(In("s", 1, b.Call("hog"))), sandbox.OutOfMemory)
	})
}
