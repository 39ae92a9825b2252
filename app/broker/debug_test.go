package broker_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The debug view of a waiting run reports a signal with a name for which no wait exists, such as a misspelled one.
func TestDiagnosisContainsSignalsWithoutAWait(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("flow")
		a.schedule("one", protocol.Command{Type: protocol.OpenSignalWait, SignalName: "cancel"})
		findings := func() []protocol.Finding {
			d := must[protocol.DebugView](t)(a.Debug(t.Context(), protocol.Target{WorkflowID: "one"}))
			return slices.DeleteFunc(d.Findings, func(f protocol.Finding) bool { return f.Code != "signal_not_waited_for" })
		}
		if f := findings(); len(f) > 0 {
			t.Errorf("before any signal: %+v", f)
		}
		for _, name := range []string{"cancle", "cancle"} {
			if _, err := a.Signal(
				t.Context(), protocol.SignalRequest{Target: protocol.Target{WorkflowID: "one"}, SignalName: name},
			); err != nil {
				t.Fatal(err)
			}
		}
		f := findings()
		if len(f) != 1 || !strings.HasPrefix(f[0].Message, "signal cancle arrived at ") ||
			!strings.HasSuffix(f[0].Message, ", but the run waits for signal cancel") {
			t.Errorf("of a misspelled one: %+v", f)
		}
	})
}
