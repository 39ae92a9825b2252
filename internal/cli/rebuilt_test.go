package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// usesAtOnce is the number of calls of a session in flight when its worker is killed.
const usesAtOnce = 3

// keeping is the input of an activity that uses a session's state.
type keeping struct {
	Dir  string `json:"dir"` // directory for its notes and for the file that lets it end
	Item string `json:"item"`
	Hold bool   `json:"hold"`
	// a rebuild waits until this number of calls has reported missing state
	AtOnce int `json:"at_once"`
}

// keepers are handlers of the activities keep.load and keep.use in each language except Go. Their state is the process
// that created it.
var keepers = map[string]map[string]string{
	"node": {
		"load.mjs": `import { appendFileSync, readFileSync } from 'node:fs';
export async function main(input, ctx) {
	const cold = () => readFileSync(input.dir + '/cold', 'utf8').split('\n').length - 1;
	while (input.hold && cold() < input.at_once) await new Promise((f) => setTimeout(f, 20));
	ctx.session.state.model = process.pid;
	appendFileSync(input.dir + '/loads', process.pid + '\n');
}`,
		"use.mjs": `import { appendFileSync, existsSync } from 'node:fs';
export const recovery = { rebuildActivity: 'keep.load' };
export async function main(input, ctx) {
	if (ctx.session.state.model === undefined) appendFileSync(input.dir + '/cold', process.pid + '\n');
	const model = ctx.session.require('model');
	appendFileSync(input.dir + '/' + input.item, process.pid + '\n');
	while (input.hold && !existsSync(input.dir + '/word')) await new Promise((f) => setTimeout(f, 20));
	return model;
}`,
	},
	"python3": {
		"load.py": `import os, time
def cold(path):
	with open(path) as f:
		return len(f.readlines())
def main(input, ctx):
	while input["hold"] and cold(input["dir"] + "/cold") < input["at_once"]:
		time.sleep(0.02)
	ctx.session.state.model = os.getpid()
	with open(input["dir"] + "/loads", "a") as f:
		f.write("%d\n" % os.getpid())
`,
		"use.py": `import os, time
recovery = {"rebuild_activity": "keep.load"}
def main(input, ctx):
	if not hasattr(ctx.session.state, "model"):
		with open(input["dir"] + "/cold", "a") as f:
			f.write("%d\n" % os.getpid())
	model = ctx.session.require("model")
	with open(input["dir"] + "/" + input["item"], "a") as f:
		f.write("%d\n" % os.getpid())
	while input["hold"] and not os.path.exists(input["dir"] + "/word"):
		time.sleep(0.02)
	return model
`,
	},
}

