package sandbox_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/internal/lockdown"
)

// The reported level is the isolation that a probe verified, regardless of the features that the kernel announces. A
// pool enforces the requested level or fails to open.
func TestIsolationLevelIsTheEnforcedOne(t *testing.T) {
	here := lockdown.Offered()
	confined := here.Landlock > 0 && here.Filter
	none, old, noFilter := lockdown.Kernel{Filter: true}, lockdown.Kernel{Landlock: 2, Filter: true},
		lockdown.Kernel{Landlock: here.Landlock}
	for _, c := range []struct {
		name   string
		o      sandbox.Options
		kernel *lockdown.Kernel
		needs  bool          // Landlock and filters
		level  sandbox.Level // empty: not accepted
		reason string
	}{
		{name: "the strongest", needs: true, level: sandbox.LevelConfined},
		{name: "asked for", needs: true, o: sandbox.Options{Level: sandbox.LevelConfined}, level: sandbox.LevelConfined},
		{
			name: "weaker on demand", o: sandbox.Options{Level: sandbox.LevelProcess}, level: sandbox.LevelProcess,
			reason: "the setting isolation requests",
		},
		{
			name: "weaker on demand over its own floor",
			o:    sandbox.Options{Level: sandbox.LevelProcess, MinLevel: sandbox.FloorAuto}, level: sandbox.LevelProcess,
		},
		{name: "under a floor", o: sandbox.Options{Level: sandbox.LevelProcess, MinLevel: sandbox.LevelConfined}},
		{
			name:  "under a floor that may be passed",
			o:     sandbox.Options{Level: sandbox.LevelProcess, MinLevel: sandbox.LevelConfined, AllowWeaker: true},
			level: sandbox.LevelProcess,
		},
		{name: "no Landlock", kernel: &none, level: sandbox.LevelProcess, reason: "Landlock is not available"},
		{
			name: "no Landlock and no need of it", kernel: &none, o: sandbox.Options{MinLevel: sandbox.FloorAuto},
			level: sandbox.LevelProcess, reason: "Landlock is not available",
		},
		{name: "no Landlock but asked for", kernel: &none, o: sandbox.Options{Level: sandbox.LevelConfined}},
		{name: "no Landlock under a floor", kernel: &none, o: sandbox.Options{MinLevel: sandbox.LevelConfined}},
		{name: "no filter", needs: true, kernel: &noFilter, level: sandbox.LevelProcess, reason: "seccomp is not available"},
		{
			name: "no filter where the floor is the best there is", needs: true, kernel: &noFilter,
			o: sandbox.Options{MinLevel: sandbox.FloorAuto},
		},
		{name: "an older Landlock", needs: true, kernel: &old, level: sandbox.LevelConfined},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.needs && !confined {
				t.Skipf("this kernel offers %+v to this process", here)
			}
			c.o.Dir = t.TempDir()
			if c.kernel != nil {
				c.o = c.o.WithKernel(*c.kernel)
			}
			p, err := sandbox.NewPool(c.o)
			if c.level == "" {
				if err == nil {
					p.Close()
				}
				if !errors.Is(err, sandbox.ErrTooWeak) {
					t.Fatalf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			r := p.Report()
			if r.Level != c.level || !strings.Contains(r.Reason, c.reason) ||
				(r.Reason == "") != (c.level == sandbox.LevelConfined) {
				t.Errorf("report %+v", r)
			}
			reports := func(word string) bool {
				return slices.ContainsFunc(r.Missing, func(m string) bool { return strings.Contains(m, word) })
			}
			weak := c.level == sandbox.LevelProcess
			egress, by := sandbox.EgressFiltered, "seccomp"
			switch {
			case weak:
				egress, by = sandbox.EgressOpen, ""
			case c.kernel == nil && here.HoldsPorts():
				by = "landlock"
			}
			if r.Egress != egress || r.EgressBy != by || reports("since the worker's proxy uses that port") != (by == "landlock") {
				t.Errorf("egress %s by %s; missing %q", r.Egress, r.EgressBy, r.Missing)
			}
			apart := r.UIDPerSession // is root, and the files are closed to the users of executors
			if reports("secret files") != (weak && !apart) || reports("command lines") != weak ||
				reports("outside its scratch folder") != weak || reports("can connect to anything") != weak {
				t.Errorf("missing %q", r.Missing)
			}
			signals := !weak && c.kernel != &old && here.Landlock >= 6
			want := []string{"isolation:process"}
			if !weak {
				want = append(want, "isolation:confined")
			}
			if signals {
				want = append(want, "isolation:signals")
			}
			if !weak {
				want = append(want, "isolation:egress")
			}
			if got := r.Capabilities(); !slices.Equal(got, want) || r.Signals != signals ||
				reports("can signal") != (!signals && !apart) {
				t.Errorf("capabilities %q, want %q; missing %q", got, want, r.Missing)
			}
		})
	}
}
