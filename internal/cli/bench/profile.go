package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"

	"github.com/google/pprof/profile"
)

// profiles are CPU profiles that were recorded during the runs of a scenario.
type profiles struct {
	dir string // empty: no profiles
	all []*profile.Profile
}

// begin starts a profile, which end adds to the previous ones.
func (p *profiles) begin() (end func() error, err error) {
	if p.dir == "" {
		return func() error { return nil }, nil
	}
	var raw bytes.Buffer
	if err := pprof.StartCPUProfile(&raw); err != nil {
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		one, err := profile.Parse(&raw)
		p.all = append(p.all, one)
		return err
	}, nil
}

// write stores the merged profiles of the runs as NAME.pprof, for go tool pprof. A comment of the profile names the
// scenario.
func (p *profiles) write(name string, r Result) error {
	if p.dir == "" {
		return nil
	}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	whole, err := profile.Merge(p.all)
	if err != nil {
		return fmt.Errorf("profiles of %s: %w", name, err)
	}
	whole.Comments = []string{fmt.Sprintf(
		"%s on %s, %s: CPU time of %d runs of %d operations", r.Scenario, r.Store, r.Transport, len(r.Runs), r.N,
	)}
	var raw bytes.Buffer
	if err := whole.Write(&raw); err != nil {
		return fmt.Errorf("profile of %s: %w", name, err)
	}
	file := strings.NewReplacer(", ", "-", " ", "-").Replace(name) + ".pprof"
	return os.WriteFile(filepath.Join(p.dir, file), raw.Bytes(), 0o644)
}
