package worker_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// kept returns the stored logs of a run's first activity, and their lines as one text of source, level and message.
func kept(t *testing.T, a *apptest.App, run string) (protocol.ActivityLogs, string) {
	t.Helper()
	logs, err := a.View().ActivityLogs(t.Context(), protocol.LogsQuery{TaskID: run + "-1"})
	if protocol.ReasonOf(err) == protocol.ReasonTaskNotFound {
		return logs, "" // the workflow has not scheduled the activity yet
	}
	if err != nil {
		t.Fatal(err)
	}
	out := ""
	for _, l := range logs.Lines {
		if l.LeftOut > 0 {
			out += fmt.Sprintf("%d left out;", l.LeftOut)
			continue
		}
		if l.At.IsZero() {
			t.Errorf("a log line has no time: %+v", l)
		}
		out += l.Source + " " + l.Level + " " + l.Text + ";"
	}
	return logs, out
}

// ended starts a workflow without arguments, waits until it closes, and returns its run ID.
func ended(t *testing.T, a *apptest.App, typ string) string {
	t.Helper()
	answer, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: typ})
	if err != nil {
		t.Fatal(err)
	}
	end(t, a, answer.RunID)
	return answer.RunID
}

// once returns a workflow that runs one activity.
func once(name string) func(workflow.Context) error {
	return func(ctx workflow.Context) error {
		return workflow.ExecuteActivity(workflow.WithActivity(ctx, workflow.ActivityOptions{
			Retry: &workflow.RetryPolicy{MaxAttempts: 1},
		}), name, "x").Get(ctx, nil)
	}
}

// Readers see the log lines of an activity while it runs, over every carrier, and all of its lines after any outcome,
// also if the activity ends immediately.
func TestLinesOfActivitiesAreKept(t *testing.T) {
	carriers(t, func(t *testing.T, a *apptest.App, c link.Carrier) {
		hold := make(chan struct{})
		start(t, a, c, func(o *worker.Options) {
			for _, name := range []string{"quick", "slow", "fails"} {
				o.Registry.Workflow("flow_"+name, once(name))
			}
			o.Registry.Activity("quick", func(ctx context.Context, _ string) error {
				activity.Logger(ctx).Info("read", "page", 1)
				return nil
			})
			o.Registry.Activity("fails", func(ctx context.Context, _ string) error {
				activity.Logger(ctx).Error("no credit")
				return activity.NewError("card", "declined", activity.NonRetryable)
			})
			o.Registry.Activity("slow", func(ctx context.Context, _ string) error {
				activity.Logger(ctx).Info("begun")
				<-hold
				activity.Logger(ctx).Warn("ended")
				return nil
			})
		})
		for typ, want := range map[string]string{
			"flow_quick": "log info read page=1;", "flow_fails": "log error no credit;",
		} {
			if _, got := kept(t, a, ended(t, a, typ)); got != want {
				t.Errorf("%s: got %q, want %q", typ, got, want)
			}
		}
		answer, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "flow_slow"})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "a line of a running activity", func() bool {
			logs, got := kept(t, a, answer.RunID)
			return got == "log info begun;" && logs.Running
		})
		close(hold)
		end(t, a, answer.RunID)
		if logs, got := kept(t, a, answer.RunID); got != "log info begun;log warn ended;" || logs.Running {
			t.Errorf("got %q, %+v", got, logs)
		}
	})
}

// If an activity logs more than the limit, the worker drops further lines and adds a line that counts them. The outcome
// of the activity does not change.
func TestAFloodOfLinesIsCutOffAndCounted(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	start(t, a, link.Local{Join: a.Connections().Join}, func(o *worker.Options) {
		o.Registry.Workflow("flow", once("floods"))
		o.Registry.Activity("floods", func(ctx context.Context, _ string) error {
			log := activity.Logger(ctx)
			for range 10_000 {
				log.Info(strings.Repeat("x", 100))
			}
			return nil
		})
	})
	logs, _ := kept(t, a, ended(t, a, "flow"))
	whole := (protocol.MaxLogBytes - 128) / 164
	if n := len(logs.Lines); n != whole+1 || logs.Lines[n-1].LeftOut != int64(10_000-whole) {
		t.Errorf("%d lines, the last is %+v", n, logs.Lines[n-1])
	}
}

// If a handler prints more than the worker reads of an executor's output, the log counts every missing line.
func TestAFloodOfAHandlerIsCounted(t *testing.T) {
	languages(t, func(t *testing.T, dir string) {
		const lines = 20_000
		for name, text := range map[string]string{
			"flood.mjs": "export const main = () => process.stdout.write(`${'x'.repeat(100)}\\n`.repeat(20_000)) && null;",
			"flood.py":  "def main(_, ctx):\n\tprint(('x' * 100 + '\\n') * 20_000, end='')\n",
		} {
			if _, err := os.Stat(filepath.Join(dir, "index", "load"+filepath.Ext(name))); err != nil {
				continue // a handler in the other language
			}
			if err := os.WriteFile(filepath.Join(dir, "index", name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a := apptest.Start(t, apptest.Options{})
		start(t, a, link.Local{Join: a.Connections().Join}, func(o *worker.Options) {
			o.Handlers = dir
			o.Registry.Workflow("flow", once("index.flood"))
		})
		logs, _ := kept(t, a, ended(t, a, "flow"))
		if n := len(logs.Lines) - 1; n < 100 || logs.Lines[n].LeftOut != int64(lines-n) {
			t.Errorf("%d lines, the last is %+v", n, logs.Lines[n])
		}
	})
}

// Logs and output of handlers are stored with their source, also if the executor process dies.
func TestLinesOfHandlersAreKept(t *testing.T) {
	code := map[string]string{
		"says.mjs": `export async function main(_, ctx) {
			console.log('to stdout'); console.error('to stderr'); ctx.log.warn('to the log');
			await new Promise((later) => setTimeout(later, 50));
		}`,
		"says.py": "import sys\n\ndef main(_, ctx):\n\tprint('to stdout', flush=True)\n\tprint('to stderr', file=sys.stderr, flush=True)\n" +
			"\tctx.log.warn('to the log')\n",
	}
	languages(t, func(t *testing.T, dir string) {
		for name, text := range code {
			if _, err := os.Stat(filepath.Join(dir, "index", "load"+filepath.Ext(name))); err != nil {
				continue // a handler in the other language
			}
			if err := os.WriteFile(filepath.Join(dir, "index", name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a := apptest.Start(t, apptest.Options{})
		start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
			o.Handlers = dir
			o.Registry.Workflow("flow", once("index.says"))
		})
		_, got := kept(t, a, ended(t, a, "flow"))
		for _, want := range []string{"stdout info to stdout;", "stderr ", "to stderr;", "log warn to the log;"} {
			if !strings.Contains(got, want) {
				t.Errorf("got %q, want in it %q", got, want)
			}
		}
	})
}
