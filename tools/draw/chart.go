package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	gochart "github.com/wcharczuk/go-chart/v2"
	"github.com/wcharczuk/go-chart/v2/drawing"
)

const (
	chartWidth, plot = 900, 360 // of the picture, and of the part above the legend
	line             = 19       // pixels from one line of text to the next
	small            = 8        // points
)

// The charts have a background colour, so that they are readable on dark and light pages. The colours of the lines are
// those of Okabe and Ito, which colour-blind readers can distinguish.
var (
	ground  = drawing.ColorFromHex("fcfcfa")
	ink     = drawing.ColorFromHex("24292f")
	faint   = drawing.ColorFromHex("d8dade")
	colours = []drawing.Color{
		drawing.ColorFromHex("0072b2"), drawing.ColorFromHex("d55e00"), drawing.ColorFromHex("009e73"),
		drawing.ColorFromHex("aa3377"), drawing.ColorFromHex("997700"), drawing.ColorFromHex("444444"),
	}
)

// result is the part of a result of "sojourn bench --json" that a chart shows.
type result struct {
	Scenario    string    `json:"scenario"`
	Description string    `json:"description"`
	Store       string    `json:"store"`
	Transport   string    `json:"transport"`
	Unit        string    `json:"unit"`
	N           int       `json:"n"` // operations in one run
	Median      float64   `json:"median"`
	Runs        []float64 `json:"runs"`
	Size        int       `json:"size"`
	SizeOf      string    `json:"size_of"`
	Cores       int       `json:"cores"`
	Go          string    `json:"go"`
	Version     string    `json:"version"`
	Date        string    `json:"date"`
	Limit       struct {
		Fsyncs  float64 `json:"fsyncs_per_s"`
		Commits float64 `json:"commits_per_s"`
	} `json:"limit"`
}

// drawCharts draws the results of each scenario into dir as ID.svg and ID.png, and returns the files.
func drawCharts(dir string, results []result) (files []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var ids []string
	of := map[string][]result{}
	for _, r := range results {
		if len(of[r.Scenario]) == 0 {
			ids = append(ids, r.Scenario)
		}
		of[r.Scenario] = append(of[r.Scenario], r)
	}
	for _, id := range ids {
		for ending, renderer := range map[string]gochart.RendererProvider{"svg": gochart.SVG, "png": gochart.PNG} {
			name := filepath.Join(dir, id+"."+ending)
			if err := write(name, picture(of[id]), renderer); err != nil {
				return files, fmt.Errorf("chart of %s: %w", id, err)
			}
			files = append(files, name)
		}
	}
	slices.Sort(files)
	return files, nil
}

func write(name string, c gochart.Chart, renderer gochart.RendererProvider) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return c.Render(renderer, f)
}

// curve is one line of a chart: the runs of a scenario on one store over one transport, or its medians by size.
type curve struct {
	name string
	x, y []float64
}

// picture draws the results of one scenario: each run's figure, or, where they differ in a size, the medians over it.
func picture(results []result) gochart.Chart {
	first := results[0]
	curves, xName, ticks := runs(results)
	if first.Size > 0 {
		curves, xName, ticks = growth(results)
	}
	low, high := 0.0, 0.0
	for _, c := range curves {
		low, high = min(low, slices.Min(c.y)), max(high, slices.Max(c.y))
	}
	yTicks, ticks := rounded(low, high), widened(ticks)
	text := gochart.Style{FontSize: small, FontColor: ink, StrokeColor: ink}
	grid := gochart.Style{StrokeColor: faint, StrokeWidth: 1}
	words := caption(first, len(curves))
	c := gochart.Chart{
		Title: title(first), TitleStyle: gochart.Style{FontSize: 10, FontColor: ink},
		Width: chartWidth, Height: plot + line*(len(curves)+len(words)+1),
		Background: gochart.Style{
			FillColor: ground, Padding: gochart.Box{
				Top: 50, Left: 30, Right: 30, Bottom: 20 + line*(len(curves)+len(words)+1),
			},
		},
		Canvas: gochart.Style{FillColor: ground},
		XAxis: gochart.XAxis{
			Name: xName, NameStyle: text, Style: text, Ticks: ticks, GridMajorStyle: grid, GridMinorStyle: grid,
		},
		YAxis: gochart.YAxis{
			Name: unit(first), NameStyle: text, Style: text, Ticks: yTicks, GridMajorStyle: grid, GridMinorStyle: grid,
			AxisType: gochart.YAxisSecondary, // which is the left one
		},
	}
	for i, curve := range curves {
		colour := colours[i%len(colours)]
		c.Series = append(c.Series, gochart.ContinuousSeries{
			Name: curve.name, XValues: curve.x, YValues: curve.y,
			Style: gochart.Style{StrokeColor: colour, StrokeWidth: 2, DotColor: colour, DotWidth: 4},
		})
	}
	c.Elements = []gochart.Renderable{func(r gochart.Renderer, _ gochart.Box, _ gochart.Style) {
		below(r, curves, words)
	}}
	return c
}

