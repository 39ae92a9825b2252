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
