// Package stack runs functions on goroutines with a large initial stack, and parses stack traces.
package stack

// A goroutine starts on a stack of a few kilobytes, which the runtime copies to one of twice the size each time it is
// outgrown. A step is a goroutine that lives for a moment and goes through ten packages: copying was a twentieth of all
// processor time. While next to nothing is on the stack, a copy costs next to nothing.

// size is roughly the stack size of a report on its way from the worker through the app to the store's queue.
const size = 16 << 10

// touched prevents the compiler from removing the frame.
var touched int

// Grow has this goroutine's stack be large enough for the way of a step. It is for the first line of a goroutine.
//
//go:noinline
func Grow() byte {
	var room [size]byte
	return room[touched]
}
