package worker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// edges are handlers, by language, that send one value of a table in each way in which a handler can send a value.
var edges = map[string][2]string{
	"node": {"value.mjs", `
const values = {
	nul: 'a\u0000b', surrogate: 'a\ud800b', long: 'x'.repeat(300), blank: '   ', empty: '',
	large: 'x'.repeat(1000 * 1000), huge: 'x'.repeat(3 * 1024 * 1024),
	zero: 0, negative: -1, most: 2 ** 53, float: 1e308, nan: NaN, infinite: Infinity,
};
export async function main([way, name], ctx) {
	const value = values[name];
	switch (way) {
	case 'result': return value;
	case 'message': throw new Error(value);
	case 'type': throw Object.assign(new Error('failed'), { name: value });
	case 'progress': ctx.progress(value); break;
	case 'log': ctx.log(value); break;
	case 'print': console.log(value); break;
	case 'plain': return 'plain';
	}
	return 'sent';
}`},
	"python3": {"value.py", `
values = {
	'nul': 'a\0b', 'surrogate': 'a\ud800b', 'long': 'x' * 300, 'blank': '   ', 'empty': '',
	'large': 'x' * 1000 * 1000, 'huge': 'x' * 3 * 1024 * 1024,
	'zero': 0, 'negative': -1, 'most': 2 ** 53, 'float': 1e308, 'nan': float('nan'), 'infinite': float('inf'),
}

def main(args, ctx):
	way, name = args
	value = values[name]
	if way == 'result':
		return value
	if way == 'message':
		raise Exception(value)
	if way == 'type':
		raise type(str(value) or 'E', (Exception,), {})('failed')
	if way == 'progress':
		ctx.progress(value)
	if way == 'log':
		ctx.log(value)
	if way == 'print':
		print(value)
	if way == 'plain':
		return 'plain'
	return 'sent'
`},
}

var (
	edgeWays  = []string{"result", "message", "type", "progress", "log", "print"}
	edgeNames = []string{
		"nul", "surrogate", "long", "blank", "empty", "large", "huge", "zero", "negative", "most", "float", "nan", "infinite",
	}
)

// For every text or number that a handler returns, throws, reports as progress or logs, either the call fails or the
// value is stored without invalid characters. Each call needs one attempt, and a call that runs at the same time in the
// same executor completes.
func TestAnyValueOfAHandlerFailsTheCallOrIsStoredCleaned(t *testing.T) {
	for program, file := range edges {
		t.Run(program, func(t *testing.T) {
			apptest.Program(t, program)
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, file[0]), []byte(file[1]), 0o600); err != nil {
				t.Fatal(err)
			}
			a := apptest.Start(t, apptest.Options{})
			start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
				o.Handlers = dir
				o.Registry.Workflow("edges", callEdges)
			})
			answer, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "edges"})
			if err != nil {
				t.Fatal(err)
			}
			outcomes := result[map[string]string](t, end(t, a, answer.RunID))
			for _, way := range edgeWays {
				for _, name := range edgeNames {
					checkEdge(t, way, name, outcomes[way+" "+name])
				}
			}
			for _, e := range events(t, a, answer.RunID) {
				switch d := e.Data.(type) {
				case *history.ActivityFailed:
					for _, text := range []string{d.Message, d.ExceptionType, d.ExceptionCls} {
						if len(text) > protocol.MaxErrorText || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
							t.Errorf("event %d stores a text of %d bytes: %.40q", e.Seq, len(text), text)
						}
					}
				case *history.ActivityRetryScheduled:
					t.Errorf("event %d: another attempt: %+v", e.Seq, d)
				}
			}
		})
	}
}

// callEdges is a workflow that calls the handler with each value in each way, together with a plain call, and returns
// the outcomes.
func callEdges(ctx workflow.Context) (map[string]string, error) {
	ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{
		StartToClose: time.Minute, Retry: &workflow.RetryPolicy{MaxAttempts: 1},
	})
	outcomes := map[string]string{}
	for _, way := range edgeWays {
		for _, name := range edgeNames {
			sent := workflow.ExecuteActivity(ctx, "value", way, name)
			plain := workflow.ExecuteActivity(ctx, "value", "plain", name)
			if got, err := workflow.Await[string](ctx, plain); err != nil || got != "plain" {
				return nil, fmt.Errorf("the call next to %s %s: %q, %w", way, name, got, err)
			}
			got, err := workflow.Await[any](ctx, sent)
			if err != nil {
				outcomes[way+" "+name] = fmt.Sprintf("failed: %.200s", err)
				continue
			}
			outcomes[way+" "+name] = fmt.Sprintf("%.50q", fmt.Sprint(got))
		}
	}
	return outcomes, nil
}

// checkEdge compares the outcome of one call with the expected outcome.
func checkEdge(t *testing.T, way, name, got string) {
	t.Helper()
	failed := strings.HasPrefix(got, "failed: ")
	switch way {
	case "message", "type":
		if !failed {
			t.Errorf("%s %s: %s, want a failure", way, name, got)
		}
	case "result":
		invalid := name == "huge" || name == "nan" || name == "infinite" || name == "surrogate"
		exact := map[string]string{"nul": `"a\x00b"`, "blank": `"   "`, "zero": `"0"`, "most": `"9007199254740992"`}[name]
		if failed && !invalid || !failed && name == "huge" || got == "" || exact != "" && got != exact {
			t.Errorf("%s %s: %s", way, name, got)
		}
	default:
		if failed && way != "progress" || !failed && got != `"sent"` {
			t.Errorf("%s %s: %s", way, name, got)
		}
	}
}
