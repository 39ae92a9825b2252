package cli

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The command prints the state of packages as a sentence, also for workers of other releases.
func TestPackageStatesAreDescribed(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ago := history.At(now.Add(-90 * time.Second))
	for want, p := range map[string]protocol.PackagesInfo{
		"package.json, .npmrc: installed 1m30s ago, 1536 KiB, /d/node-1": {
			State: "installed", Files: []string{"package.json", ".npmrc"}, Since: ago, Bytes: 3 << 19, Path: "/d/node-1",
		},
		"a: installed, /d":                  {State: "installed", Files: []string{"a"}, Path: "/d"},
		"a: installing for 1m30s: Fetching": {State: "installing", Files: []string{"a"}, Since: ago, Detail: "Fetching"},
		"a: installation failed 1m30s ago, next attempt in 5s: no a": {
			State: "failed", Files: []string{"a"}, Since: ago, RetryAt: history.At(now.Add(5 * time.Second)), Detail: "no a",
		},
		"a: not installed yet; a worker installs them when it starts": {State: "pending", Files: []string{"a"}},

		"a: b":   {State: "others", Files: []string{"a"}, Detail: "b"},
		"a: new": {State: "unheard of", Files: []string{"a"}, Detail: "new"},
	} {
		if got := packagesText(p, now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
