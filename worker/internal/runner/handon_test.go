package runner

import (
	"context"
	"strings"
	"testing"
	"unsafe"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// same is an executor that returns the arguments as the result.
type same struct{ given []byte }

func (*same) Has(string) (string, bool) { return sandbox.RuntimeNode, true }

func (s *same) Invoke(_ context.Context, inv sandbox.Invocation, _ sandbox.Hooks) (sandbox.Result, error) {
	s.given = inv.Input
	return sandbox.Result{Output: inv.Input}, nil
}

func (*same) Exported(context.Context, string, string) ([]byte, error) { return nil, nil }

// The worker forwards arguments to an executor, and results from it, without a copy, whatever their size.
func TestPayloadIsForwardedWithoutACopy(t *testing.T) {
	for _, size := range []int{100, 1 << 20} {
		s := &same{}
		a := &attempt{r: &Runner{opt: Options{Executors: s}}, task: &protocol.ActivityTask{ActivityType: "x"}}
		args, err := payload.EncodeArgs(strings.Repeat("x", size))
		if err != nil {
			t.Fatal(err)
		}
		got, err := a.invoke(t.Context(), "x", args)
		if err != nil || got != args {
			t.Fatalf("the executor returned %d of %d bytes: %v", len(got.Blob), len(args.Blob), err)
		}
		if at := unsafe.StringData(args.Blob); unsafe.SliceData(s.given) != at || unsafe.StringData(got.Blob) != at {
			t.Errorf("%d bytes were copied", len(args.Blob))
		}
	}
}
