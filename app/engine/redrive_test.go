package engine

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// A redriven run that continues as new passes on a signal that its code has not handled, like a run that did not fail.
// Its first workflow task contains the copied events, but they did not arrive before the code started.
func TestARedrivenRunPassesOnUnhandledSignals(t *testing.T) {
	for _, runtime := range []string{"rust", "python", "go"} {
		for _, fails := range []bool{false, true} {
			s := newStage()
			play := func(command, input string, args ...string) string {
				d := &datadriven.TestData{Cmd: command, Input: input}
				for _, a := range args {
					k, v, _ := strings.Cut(a, "=")
					d.CmdArgs = append(d.CmdArgs, datadriven.CmdArg{Key: k, Vals: []string{v}})
				}
				return s.play(t, d)
			}
			code := []string{"runtime=" + runtime, "declares=add"}
			play("start", "")
			play("lease", "")
			play("do", "schedule_activity activity_type=x", code...)
			play("take", "")
			play("complete", "")
			play("signal", "", "name=add")
			play("lease", "")
			if fails {
				play("do", "fail_workflow message=no", code...)
				plan, err := PrepareRedrive(&s.run.Head, s.history, testRun[:25]+"R")
				if err != nil {
					t.Fatal(err)
				}
				d, _, err := plan.Decide("", func(string) *Session { return nil }, s.now)
				if err != nil {
					t.Fatal(err)
				}
				s.run, s.history = d.Next, d.Events
				play("lease", "")
			}
			if got := play("do", "continue_as_new", code...); !strings.Contains(got, "carrying 1 signal") {
				t.Errorf("code in %s, fails: %v: %s", runtime, fails, got)
			}
		}
	}
}
