package worker_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/codec"
	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// shouts are handlers, by language, that fail if their argument is encoded.
var shouts = map[string][2]string{
	"node": {"shout.mjs", `
export async function main(text) {
	if (text !== 's3cret') throw new Error('encoded');
	return text.toUpperCase();
}`},
	"python3": {"shout.py", `
def main(text, ctx):
	if text != 's3cret':
		raise Exception('encoded')
	return text.upper()
`},
}

// Executors have no codecs: the worker decodes the arguments of handlers and isolated activities, and encodes their
// results.
func TestExecutorsReceiveDecodedArguments(t *testing.T) {
	for program, file := range shouts {
		t.Run(program, func(t *testing.T) {
			apptest.Program(t, program)
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, file[0]), []byte(file[1]), 0o600); err != nil {
				t.Fatal(err)
			}
			secret, err := codec.Encrypt(codec.Key{ID: "k1", Secret: bytes.Repeat([]byte{1}, codec.KeySize)})
			if err != nil {
				t.Fatal(err)
			}
			a := apptest.Start(t, apptest.Options{})
			start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
				o.Handlers = dir
				o.Registry.UseCodecs(secret)
				o.Registry.Workflow("shouts", func(ctx workflow.Context) (string, error) {
					loud, err := workflow.Execute[string](ctx, "shout", "s3cret")
					if err != nil {
						return "", err
					}
					pid, err := workflow.Execute[int](ctx, "pid") // a Go activity in an executor
					if err != nil || pid == os.Getpid() {
						return "", fmt.Errorf("process %d, %w", pid, err)
					}
					return loud, nil
				})
			})
			answer, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "shouts"})
			if err != nil {
				t.Fatal(err)
			}
			completed, ok := end(t, a, answer.RunID).Data.(*history.WorkflowCompleted)
			if !ok {
				t.Fatal("the workflow did not complete")
			}
			p, err := codecs.Chain{secret}.DecodeValue(payload.Payload{Blob: completed.Output})
			if err != nil {
				t.Fatal(err)
			}
			var got string
			if err := payload.Decode(p, &got); err != nil || got != "S3CRET" {
				t.Errorf("got %q, %v", got, err)
			}
			for _, e := range events(t, a, answer.RunID) {
				if d, ok := e.Data.(*history.ActivityCompleted); ok && !payload.IsSealed(d.Result) {
					t.Errorf("event %d: the result is not encoded", e.Seq)
				}
			}
		})
	}
}