// registerRebuilt registers a workflow that uses a session's state once, and several times concurrently after a signal.
// It also registers the workflow's activities in Go, with the prefix "go.".
func registerRebuilt(r *worker.Registry) {
	r.Workflow("rebuilt", func(ctx workflow.Context, prefix string, dir string) ([]int, error) {
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
		if err != nil {
			return nil, err
		}
		if err := s.Execute(ctx, prefix+"keep.load", keeping{Dir: dir}).Get(ctx, nil); err != nil {
			return nil, err
		}
		first, err := workflow.Await[int](ctx, s.Execute(ctx, prefix+"keep.use", keeping{Dir: dir, Item: "first"}))
		if err != nil {
			return nil, err
		}
		if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
			return nil, err
		}
		models := []int{first}
		var all []workflow.Future
		for range usesAtOnce {
			in := keeping{Dir: dir, Item: "second", Hold: true, AtOnce: usesAtOnce}
			all = append(all, s.Execute(ctx, prefix+"keep.use", in))
		}
		for _, f := range all {
			model, err := workflow.Await[int](ctx, f)
			if err != nil {
				return nil, err
			}
			models = append(models, model)
		}
		return models, nil
	})
	r.Activity("go.keep.load", func(ctx context.Context, in keeping) error {
		for in.Hold {
			if text, _ := os.ReadFile(filepath.Join(in.Dir, "cold")); strings.Count(string(text), "\n") >= in.AtOnce {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		activity.SessionState(ctx).Set("model", os.Getpid())
		return in.writeLedger("loads")
	})
	r.Activity("go.keep.use", func(ctx context.Context, in keeping) (int, error) {
		model, err := activity.Get[int](ctx, "model")
		if err == nil {
			err = in.writeLedger(in.Item)
		} else {
			err = errors.Join(err, in.writeLedger("cold"))
		}
		for in.Hold && err == nil {
			if _, err := os.Stat(filepath.Join(in.Dir, "word")); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		return model, err
	}, activity.Options{Recovery: &activity.SessionRecoveryPolicy{
		OnError: activity.Lost, RebuildActivity: "go.keep.load",
	}})
}

func (k keeping) writeLedger(what string) error {
	f, err := os.OpenFile(filepath.Join(k.Dir, what), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, os.Getpid())
	return errors.Join(err, f.Close())
}

// processes returns the IDs of processes that wrote to a file, in order.
func processes(t *testing.T, path string) (pids []int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for f := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// If a worker is killed with calls of a session in flight, the policy of the activities rebuilds the session on another
// worker. One rebuild serves all calls, each call is retried, and history is the same for all languages.
func TestPoliciesRebuildSessionsOfKilledWorkers(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"", "node", "python3"} {
		onDatabases(t, orGo(program), func(p *plant) {
			prefix, dir := "go.", p.t.TempDir()
			settings := shortLeases
			if err := os.Chmod(dir, 0o777); err != nil { // executors may run as separate users
				p.t.Fatal(err)
			}
			if program != "" {
				if _, err := exec.LookPath(program); err != nil {
					p.t.Skip(program + " is not on this machine")
				}
				handlers := filepath.Join(p.t.TempDir(), "handlers")
				prefix = ""
				settings = settings.with(env{
					"SOJOURN_ISOLATION": "auto", "SOJOURN_HANDLERS": handlers, "SOJOURN_EXECUTOR_WRITE": dir,
				})
				if err := os.MkdirAll(filepath.Join(handlers, "keep"), 0o755); err != nil {
					p.t.Fatal(err)
				}
				for name, code := range keepers[program] {
					if err := os.WriteFile(filepath.Join(handlers, "keep", name), []byte(code), 0o644); err != nil {
						p.t.Fatal(err)
					}
				}
			}
			noted := func(what string, n int) (pids []int) {
				until(p.t, fmt.Sprint(what, " is noted ", n, " times"), func() bool {
					pids = processes(p.t, filepath.Join(dir, what))
					return len(pids) >= n
				})
				return pids
			}
			p.begin("A", settings)
			run := p.client.start("w", "rebuilt", prefix, dir).RunID
			p.waits("w", run)
			session := ""
			for _, e := range p.client.history("w", run, func([]history.Event) bool { return true }) {
				if d, ok := e.Data.(*history.SessionStarted); ok {
					session = d.SessionID
				}
			}
			p.begin("B", settings)
			p.signal("w")
			before := noted("second", usesAtOnce)
			p.kill("A", session)
			all := noted("second", 2*usesAtOnce)
			p.equal("owner", owner(p.session(session)), "B")
			if err := os.WriteFile(filepath.Join(dir, "word"), nil, 0o644); err != nil {
				p.t.Fatal(err)
			}
			events := p.client.completed("w", run)
			a, b := before[0], all[usesAtOnce]
			p.equal("state was loaded in", processes(p.t, filepath.Join(dir, "loads")), []int{a, b})
			p.equal("it was used in", all, []int{a, a, a, b, b, b})
			p.equal("results", result[[]int](p, events), []int{a, b, b, b})
			counts := map[string]int{}
			for _, e := range events {
				if d, ok := e.Data.(*history.SessionRecovered); ok {
					counts[fmt.Sprint(strings.TrimPrefix(d.Rebuild, "go."), " ", d.Outcome, " for ", d.Reason, ", ", d.Retries)]++
				}
			}
			p.equal("history", types(events), "WorkflowStarted SessionStarted ActivityScheduled ActivityCompleted "+
				"ActivityScheduled ActivityCompleted SignalWaitOpened SignalReceived SignalApplied ActivityScheduled "+
				"ActivityScheduled ActivityScheduled "+strings.Repeat("SessionRecovered ActivityCompleted ", usesAtOnce)+
				"WorkflowCompleted")
			p.equal("history of the rebuild", counts, map[string]int{"keep.load rebuilt for worker_lost, 1": usesAtOnce})
		})
	}
}

func orGo(program string) string {
	if program == "" {
		return "go"
	}
	return program
}
