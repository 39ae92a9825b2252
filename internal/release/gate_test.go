package release

import (
	"strings"
	"testing"
)

func TestGateAdmitsOnlyEqualReleases(t *testing.T) {
	for _, c := range []struct {
		name, app, worker string
		strict            bool
		want              Verdict // without its message
	}{
		{"equal", "1.2.3", "1.2.3", false, Verdict{Allowed: true}},
		{"equal and strict", "1.2.3", "1.2.3", true, Verdict{Allowed: true}},
		{"equal but not a number", "main-7f3", "main-7f3", true, Verdict{Allowed: true}},
		{"app newer", "1.2.4", "1.2.3", false, Verdict{Reason: ReasonMismatch}},
		{"app older", "1.2.3", "2.0.0", false, Verdict{Reason: ReasonMismatch}},
		{"build part differs", "1.2.3+a", "1.2.3+b", false, Verdict{Reason: ReasonMismatch}},
		{"another spelling", "1.2.3", "v1.2.3", false, Verdict{Reason: ReasonMismatch}},
		{"another case", "1.2.3-RC1", "1.2.3-rc1", false, Verdict{Reason: ReasonMismatch}},
		{"a space", "1.2.3", "1.2.3 ", false, Verdict{Reason: ReasonMismatch}},
		{"worker unreadable", "1.2.3", "0.0.0", false, Verdict{Reason: ReasonMismatch}},
		{"app unreadable", "0.0.0", "1.2.3", true, Verdict{Reason: ReasonMismatch}},
		{"worker says nothing", "1.2.3", "", false, Verdict{Reason: ReasonMismatch}},
		{"both unreadable", "0.0.0", "0.0.0", false, Verdict{Allowed: true, Unreadable: true}},
		{"both say nothing", "", "", false, Verdict{Allowed: true, Unreadable: true}},
		{"both unreadable and strict", "0.0.0", "0.0.0", true, Verdict{Reason: ReasonUnreadable, Unreadable: true}},
		{"one empty, one unreadable, strict", "", "0.0.0", true, Verdict{Reason: ReasonUnreadable, Unreadable: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Gate(c.app, c.worker, c.strict)
			message := got.Message
			got.Message = ""
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if quiet := got.Allowed && !got.Unreadable; quiet != (message == "") {
				t.Errorf("message: %q", message)
			}
			for _, release := range []string{c.app, c.worker} {
				if message != "" && !strings.Contains(message, `"`+orUnreadable(release)+`"`) {
					t.Errorf("message does not name %q: %s", release, message)
				}
			}
		})
	}
}

func TestGateMessageIsSafeToLog(t *testing.T) {
	got := Gate("1.0.0", "2\n"+strings.Repeat("x", 10_000), false).Message
	if strings.Contains(got, "\n") || len(got) > 300 {
		t.Errorf("got %q", got)
	}
}
