package lockdown

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRulesetIsWhatTheABIKnows(t *testing.T) {
	for _, c := range []struct {
		abi  int
		want ruleset
	}{
		{1, ruleset{files: 0x1fff}},
		{2, ruleset{files: 0x3fff}},
		{3, ruleset{files: 0x7fff}},
		{4, ruleset{files: 0x7fff}},
		{5, ruleset{files: 0xffff}},
		{6, ruleset{files: 0xffff, scoped: 3}},
		{8, ruleset{files: 0xffff, scoped: 3}},
		{9, ruleset{files: 0x1ffff, scoped: 3}},
	} {
		if got := rulesetOf(c.abi); got != c.want {
			t.Errorf("ABI %d: %+v, want %+v", c.abi, got, c.want)
		}
	}
}

func TestPortsAreRuledWhereTheyAreNamed(t *testing.T) {
	if got := (Rules{Landlock: 7, Ports: []uint16{80}}).ruleset(); got.net != 2 || got.files != 0xffff {
		t.Errorf("with a port: %+v", got)
	}
	if got := (Rules{Landlock: 7, Inet: true}).ruleset(); got.net != 0 {
		t.Errorf("without: %+v", got)
	}
	for k, want := range map[Kernel]bool{
		{3, true}: false, {4, true}: true, {9, true}: true, {9, false}: false, {0, true}: false,
	} {
		if got := k.HoldsPorts(); got != want {
			t.Errorf("%+v: %v", k, got)
		}
	}
}

func TestRulesRequestOnlyRightsOfTheirFileType(t *testing.T) {
	r := Rules{Read: []string{"r"}, Write: []string{"w"}, Devices: []string{"d"}}
	for _, c := range []struct {
		abi          int
		folder, file [3]uint64 // rights to read, to write, and on devices
	}{
		{1, [3]uint64{0xd, 0x1fff &^ 0x840, 6}, [3]uint64{5, 7, 6}},
		{3, [3]uint64{0xd, 0x7fff &^ 0x840, 0x4006}, [3]uint64{5, 0x4007, 0x4006}},
		{7, [3]uint64{0xd, 0x7fff &^ 0x840, 0xc006}, [3]uint64{5, 0x4007, 0xc006}},
		{9, [3]uint64{0xd, 0x17fff &^ 0x840, 0xc006}, [3]uint64{5, 0x14007, 0xc006}},
	} {
		for i, f := range r.fileRules() {
			set := rulesetOf(c.abi)
			if folder, file := f.on(set, true), f.on(set, false); folder != c.folder[i] || file != c.file[i] {
				t.Errorf("ABI %d, %s: %#x and %#x, want %#x and %#x", c.abi, f.path, folder, file, c.folder[i], c.file[i])
			}
			if f.needed != (f.path == "w") {
				t.Errorf("%s: needed %v", f.path, f.needed)
			}
		}
	}
}

func TestRulesDescribeTheirLimits(t *testing.T) {
	for abi, want := range map[int][3]bool{
		0: {}, 1: {}, 2: {}, 3: {true}, 5: {true}, 6: {true, true}, 8: {true, true}, 9: {true, true, true},
	} {
		r := Rules{Landlock: abi}
		if got := [3]bool{r.HoldsTruncate(), r.HoldsSignals(), r.HoldsNamedSockets()}; got != want {
			t.Errorf("ABI %d: %v, want %v", abi, got, want)
		}
	}
}

func TestCovers(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.MkdirAll(in("lib/deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(in("lib"), in("link")); err != nil {
		t.Fatal(err)
	}
	r := Rules{Read: []string{in("link"), "/one"}, Write: []string{in("scratch")}, Devices: []string{"/dev/null"}}
	for path, want := range map[string][2]bool{ // for reading, for writing
		in("lib/deep/missing"): {true, false},
		in("link/deep"):        {true, false},
		in("library"):          {false, false},
		in("lib/../secret"):    {false, false},
		in("scratch/a"):        {true, true},
		in("scratch"):          {true, true},
		in("scratched"):        {false, false},
		"/one":                 {true, false},
		"/dev/null":            {true, true},
		"/":                    {false, false},
	} {
		if got := [2]bool{r.Covers(path, false), r.Covers(path, true)}; got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	if !(Rules{Read: []string{"/"}}).Covers("/etc/passwd", false) {
		t.Error("the root covers nothing")
	}
}
