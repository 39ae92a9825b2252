package main

import (
	"bufio"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

const (
	flameWidth = 1200
	margin     = 10
	row        = 16  // pixels of a call
	narrow     = 1.2 // pixels below which a call is left out
	letter     = 6.3 // pixels, of the type it is written in
	headroom   = 46
)

// call is a function with one call path, and its callees.
type call struct {
	name  string // with its whole path
	value int64
	calls map[string]*call
}

func (c *call) to(name string) *call {
	if c.calls == nil {
		c.calls = map[string]*call{}
	}
	next := c.calls[name]
	if next == nil {
		next = &call{name: name}
		c.calls[name] = next
	}
	return next
}

// short is a function's name without the folders of its package.
func short(name string) string { return name[strings.LastIndex(name, "/")+1:] }

// box is the rectangle of a call; row 0 is the lowest.
type box struct {
	name  string
	value int64
	x, w  float64
	row   int
}

// drawFlame writes the profile as SVG: callers are below their callees, and widths are proportional to time. Calls that
// are too narrow to see are omitted, so that the file stays small.
func drawFlame(w io.Writer, p *profile.Profile, title string) error {
	root := &call{name: "all"}
	at := len(p.SampleType) - 1 // of a profile of the processors the time; the count comes before it
	if at < 0 {
		return errors.New("the profile has no values")
	}
	for _, s := range p.Sample {
		here := root
		here.value += s.Value[at]
		for i := len(s.Location) - 1; i >= 0; i-- {
			for k := len(s.Location[i].Line) - 1; k >= 0; k-- { // what was inlined comes first
				if f := s.Location[i].Line[k].Function; f != nil {
					here = here.to(f.Name)
					here.value += s.Value[at]
				}
			}
		}
	}
	if root.value == 0 {
		return errors.New("the profile is empty: no CPU time was sampled")
	}
	boxes := lay(root, margin, flameWidth-2*margin, 0, nil)
	rows := 0
	for i := range boxes {
		rows = max(rows, boxes[i].row+1)
	}
	height := headroom + rows*row + margin
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
		`font-family="ui-monospace,Menlo,Consolas,monospace" font-size="10.5">`+"\n", flameWidth, height, flameWidth, height)
	fmt.Fprintf(out, "<rect width=\"100%%\" height=\"100%%\" fill=\"#fcfcfa\"/>\n")
	fmt.Fprintf(out, "<text x=\"%d\" y=\"20\" font-size=\"13\" fill=\"#24292f\">%s</text>\n", margin, escaped(title))
	fmt.Fprintf(out, "<text x=\"%d\" y=\"36\" fill=\"#57606a\">%.1f s of processor time; a box is a function, as wide as its "+
		"part, on the one that called it; below 0.1 %% is left out</text>\n", margin, float64(root.value)/1e9)
	for i := range boxes {
		drawBox(out, &boxes[i], height, root.value)
	}
	fmt.Fprintln(out, "</svg>")
	return out.Flush()
}

// lay places a call and its callees from left to right by name, so that two graphs can be compared.
func lay(c *call, x, w float64, at int, boxes []box) []box {
	if w < narrow {
		return boxes
	}
	boxes = append(boxes, box{c.name, c.value, x, w, at})
	for _, next := range slices.SortedFunc(maps.Values(c.calls), func(a, b *call) int {
		return cmp.Compare(a.name, b.name)
	}) {
		part := w * float64(next.value) / float64(c.value)
		boxes = lay(next, x, part, at+1, boxes)
		x += part
	}
	return boxes
}

func drawBox(out io.Writer, b *box, height int, all int64) {
	y := height - margin - (b.row+1)*row
	fmt.Fprintf(out, `<g><title>%s %.1f%%</title><rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`,
		escaped(short(b.name)), 100*float64(b.value)/float64(all), b.x, y, max(0.5, b.w-0.5), row-1, colour(b.name))
	name := short(b.name)
	if letters := int((b.w - 4) / letter); letters >= 3 {
		text := name
		if len(text) > letters {
			text = text[:letters-1] + "…"
		}
		fmt.Fprintf(out, `<text x="%.1f" y="%d">%s</text>`, b.x+2, y+row-5, escaped(text))
	}
	fmt.Fprintln(out, "</g>")
}

// own is the path prefix of the packages of this project.
const own = "github.com/sojourn-run/sojourn/"

// colour returns a warm colour for a package of this project and a cold one for others. All functions of a package have
// the same colour.
func colour(name string) string {
	pkg, _, _ := strings.Cut(short(name), ".")
	h := fnv.New32a()
	_, _ = h.Write([]byte(pkg)) // it never fails
	n := int(h.Sum32() % 60)
	if strings.HasPrefix(name, own) {
		return fmt.Sprintf("#%02x%02x%02x", 235, 140+n, 70+n/2)
	}
	return fmt.Sprintf("#%02x%02x%02x", 170+n/2, 195+n/3, 205+n/2)
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a builder takes all
	return b.String()
}
