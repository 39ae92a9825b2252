package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func benchResult(scenario, store, unit string, size int, runs ...float64) result {
	r := result{
		Description: "what " + scenario + " measures",
		Scenario:    scenario, Store: store, Transport: "in-process", Unit: unit, N: 100, Runs: runs, Cores: 2, Go: "go1.26",
		Median: runs[len(runs)/2], Date: "2026-11-24", Version: "1.2.3",
	}
	r.Limit.Fsyncs, r.Limit.Commits = 1234, 567
	if size > 0 {
		r.Size, r.SizeOf = size, "retained runs"
	}
	return r
}

// texts are the texts of an SVG, in their order; it fails when the file is not well-formed.
func texts(t *testing.T, name string) (all []string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(b))
	for in := false; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			in = token.Name.Local == "text"
		case xml.CharData:
			if in {
				all = append(all, string(token))
			}
			in = false
		}
	}
}

func TestEachScenarioHasALabelledChart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "charts")
	files, err := drawCharts(dir, []result{
		benchResult("P5", "sqlite", "workflows/s", 0, 700, 750, 730),
		benchResult("P5", "postgres", "workflows/s", 0, 300, 310),
		benchResult("P9", "sqlite", "ms, first", 0, 2.5),
		benchResult("P17", "sqlite", "%", 0, -3.5),
		benchResult("P17", "postgres", "%", 0, 0),
		benchResult("P3-RETAINED", "sqlite", "activities/s", 1000, 9000),
		benchResult("P3-RETAINED", "sqlite", "activities/s", 100_000, 8000),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id   string
		want []string
	}{
		{"P5", []string{
			"run", "workflows/s", "3", "800", "sqlite in-process: median 750 workflows/s",
			"postgres in-process: median 310 workflows/s",
			"measured with the last run: 1,234 syncs of a file and 567 commits of next to nothing a second (of the first line)",
			"2026-11-24 · Sojourn 1.2.3 · go1.26 · 2 cores · client, app, worker and database on one machine",
		}},
		{"P9", []string{"ms", "sqlite in-process first: median 2.50 ms"}},
		{"P17", []string{"%", "sqlite in-process: median -3.50 %"}},
		{"P3-RETAINED", []string{
			"retained runs (logarithmic)", "activities/s", "1,000", "100,000", "sqlite in-process: 9,000, 8,000",
		}},
	} {
		got := texts(t, filepath.Join(dir, c.id+".svg"))
		for _, w := range c.want {
			if !slices.Contains(got, w) {
				t.Errorf("%s.svg says %q, not %q", c.id, got, w)
			}
		}
		if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, c.id+": ") }) {
			t.Errorf("%s.svg has no title: %q", c.id, got)
		}
		b, err := os.ReadFile(filepath.Join(dir, c.id+".png"))
		if err != nil {
			t.Fatal(err)
		}
		if img, err := png.Decode(bytes.NewReader(b)); err != nil || img.Bounds().Dx() != chartWidth {
			t.Errorf("%s.png: %v", c.id, err)
		}
	}
	if len(files) != 8 {
		t.Errorf("wrote %q", files)
	}
}

func TestTheAxisEnclosesWhatItShows(t *testing.T) {
	for _, c := range [][2]float64{{0, 0}, {0, 1}, {0, 0.013}, {0, 999}, {0, 1001}, {-3.5, 0}, {-17, 42}, {0, 18_350}} {
		ticks := rounded(c[0], c[1])
		if n := len(ticks); n < 3 || n > 9 || ticks[0].Value > c[0] || ticks[n-1].Value < c[1] {
			t.Errorf("from %v to %v: %v", c[0], c[1], ticks)
		}
	}
}
