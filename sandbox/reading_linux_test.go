package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sojourn-run/sojourn/sandbox"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// A thread that blocks in a read from the socket is also woken whenever the socket becomes writable, which happens each
// time the worker reads a result. This wake-up is useless and slows the worker. Therefore Python's reader thread polls
// for readability only.
func TestPythonReaderIsNotWokenByResponses(t *testing.T) {
	b := python(t, sandbox.Options{Blank: -1})
	for _, size := range []int{100, 48 << 10} {
		b.Run(In("s", 1, b.Call("main", strings.Repeat("x", size))))
		pid := Got[int](t, b.Run(In("s", 1, b.Call("pid"))))
		var calls []int
		Eventually(t, "all threads wait", func() bool {
			all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
			if err != nil || len(all) < 2 {
				return false
			}
			calls = calls[:0]
			for _, path := range all {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Skip("the kernel does not tell: ", err)
				}
				n, err := strconv.Atoi(strings.Fields(string(text))[0])
				if err != nil {
					return false // it runs
				}
				calls = append(calls, n)
			}
			return true
		})
		for _, n := range calls {
			if n == unix.SYS_RECVFROM || n == unix.SYS_READ {
				t.Errorf("after a call of %d bytes threads wait in the calls %v, and one of them in reading", size, calls)
			}
		}
	}
}
