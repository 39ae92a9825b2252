//go:build race

package worker_test

import "github.com/sojourn-run/sojourn/sandbox"

// limits leave the heap of executors alone: the race detector's own memory goes over every limit on it.
var limits = map[string]sandbox.Limits{sandbox.RuntimeNative: {Data: -1}}
