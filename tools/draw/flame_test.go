package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

func sample(value int64, stack ...string) *profile.Sample {
	s := &profile.Sample{Value: []int64{1, value}}
	for _, name := range stack { // the innermost first
		s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name}}}})
	}
	return s
}

func taken(samples ...*profile.Sample) *profile.Profile {
	return &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples"}, {Type: "cpu"}}, Sample: samples}
}

// The width of a call is proportional to its time, callers are below, and calls that are too narrow are omitted.
func TestCallsAreAsWideAsTheirTime(t *testing.T) {
	var out bytes.Buffer
	err := drawFlame(&out, taken(
		sample(600, "github.com/sojourn-run/sojourn/app.(*Store[...]).commit", "main.main"),
		sample(200, "main.main"),
		sample(199, "other/pkg.f", "runtime.goexit"),
		sample(1, "other/pkg.tiny<T>", "runtime.goexit"),
	), "P5 <on> SQLite & more")
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(out.Bytes()))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("no XML: %v in %s", err, out.String())
		}
	}
	for _, want := range []string{
		"app.(*Store[...]).commit 60.0%", "main.main 80.0%", "pkg.f 19.9%", "P5 &lt;on&gt; SQLite &amp; more",
		`width="707.5"`, // 60 % of 1,180 less the gap
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in %s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "tiny") {
		t.Error("what is a pixel wide is drawn")
	}
	lines := strings.Split(out.String(), "\n")
	row := func(name string) (y string) {
		for _, l := range lines {
			if strings.Contains(l, "<title>"+name+" ") {
				_, y, _ = strings.Cut(l, `y="`)
				y, _, _ = strings.Cut(y, `"`)
			}
		}
		return y
	}
	if row("main.main") <= row("app.(*Store[...]).commit") { // three digits both: y grows downwards
		t.Errorf("a caller at %s is not below what it calls at %s", row("main.main"), row("app.(*Store[...]).commit"))
	}
	if colour("github.com/sojourn-run/sojourn/app.f") == colour("other/app.f") {
		t.Error("code of others looks like ours")
	}
}

func TestProfileWithoutSamplesIsReported(t *testing.T) {
	if err := drawFlame(io.Discard, taken(), "nothing"); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("got %v", err)
	}
}
