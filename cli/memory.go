package cli

import (
	"os"
	"runtime/debug"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/process"
)

// leastMemory is what this process counts with, however much executors may have.
const leastMemory = 64 << 20

// uncounted is what a process uses at least outside of the memory that the Go runtime counts.
const uncounted = 64 << 20

// memory is how many bytes this process may use: what the machine has, or its control group allows, less what executors
// may have where a worker runs here. limited says that a control group is the reason.
func (s *settings) memory() (bytes int64, limited bool) {
	total, limited := sandbox.Memory()
	bytes = total
	if s.Role.RunsWorker() {
		executors := int64(s.ExecutorMemory) << 20
		if executors == 0 {
			executors = total / 4 * 3
		}
		bytes = max(leastMemory, total-executors)
	}
	return bytes, limited
}

// limitMemory has the garbage collector keep this process within the memory that its control group allows. GOMEMLIMIT
// wins. It returns how many bytes the process may use.
func (s *settings) limitMemory() int64 {
	bytes, limited := s.memory()
	switch {
	case os.Getenv("GOMEMLIMIT") != "":
		bytes = min(bytes, debug.SetMemoryLimit(-1))
	case limited:
		soft, hard := memoryLimits(bytes)
		process.LimitMemory(soft, hard)
		s.Log.Info().Int64("bytes", hard).Msg("memory limit of the Go runtime set from the control group")
	}
	return bytes
}

// memoryLimits are those of the Go runtime in a process that may use so many bytes. The control group counts what the
// runtime does not: SQLite's pages, buffers of connections, files that the kernel caches. The soft limit keeps the
// process, with those, at half of its memory as long as it needs no more.
func memoryLimits(bytes int64) (soft, hard int64) {
	hard = bytes - min(bytes/2, max(bytes/6, uncounted))
	return min(bytes/3, hard), hard
}

// inFlight is how much of the memory requests and responses may take at once.
func inFlight(memory int64) int64 { return memory / 8 }
