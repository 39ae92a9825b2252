package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/sandboxtest"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// helperName is the first argument of a worker that exists to be killed.
const helperName = "sandbox-test-worker"

// busyName is the first argument of one that exists to be stopped for a while.
const busyName = "sandbox-test-busy-worker"

// busy is the whole life of such a worker: it has a call in a session, cancels it when its standard input ends, and
// says how often the session has counted then.
func busy() {
	if len(os.Args) != 3 || os.Args[0] != busyName {
		return
	}
	pool, err := sandbox.NewPool(sandboxtest.Fit(sandbox.Options{Dir: os.Args[1], Handlers: os.Args[2]}))
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	call := func(ctx context.Context, entry string) (sandbox.Result, error) {
		return pool.Invoke(ctx, sandbox.Invocation{
			ID: entry, Activity: sandboxtest.NativeActivity, Entry: entry, Session: &sandbox.Session{ID: "s", Epoch: 1},
		}, sandbox.Hooks{OnProgress: func([]byte) { fmt.Println("busy") }})
	}
	_, first := call(ctx, "count")
	_, _ = call(ctx, "wait")
	res, err := call(context.Background(), "count")
	var n int
	if err == nil {
		err = payload.Decode(payload.Payload{Blob: string(res.Output)}, &n)
	}
	fmt.Println("counted", n, errors.Join(first, err))
	pool.Close()
	os.Exit(0)
}

// helper is the whole life of such a worker, when this process is one: it holds one session in each runtime, each with
// a daemon that has left the session, prints the executor's and the daemon's pid and the scratch folder of each, and
// waits.
func helper() {
	if len(os.Args) != 3 || os.Args[0] != helperName {
		return
	}
	pool, err := sandbox.NewPool(sandboxtest.Fit(sandbox.Options{Dir: os.Args[1], Handlers: os.Args[2]}))
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	for _, target := range sandboxtest.Targets {
		if pool.Report().Runtimes[target.Runtime] == "" {
			continue
		}
		call := func(out any, entry string, args ...any) {
			input, err := payload.EncodeArgs(args...)
			if err == nil {
				var res sandbox.Result
				res, err = pool.Invoke(context.Background(), sandbox.Invocation{
					ID: entry, Activity: target.Activity, Entry: entry, Input: []byte(input.Blob),
					Session: &sandbox.Session{ID: target.Runtime, Epoch: 1},
				}, sandbox.Hooks{})
				if err == nil {
					err = payload.Decode(payload.Payload{Blob: string(res.Output)}, out)
				}
			}
			if err != nil {
				fmt.Println("error", target.Runtime, err)
				os.Exit(1)
			}
		}
		var daemon int
		var about struct {
			PID int    `json:"pid"`
			Dir string `json:"dir"`
		}
		call(&daemon, "daemon", 300)
		call(&about, "about")
		fmt.Println("held", target.Runtime, about.PID, daemon, about.Dir)
	}
	fmt.Println("ready", 0, 0, 0, "-")
	select {}
}
