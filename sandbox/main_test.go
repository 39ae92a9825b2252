package sandbox_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	sandbox.Main(sandboxtest.Handlers)
	helper()
	busy()
	sandboxtest.Enter()
	install()
	goleak.VerifyTestMain(m)
}

func TestExecutors(t *testing.T) {
	for _, target := range sandboxtest.Targets {
		t.Run(target.Runtime, func(t *testing.T) {
			t.Parallel()
			sandboxtest.Run(t, target)
		})
	}
}

// What a Python library binds to the thread that made it, a session keeps from call to call: calls one after the other
// run on one thread.
func TestPythonCallsOneAfterTheOtherShareAThread(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Open(t, sandboxtest.Targets[2], sandbox.Options{})
	for want := 1; want <= 300; want++ {
		if got := sandboxtest.Got[int](t, b.Run(sandboxtest.In("s", 1, b.Call("rows")))); got != want {
			t.Fatalf("call %d counted %d rows", want, got)
		}
	}
}
