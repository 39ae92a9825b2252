package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Results and profiles are drawn in one call. A file that is neither is reported by name and does not keep the others
// from being drawn.
func TestFilesAreDrawnByKind(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	results, err := json.Marshal([]result{benchResult("P5", "sqlite", "workflows/s", 0, 700, 750, 730)})
	if err != nil {
		t.Fatal(err)
	}
	p := taken(sample(600, "main.main"))
	for i, l := range p.Sample[0].Location { // a stored profile refers to locations and functions by ID
		l.ID, l.Line[0].Function.ID = uint64(i+1), uint64(i+1)
		p.Location, p.Function = append(p.Location, l), append(p.Function, l.Line[0].Function)
	}
	p.Comments = []string{"P5 on sqlite"}
	var raw bytes.Buffer
	if err := p.Write(&raw); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "pictures")
	files, err := draw(out, []string{
		write("broken.pprof", []byte("no profile")), write("results.json", results), write("run.pprof", raw.Bytes()),
		filepath.Join(dir, "missing.json"),
	})
	if err == nil || !strings.Contains(err.Error(), "broken.pprof") || !strings.Contains(err.Error(), "missing.json") {
		t.Errorf("got %v, want errors that name broken.pprof and missing.json", err)
	}
	want := []string{filepath.Join(out, "run.svg"), filepath.Join(out, "P5.png"), filepath.Join(out, "P5.svg")}
	if !slices.Equal(files, want) {
		t.Errorf("got %q, want %q", files, want)
	}
	picture, err := os.ReadFile(filepath.Join(out, "run.svg"))
	if err != nil || !bytes.Contains(picture, []byte("P5 on sqlite")) {
		t.Errorf("the flame graph has no title from the profile's comment: %v", err)
	}
}
