// Package stack runs functions on goroutines with a large initial stack, and parses stack traces.
package stack

// A goroutine starts with a stack of a few kilobytes. When it is full, the runtime copies it to a stack of twice the
// size. A request of a worker runs in a short-lived goroutine through ten packages, and copying its stack took a
// twentieth of the processor time. Copying an almost empty stack is cheap.

// size is approximately the stack size of a report on its way from the worker through the app to the store's queue.
const size = 16 << 10

// touched prevents the compiler from removing the frame.
var touched int

// Grow enlarges the stack of the calling goroutine, for code that calls through many packages. Call it in the first
// line of a goroutine.
//
//go:noinline
func Grow() byte {
	var room [size]byte
	return room[touched]
}
