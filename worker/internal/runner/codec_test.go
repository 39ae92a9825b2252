package runner

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/codec"
	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// The failure of a workflow task is stored by the app and shown to every viewer.
func TestAMismatchShowsTheAppNoDecryptedArguments(t *testing.T) {
	err := &workflow.NonDeterminismError{
		Recorded: "activity A", Issued: "activity B", RecordedArguments: `["s3cret"]`, IssuedArguments: `["s3cret"]`,
	}
	with := &Runner{opt: Options{Codecs: codecs.Chain{codec.Compress(0)}}}
	if f := with.taskFailure(err); strings.Contains(f.Message, "s3cret") || !strings.Contains(f.Message, "activity B") {
		t.Errorf("with codecs: %s", f.Message)
	}
	if f := new(Runner).taskFailure(err); !strings.Contains(f.Message, "s3cret") {
		t.Errorf("without codecs: %s", f.Message)
	}
}
