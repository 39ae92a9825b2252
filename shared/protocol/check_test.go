package protocol

import (
	"fmt"
	"testing"
)

func TestFairnessKeysAreChecked(t *testing.T) {
	for _, key := range []string{"tenant-1", "a:b.c_d", ""} {
		if err := CheckFairness(key, "fairness_key"); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
	for _, key := range []string{"no spaces", fmt.Sprintf("%065d", 1)} {
		if CheckFairness(key, "fairness_key") == nil {
			t.Errorf("%q was accepted", key)
		}
	}
}
