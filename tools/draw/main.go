// Command draw draws what "sojourn bench" measured: a chart of each scenario from its JSON output, and a flame graph of
// each CPU profile.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/pprof/profile"
)

const usage = `Draw results and CPU profiles of "sojourn bench".

Usage:
  draw [--out DIR] FILE…

A FILE that ends in .pprof is drawn as a flame graph, NAME.svg. Every other FILE is read as the output of
"sojourn bench --json": each scenario is drawn as a chart, ID.svg and ID.png.

Flags:
`

func main() {
	out := flag.String("out", ".", "directory of the pictures")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	files, err := draw(*out, flag.Args())
	for _, name := range files {
		fmt.Println(name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "draw:", err)
		os.Exit(1)
	}
}

// draw draws every file into a directory and returns the pictures. A file that cannot be drawn does not keep the others
// from being drawn.
func draw(dir string, names []string) (files []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var results []result
	for _, name := range names {
		raw, failed := os.ReadFile(name)
		if failed == nil {
			if strings.HasSuffix(name, ".pprof") {
				var picture string
				if picture, failed = flameGraph(dir, name, raw); failed == nil {
					files = append(files, picture)
				}
			} else {
				var some []result
				failed = json.Unmarshal(raw, &some)
				results = append(results, some...)
			}
			if failed != nil {
				failed = fmt.Errorf("%s: %w", name, failed)
			}
		}
		err = errors.Join(err, failed)
	}
	charts, failed := drawCharts(dir, results)
	return append(files, charts...), errors.Join(err, failed)
}

// flameGraph draws a CPU profile. Its title is the first comment of the profile, which names the scenario.
func flameGraph(dir, name string, raw []byte) (file string, err error) {
	p, err := profile.ParseData(raw)
	if err != nil {
		return "", err
	}
	base := strings.TrimSuffix(filepath.Base(name), ".pprof")
	title := base
	if len(p.Comments) > 0 {
		title = p.Comments[0]
	}
	var picture bytes.Buffer
	if err := drawFlame(&picture, p, title); err != nil {
		return "", err
	}
	file = filepath.Join(dir, base+".svg")
	return file, os.WriteFile(file, picture.Bytes(), 0o644)
}
