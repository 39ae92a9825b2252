package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/sandboxtest"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// helperName is the first argument of a worker that exists to be killed.
const helperName = "sandbox-test-worker"

// busyName is the first argument of a worker process that the test stops for a while.
const busyName = "sandbox-test-busy-worker"

// busySessions is the number of sessions of the worker, each with a call.
const busySessions = 12

// busy is the main function of a worker process: it cancels its calls when its standard input ends, and reports whether
// the sessions still work.
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
	var sessions, started sync.WaitGroup
	counted := make(chan error, busySessions)
	started.Add(busySessions)
	for i := range busySessions {
		sessions.Go(func() {
			call := func(ctx context.Context, entry string, shown func()) (n int, err error) {
				res, err := pool.Invoke(ctx, sandbox.Invocation{
					ID: entry, Activity: sandboxtest.NativeActivity, Entry: entry,
					Session: &sandbox.Session{ID: fmt.Sprint("s", i), Epoch: 1},
				}, sandbox.Hooks{OnProgress: func([]byte) { shown() }})
				if err == nil {
					err = payload.Decode(payload.Payload{Blob: string(res.Output)}, &n)
				}
				return n, err
			}
			_, first := call(ctx, "count", nil)
			_, _ = call(ctx, "wait", started.Done)
			n, err := call(context.Background(), "count", nil)
			if err == nil && n != 2 {
				err = fmt.Errorf("counted %d", n)
			}
			counted <- errors.Join(first, err)
		})
	}
	started.Wait()
	fmt.Println("busy")
	sessions.Wait()
	close(counted)
	for err := range counted {
		if err != nil {
			fmt.Println("error", err)
		}
	}
	fmt.Println("kept")
	pool.Close()
	os.Exit(0)
}

// helper is the main function of a worker process: it holds one session in each runtime, each with a daemon in its own
// process session, prints the PIDs of executor and daemon and the scratch folder of each, and waits.
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
