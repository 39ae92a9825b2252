package sandbox

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
	"github.com/sojourn-run/sojourn/sandbox/frame"
	"github.com/sojourn-run/sojourn/sandbox/internal/shim"
)

func TestGuideStatesTheLimitsOfExecutors(t *testing.T) {
	const page = "guide/activities.md"
	o := Options{}.withDefaults()
	l := Limits{}.or(defaultLimits(0))
	docnumbers.In(t, page, "Node and Python {}, Go {}; above it, the executor is ended", scriptMemory, nativeMemory)
	docnumbers.In(t, page, "| files | {} open, {} each, {} and {} in its directory |", l.OpenFiles, l.FileSize, l.ScratchBytes,
		l.ScratchFiles)
	docnumbers.In(t, page, "| processes | {} |", l.Processes)
	docnumbers.In(t, page, "| code of a handler | {} |", maxCode)
	docnumbers.In(t, page, "values from {} on pass through shared memory, which an executor frees when it is idle for {}",
		minShared, idleAfter)
	docnumbers.In(t, page, "| log of one call | {}, {} a line |", maxLogBytes, maxLogLine)
	docnumbers.In(t, page, "| after a cancellation | notified at once, SIGTERM after {}, SIGKILL after {} |", o.CancelTerm, o.CancelKill)
	docnumbers.In(t, page, "| at its deadline | notified, killed {} later |", o.DeadlineGrace)
	docnumbers.In(t, page, "an executor is used for up to {} calls or {}, one after another", reuseCalls, reuseAge)
	docnumbers.In(t, page, "The next installation removes packages that no worker has used for {}.", packagesRetention)
	fewest := max(4, runtime.NumCPU())
	if least, most := capacity(0, 1<<30), capacity(1<<50, 1); least != min(64, fewest) || most != 64 {
		t.Errorf("a worker has %d to %d executors", least, most)
	}
	docnumbers.In(t, page, "| executors of a worker | by its memory, 4 to 64, and at least the number of cores |")

	// Each language's library defines the interval separately; the test checks the constants of the shims too. F
	docnumbers.In(t, page, "| heartbeats | passed on every {} at most |", 100*time.Millisecond)
	for name, program := range map[string]string{
		"\nconst THROTTLE_MS = 100;\n": string(shim.Node), "\nTHROTTLE = 0.1\n": string(shim.Python),
	} {
		if !strings.Contains(program, name) {
			t.Errorf("a shim does not say %q", name)
		}
	}

	const held = "guide/isolation.md"
	docnumbers.In(t, held, "| processes | over {} ended by the supervisor; threads of all of them together refused from {} on | "+
		"over {}, or {} threads, ended", l.Processes, l.Threads, l.Processes, l.Threads)
	docnumbers.In(t, held, "| `auto` | {}-{} if possible; the default |", firstUser, lastUser)

	docnumbers.In(t, "security.md", "a file in memory that large values pass through, of {}, sealed", frame.DefaultLimits.Body&^(1<<20-1))
	docnumbers.In(t, "security.md", "is noticed, within {} while a call runs, and the worker ends", silenceTime)
}
