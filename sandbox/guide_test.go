package sandbox

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/stated"
	"github.com/sojourn-run/sojourn/sandbox/frame"
	"github.com/sojourn-run/sojourn/sandbox/shim"
)

func TestTheGuideSaysTheLimitsOfExecutors(t *testing.T) {
	const page = "guide/activities.md"
	o := Options{}.withDefaults()
	l := Limits{}.or(defaultLimits(0))
	stated.In(t, page, "Node and Python {}, Go {}; over it, it is ended", scriptMemory, nativeMemory)
	stated.In(t, page, "| files | {} open, {} each, {} and {} in its folder |", l.OpenFiles, l.FileSize, l.ScratchBytes,
		l.ScratchFiles)
	stated.In(t, page, "| processes | {} |", l.Processes)
	stated.In(t, page, "| code of a handler | {} |", maxCode)
	stated.In(t, page, "those from {} on pass through memory that the worker has too, which an executor idle for {} gives back",
		inRoom, idleAfter)
	stated.In(t, page, "| log of one call | {}, {} a line |", maxLogBytes, maxLogLine)
	stated.In(t, page, "| after a cancellation | told at once, SIGTERM after {}, SIGKILL after {} |", o.CancelTerm, o.CancelKill)
	stated.In(t, page, "| at its deadline | told, killed {} later |", o.DeadlineGrace)
	stated.In(t, page, "an executor is used for up to {} calls or {}, one after another", reuseCalls, reuseAge)
	stated.In(t, page, "What no worker used for {} goes with the next installation.", packagesKept)
	fewest := max(4, runtime.NumCPU())
	if least, most := capacity(0, 1<<30), capacity(1<<50, 1); least != min(64, fewest) || most != 64 {
		t.Errorf("a worker has %d to %d executors", least, most)
	}
	stated.In(t, page, "| executors of a worker | by its memory, 4 to 64, and no fewer than it has cores |")

	// The library of each language has its own; that of Go is looked at beside it.
	stated.In(t, page, "| signs of life | passed on every {} at most |", 100*time.Millisecond)
	for name, program := range map[string]string{
		"\nconst THROTTLE_MS = 100;\n": string(shim.Node), "\nTHROTTLE = 0.1\n": string(shim.Python),
	} {
		if !strings.Contains(program, name) {
			t.Errorf("a shim does not say %q", name)
		}
	}

	const held = "guide/isolation.md"
	stated.In(t, held, "| processes | over {} ended by the minder; threads of all of them together refused from {} on | "+
		"over {}, or {} threads, ended", l.Processes, l.Threads, l.Processes, l.Threads)
	stated.In(t, held, "| `auto` | {}-{} where that can be; the default |", firstUser, lastUser)

	stated.In(t, "security.md", "a file in memory that large values pass through, of {}, sealed", frame.DefaultLimits.Body&^(1<<20-1))
	stated.In(t, "security.md", "is noticed, within {} while a call runs, and the worker ends", silenceTime)
}
