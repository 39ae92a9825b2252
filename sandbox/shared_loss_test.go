package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
)

func TestExecutorLossIsAttributedToACall(t *testing.T) {
	for name, test := range map[string]struct {
		calls    int
		suspects []int // calls that were in an executor that ended before
		by       int   // the call that is known to have ended it; -1: unknown
		kind     ErrorType
		want     []Verdict
	}{
		"one call":               {1, nil, -1, Crashed, []Verdict{VerdictBlamed}},
		"several calls":          {3, nil, -1, Crashed, []Verdict{VerdictSuspect, VerdictSuspect, VerdictSuspect}},
		"one suspect":            {3, []int{1}, -1, OutOfMemory, []Verdict{"", VerdictBlamed, ""}},
		"two suspects":           {3, []int{0, 1}, -1, Crashed, []Verdict{VerdictSuspect, VerdictSuspect, VerdictSuspect}},
		"a deadline":             {3, nil, 2, Crashed, []Verdict{"", "", VerdictBlamed}},
		"a deadline and suspect": {3, []int{1}, 2, Crashed, []Verdict{"", "", VerdictBlamed}},
		"the worker stops":       {2, nil, -1, Unavailable, nil},
		"the session closes":     {2, nil, -1, Cancelled, nil},
	} {
		t.Run(name, func(t *testing.T) {
			calls := map[string]*call{}
			for i := range test.calls {
				calls[fmt.Sprint(i)] = &call{suspect: slices.Contains(test.suspects, i)}
			}
			why := ending{cause: CauseCrash, kind: test.kind, message: "why"}
			if test.by >= 0 {
				why.by = calls[fmt.Sprint(test.by)]
			}
			errs := (&executor{id: "e"}).judge(why, calls)
			for _, name := range slices.Sorted(maps.Keys(calls)) {
				err := errs[calls[name]]
				var ended *ExecutorEnded
				var plain *Error
				if !errors.As(err, &plain) || plain.Type != test.kind {
					t.Errorf("call %s ends with %v", name, err)
				}
				if is := errors.As(err, &ended); is != (test.want != nil) {
					t.Errorf("call %s ends with %#v", name, err)
				} else if is && (ended.Verdict != test.want[slices.Index(slices.Sorted(maps.Keys(calls)), name)] ||
					ended.Calls != test.calls || ended.Executor != "e") {
					t.Errorf("call %s: %+v", name, ended)
				}
			}
		})
	}
}