// below writes the legend and the caption under the plot.
func below(r gochart.Renderer, curves []curve, words []string) {
	font, err := gochart.GetDefaultFont()
	if err != nil {
		return // the library's own, which is there
	}
	y := plot + line/2
	for i, c := range curves {
		colour := colours[i%len(colours)]
		gochart.Draw.Box(r, gochart.Box{Left: 40, Right: 52, Top: y - 10, Bottom: y + 1}, gochart.Style{FillColor: colour})
		gochart.Draw.Text(r, c.name, 60, y, gochart.Style{Font: font, FontSize: small + 1, FontColor: ink})
		y += line
	}
	for _, text := range words {
		gochart.Draw.Text(r, text, 40, y, gochart.Style{Font: font, FontSize: small, FontColor: ink})
		y += line
	}
}

// runs are the curves of a scenario by run.
func runs(results []result) (curves []curve, xName string, ticks []gochart.Tick) {
	most := 1
	for _, r := range results {
		c := curve{name: fmt.Sprintf("%s: median %s %s", name(r), number(r.Median), unit(r))}
		for i, v := range r.Runs {
			c.x, c.y = append(c.x, float64(i+1)), append(c.y, v)
		}
		curves, most = append(curves, c), max(most, len(r.Runs))
	}
	for i := range most {
		ticks = append(ticks, gochart.Tick{Value: float64(i + 1), Label: strconv.Itoa(i + 1)})
	}
	return curves, "run", ticks
}

// growth are the curves of a scenario by size, on a logarithmic axis.
func growth(results []result) (curves []curve, xName string, ticks []gochart.Tick) {
	for _, r := range results {
		i := slices.IndexFunc(curves, func(c curve) bool { return c.name == name(r) })
		if i < 0 {
			i, curves = len(curves), append(curves, curve{name: name(r)})
		}
		x := math.Log10(float64(r.Size))
		curves[i].x, curves[i].y = append(curves[i].x, x), append(curves[i].y, r.Median)
		if !slices.ContainsFunc(ticks, func(t gochart.Tick) bool { return t.Value == x }) {
			ticks = append(ticks, gochart.Tick{Value: x, Label: thousands(r.Size)})
		}
	}
	for i, c := range curves {
		var all []string
		for _, y := range c.y {
			all = append(all, number(y))
		}
		curves[i].name += ": " + strings.Join(all, ", ")
	}
	slices.SortFunc(ticks, func(a, b gochart.Tick) int { return int(math.Copysign(1, a.Value-b.Value)) })
	return curves, results[0].SizeOf + " (logarithmic)", ticks
}

// unit returns the unit of the axis. In a result's unit the text after a comma names a part.
func unit(r result) string {
	u, _, _ := strings.Cut(r.Unit, ",")
	return u
}

// name returns the store, the transport and the part of a result.
func name(r result) string {
	_, part, _ := strings.Cut(r.Unit, ", ")
	return strings.TrimSpace(strings.Join([]string{r.Store, r.Transport, part}, " "))
}

// widened adds space left and right of the outermost points, since an axis ends at its first and last tick.
func widened(ticks []gochart.Tick) []gochart.Tick {
	first, last := ticks[0].Value, ticks[len(ticks)-1].Value
	room := max(0.3, (last-first)/20)
	return slices.Concat([]gochart.Tick{{Value: first - room}}, ticks, []gochart.Tick{{Value: last + room}})
}

func title(r result) string {
	what := r.Description
	if len(what) > 105 {
		what = what[:strings.LastIndex(what[:105], " ")] + " …"
	}
	return r.Scenario + ": " + what
}

// caption describes how the figures were measured, and the limits of the machine.
func caption(r result, curves int) []string {
	of := fmt.Sprintf("%d operations a run, each dot a run", r.N)
	if r.Size > 0 {
		of = fmt.Sprintf("each dot the median of %d runs of %d operations", len(r.Runs), r.N)
	}
	limits := fmt.Sprintf(
		"measured with the last run: %s syncs of a file and %s commits of next to nothing a second", number(r.Limit.Fsyncs),
		number(r.Limit.Commits),
	)
	if curves > 1 {
		limits += " (of the first line)"
	}
	return []string{
		of + ", payloads of 1 KB, everything written through to the disk",
		fmt.Sprintf("%s · Sojourn %s · %s · %d cores · client, app, worker and database on one machine",
			r.Date, r.Version, r.Go, r.Cores),
		limits,
	}
}

// rounded are about six round figures that enclose low to high.
func rounded(low, high float64) (ticks []gochart.Tick) {
	if high <= low {
		high = low + 1
	}
	raw := (high - low) / 5
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, f := range []float64{1, 2, 2.5, 5, 10} {
		if f*step >= raw {
			step *= f
			break
		}
	}
	from := math.Floor(low / step)
	for i := from; ; i++ {
		ticks = append(ticks, gochart.Tick{Value: i * step, Label: number(i * step)})
		if i*step >= high {
			return ticks
		}
	}
}

// number shows a figure with about three digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1000:
		return thousands(int(math.Round(v)))
	case a >= 100 || v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func thousands(n int) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
