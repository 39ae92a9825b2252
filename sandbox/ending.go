package sandbox

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"syscall"

	"github.com/sojourn-run/sojourn/sandbox/internal/supervisor"
)

// ending describes why an executor ended: the cause that its session receives, and the type and message of the errors
// of its calls in flight.
type ending struct {
	cause   Cause
	kind    ErrorType
	message string
	stack   string
	details json.RawMessage
	by      *call // the call that caused it; nil: unknown
}

// err returns the error of a call that was in flight when the executor ended.
func (e ending) err() *Error {
	return &Error{Type: e.kind, Message: e.message, Stack: e.stack, Retryable: true, Details: e.details}
}

// explain returns the ending for an executor that the worker did not stop. printed is the end of the executor's stderr.
func explain(end supervisor.Fact, printed string) ending {
	details, _ := json.Marshal(struct {
		Exit   int   `json:"exit"`
		Signal int   `json:"signal,omitempty"`
		Peak   int64 `json:"peak_bytes,omitempty"`
	}{end.Exit, end.Signal, end.Peak})
	printed = plainPlaces(printed)
	e := ending{cause: CauseCrash, kind: Crashed, stack: printed, details: details}
	signal := syscall.Signal(end.Signal)
	switch {
	case end.Error != "":
		e.kind, e.message = Unavailable, end.Error
	case printedOutOfMemory(end, printed):
		e.cause, e.kind, e.message = CauseOutOfMemory, OutOfMemory, "the executor ran out of memory"
	case signal == syscall.SIGXCPU:
		e.cause, e.kind, e.message = CauseDeadline, DeadlineExceeded, "the executor used up its processor time"
	case signal == syscall.SIGXFSZ:
		e.cause, e.kind, e.message = CauseQuota, QuotaExceeded, "the executor wrote a file over the limit"
	case signal == syscall.SIGSYS:
		e.kind, e.message = ForbiddenSyscall, "the executor made a forbidden system call"
	case end.Signal != 0:
		e.message = fmt.Sprintf("the executor was ended by signal %d (%s)", end.Signal, signal)
	default:
		e.message = fmt.Sprintf("the executor exited with status %d", end.Exit)
		if uncaughtError := uncaught(printed); uncaughtError != "" {
			e.message += ": " + uncaughtError
		}
	}
	return e
}

// uncaught returns the line of stderr with an uncaught exception or panic. Node prints it before the first stack frame;
// Go starts it with "panic: " or "fatal error: ".
func uncaught(printed string) string {
	before := ""
	for line := range strings.Lines(printed) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return line
		}
		if strings.HasPrefix(line, "    at ") {
			return before
		}
		before = strings.TrimSpace(line)
	}
	return ""
}

// handlerModule matches the URL of a handler's module in Node. The URL contains the version, so that each version is a
// separate module.
var handlerModule = regexp.MustCompile(`file://(/[^\s?)]*)\?hash=[0-9a-f]+`)

// plainPlaces replaces the URLs of handler modules in a text by the paths of the files.
func plainPlaces(printed string) string {
	return handlerModule.ReplaceAllStringFunc(printed, func(address string) string {
		path, _, _ := strings.Cut(strings.TrimPrefix(address, "file://"), "?")
		if plain, err := url.PathUnescape(path); err == nil {
			return plain
		}
		return path
	})
}

// outOfMemory returns the ending for an out-of-memory fact.
func outOfMemory(f supervisor.Fact, limit int64) ending {
	e := ending{cause: CauseOutOfMemory, kind: OutOfMemory}
	switch {
	case f.Around:
		e.message = fmt.Sprintf(
			"the machine, or the control group that the worker is in, ran out of memory; the executor had %d MiB of its %d MiB",
			f.Bytes>>20, limit>>20,
		)
	case f.By == supervisor.Watchdog:
		e.message = fmt.Sprintf("%d MiB resident exceed the limit of %d MiB", f.Bytes>>20, limit>>20)
	default:
		e.message = fmt.Sprintf("%d MiB reach the limit of %d MiB, and the kernel allows no more", f.Bytes>>20, limit>>20)
	}
	e.details, _ = json.Marshal(struct {
		Peak  int64  `json:"peak_bytes"`
		Limit int64  `json:"limit_bytes"`
		By    string `json:"by"`
	}{f.Bytes, limit, f.By})
	return e
}

// printedOutOfMemory recognizes the last output of runtimes that ran out of heap memory, which is the only sign if a
// process reaches its own heap limit.
func printedOutOfMemory(end supervisor.Fact, printed string) bool {
	aborted := end.Signal != 0 || end.Exit > 128
	for _, w := range []struct {
		words string
		fits  bool
	}{
		{"JavaScript heap out of memory", aborted},
		{"Allocation failed", aborted},
		{"std::bad_alloc", aborted},
		{"executor: out of memory", end.Exit == 70}, // exit code of the Python shim when it cannot read a frame
		{"RangeError: Array buffer allocation failed", end.Exit != 0},
		{"runtime: out of memory", end.Exit == 2},
		{"cannot allocate memory", end.Exit == 2}, // Go
		{"fatal error: out of memory", end.Exit == 2},
	} {
		if w.fits && strings.Contains(printed, w.words) {
			return true
		}
	}
	return false
}
