package cli_test

import (
	"strings"
	"testing"
)

// All sessions of a restored database are released while no app runs. Wrong flags are refused.
func TestSessionsAreReleasedOnAStoppedDatabase(t *testing.T) {
	dir := t.TempDir()
	if code, _, err := run(t, dir, nil, "migrate"); code != 0 {
		t.Fatal(err)
	}
	const floor = "9007199254740990"
	code, out, err := run(t, dir, nil, "sessions", "release", "--all", "--epoch-floor", floor)
	if want := "namespace default: 0 sessions released, epoch floor " + floor; code != 0 || !strings.Contains(out, want) {
		t.Errorf("exit %d, %q, %q; want %q", code, out, err, want)
	}
	for _, wrong := range [][]string{
		{"sessions", "release"},
		{"sessions", "release", "--all", "--epoch-floor", "-1"},
		{"sessions", "release", "--all", "--epoch-floor", "9007199254740992"},
	} {
		if code, out, _ := run(t, dir, nil, wrong...); code == 0 {
			t.Errorf("%v is accepted: %q", wrong, out)
		}
	}
}
