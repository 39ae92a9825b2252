package cli_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/sojourn-run/sojourn/internal/cli/bench"
)

// The bench command starts its program (here the test binary) as a separate app and measures it.
func TestTheProgramMeasuresWhatItNeeds(t *testing.T) {
	t.Parallel()
	code, out, stderr := run(t, t.TempDir(), nil, "bench", "P12", "--quick", "--json")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var got []bench.Result
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	var units []string
	for _, r := range got {
		units = append(units, r.Unit)
		if r.Scenario != "P12" || r.Median < 1 || r.Median > 100_000 {
			t.Errorf("got %+v", r)
		}
	}
	if want := []string{"ms, ready", "MB, binary", "MB, in memory"}; !slices.Equal(units, want) {
		t.Errorf("got %v, want %v", units, want)
	}
}
