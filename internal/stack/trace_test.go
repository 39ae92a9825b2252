package stack

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Place finds the user's code in the stacks of every language, with frames of libraries above it.
func TestPlaceFindsTheCodeOfTheUser(t *testing.T) {
	for text, want := range map[string]string{
		"shop.Place(0x1)\n\t/src/shop/orders.go:42 +0x1d\nmain.main()\n\t/src/main.go:7":                                      "/src/shop/orders.go:42",
		"panic\n\truntime/panic.go:787 +0x1\nx.Y()\n\tgithub.com/x/y@v1.2.3/y.go:3\nmine()\n\tmine/a.go:9":                    "mine/a.go:9",
		"Error: no\n    at charge (file:///job/my%20cards.mjs:12:9)\n    at node:internal/x:3":                                "/job/my cards.mjs:12",
		"file:///job/late.mjs?hash=64c5:7\nTypeError: x\n    at f (file:///job/late.mjs?hash=64c5:7:3)":                       "/job/late.mjs:7",
		"Error: no\n    at f (/job/node_modules/pg/lib/client.js:1:1)\n    at main (/job/orders.ts:4:2)":                      "/job/orders.ts:4",
		"  File \"/job/orders.py\", line 3, in main\n  File \"/usr/lib/python3.11/json/decoder.py\", line 355, in raw_decode": "/job/orders.py:3",
		"  File \"/usr/lib/python3.11/json/decoder.py\", line 355, in raw_decode":                                             "/usr/lib/python3.11/json/decoder.py:355",
		"nothing of the kind": "",
	} {
		if got := Place(text); got != want {
			t.Errorf("%q is at %q, want %q", text, got, want)
		}
	}
}

func index(of []int, at int) int { return of[at] }

// The stack of a recovered panic begins with the code that panicked, not with recover or the runtime.
func TestTheStackOfAPanicBeginsWhereItHappened(t *testing.T) {
	caught := func(fn func()) (s string) {
		defer func() {
			_ = recover()
			s = OfPanic()
		}()
		fn()
		return ""
	}
	for what, fn := range map[string]func(){
		"a panic":              func() { panic("no") },
		"one of the runtime":   func() { index(nil, 3) },
		"one of another panic": func() { defer func() { panic(recover()) }(); panic("no") },
	} {
		s := caught(fn)
		if lines := strings.Split(s, "\n"); !strings.HasPrefix(lines[0], "goroutine ") ||
			!strings.Contains(lines[1], "internal/stack.") || !strings.Contains(lines[2], "trace_test.go:") {
			t.Errorf("the stack of %s does not begin with this file:\n%s", what, s)
		}
		if !strings.Contains(Place(s), "trace_test.go:") {
			t.Errorf("%s was at %s", what, Place(s))
		}
	}
	if s := fromPanic("goroutine 1 [running]:\nmain.main()\n\t/a.go:1"); !strings.Contains(s, "/a.go:1") {
		t.Errorf("a stack without a panic became %q", s)
	}
}

// A shortened stack has the lines at which the code failed: the end for Python, the beginning for other languages.
func TestAShortenedStackKeepsWhereItFailed(t *testing.T) {
	other := "Error: no\n    at charge (/job/cards.mjs:12:9)\n" + strings.Repeat("    at é (/job/far.mjs:1:1)\n", 100)
	python := pythonHead + strings.Repeat("  File \"/job/far.py\", line 1, in é\n", 100) +
		"  File \"/job/cards.py\", line 12, in charge\nValueError: no\n"
	for text, want := range map[string]string{other: "/job/cards.mjs:12", python: "/job/cards.py:12"} {
		for most := 200; most < 240; most++ {
			short := Shorten(text, most)
			if len(short) > most || Place(short) != want || !utf8.ValidString(short) {
				t.Errorf("%d bytes of %d are at %q:\n%s", len(short), most, Place(short), short)
			}
		}
		if Shorten(text, len(text)) != text {
			t.Error("a stack that fits was cut")
		}
	}
	if short := Shorten(python, 200); !strings.HasPrefix(short, pythonHead+"  …\n  File ") ||
		!strings.HasSuffix(short, "ValueError: no\n") {
		t.Errorf("of a trace is left\n%s", short)
	}
	if len(Shorten(python, 10)) > 10 {
		t.Error("it is longer than it may be")
	}
}
