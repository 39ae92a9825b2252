package sandbox_test

import (
	"context"
	"fmt"
	"os"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/sandboxtest"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// helperName is the first argument of a worker that exists to be killed.
const helperName = "sandbox-test-worker"

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
