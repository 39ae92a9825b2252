package sandbox

import (
	"fmt"
	"os"
	"time"

	lib "github.com/sojourn-run/sojourn/sandbox/internal/executor"
)

// nativeName is the first argument of a process that serves [Native].
const nativeName = "sojourn-native"

// mainRan reports that Main ran, so that starting this binary again creates an executor and not a second worker.
var mainRan bool

// Main runs this process as an executor if it was started as one, and then never returns; otherwise it does nothing.
// Call it first in main and in TestMain. The given functions fill [Native]. Processes that were started as supervisors
// do not reach Main.
func Main(fill ...func(Handlers)) {
	if len(os.Args) > 0 && os.Args[0] == proberName {
		if len(os.Args) > 1 { // a process that a probe started to exceed the limit of processes: it only waits
			time.Sleep(probeTime)
			os.Exit(0)
		}
		probe()
		os.Exit(0)
	}
	for _, f := range fill {
		f(Native)
	}
	if IsExecutor() {
		if err := lib.Serve(Native); err != nil {
			fmt.Fprintln(os.Stderr, "executor:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	mainRan = true
}

// IsExecutor reports whether this process was started to serve [Native].
func IsExecutor() bool { return len(os.Args) > 0 && os.Args[0] == nativeName }
