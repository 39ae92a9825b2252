package engine_test

import (
	"slices"
	"testing"

	"github.com/sojourn-run/sojourn/app/engine"
)

func TestRequirementsAreMetByTextOrByVersion(t *testing.T) {
	offered := []string{"gpu", "gpu:nvidia-l4", "cuda=12.4", "ram=96", "odd=1.x", "plain>=2", "zero=3.0"}
	for requirement, met := range map[string]bool{
		"gpu": true, "gpu:nvidia-l4": true, "GPU": false, "cuda": false, "cuda=12.4": true, "cuda=12.40": false,
		"cuda>=12.4": true, "cuda>=12.4.0": true, "cuda>=12": true, "cuda>=12.10": false, "cuda>12.4": false,
		"cuda>12.3.9": true,
		"cuda<=12.4":  true, "cuda<12.4": false, "cuda<12.10": true, "cuda>=12,<13": true, "cuda>=12,<12.4": false,
		"ram>=64": true, "ram>=128": false, "ra>=1": false, "ram=>64": false, "ram>=": false, "ram>=64,": false,
		"ram>=1e1": false, "ram>= 64": false,
		"odd>=1": false, "plain>=2": true, "plain>=1": false, "zero>=3": true, "zero>3": false, "zero<=3": true, ">=1": false,
		"": false, "none>=0": false,
		"ram>=99999999999999999999": false,
	} {
		if got := len(engine.Missing([]string{requirement}, offered)) == 0; got != met {
			t.Errorf("%q is met: %v, want %v", requirement, got, met)
		}
	}
	if got := engine.Missing([]string{"a", "cuda>=13", "gpu"}, offered); !slices.Equal(got, []string{"a", "cuda>=13"}) {
		t.Errorf("missing %v", got)
	}
}
