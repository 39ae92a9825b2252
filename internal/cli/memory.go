package cli

import (
	"os"
	"runtime/debug"

	"github.com/sojourn-run/sojourn/internal/process"
	"github.com/sojourn-run/sojourn/sandbox"
)

// minMemory is the minimum that settings.memory returns, regardless of executor-memory.
const minMemory = 64 << 20

// memoryOutsideRuntime is the minimum memory of a process that the Go runtime does not count.
const memoryOutsideRuntime = 64 << 20

// memory returns how many bytes this process may use: the limit of its control group, or else the memory of the
// machine, minus executor-memory if a worker runs in the process. limited reports whether a control group sets the
// limit.
func (s *settings) memory() (bytes int64, limited bool) {
	total, limited := sandbox.Memory()
	bytes = total
	if s.Role.RunsWorker() {
		executors := int64(s.ExecutorMemory) << 20
		if executors == 0 {
			executors = total / 4 * 3
		}
		bytes = max(minMemory, total-executors)
	}
	return bytes, limited
}

// limitMemory sets the memory limit of the Go runtime from the control group, unless GOMEMLIMIT is set. It returns how
// many bytes the process may use.
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

// memoryLimits returns the soft and the hard memory limit of the Go runtime in a process that may use the given bytes.
// The control group also counts SQLite's page cache, buffers of connections, and the kernel's page cache. The soft
// limit keeps the process, including these, at half of its memory while the live heap allows that.
func memoryLimits(bytes int64) (soft, hard int64) {
	hard = bytes - min(bytes/2, max(bytes/6, memoryOutsideRuntime))
	return min(bytes/3, hard), hard
}

// inFlight returns how many bytes requests and responses in flight may use, in a process that may use the given memory.
func inFlight(memory int64) int64 { return memory / 8 }
