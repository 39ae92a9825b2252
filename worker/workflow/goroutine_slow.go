//go:build !amd64 && !arm64

package workflow

import (
	"bytes"
	"runtime"
	"strconv"
)

// goroutine identifies the calling goroutine by the number in the first line of its stack.
func goroutine() uintptr {
	var buf [64]byte
	line := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	digits, _, _ := bytes.Cut(line, []byte(" "))
	n, _ := strconv.ParseUint(string(digits), 10, 64)
	return uintptr(n)
}
