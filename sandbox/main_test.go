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

// everyRuntime runs a test against each runtime.
func everyRuntime(t *testing.T, o sandbox.Options, test func(*testing.T, *sandboxtest.Bench)) {
	for _, target := range sandboxtest.Targets {
		t.Run(target.Runtime, func(t *testing.T) { test(t, sandboxtest.Open(t, target, o)) })
	}
}

// python opens a pool for tests whose handlers exist only in Python.
func python(t *testing.T, o sandbox.Options) *sandboxtest.Bench {
	return sandboxtest.Open(t, sandboxtest.Targets[2], o)
}

func TestExecutors(t *testing.T) {
	for _, target := range sandboxtest.Targets {
		t.Run(target.Runtime, func(t *testing.T) {
			t.Parallel()
			sandboxtest.Run(t, target)
		})
	}
}

// Sequential calls of a session run on one thread, so that Python libraries can use objects that are bound to the
// thread that created them.
func TestPythonCallsOneAfterTheOtherShareAThread(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Open(t, sandboxtest.Targets[2], sandbox.Options{})
	for want := 1; want <= 300; want++ {
		if got := sandboxtest.Got[int](t, b.Run(sandboxtest.In("s", 1, b.Call("rows")))); got != want {
			t.Fatalf("call %d counted %d rows", want, got)
		}
	}
}
