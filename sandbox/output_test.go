package sandbox

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOutputIsSplitIntoLines(t *testing.T) {
	long := strings.Repeat("y", maxLogLine)
	for name, c := range map[string]struct {
		writes []string
		want   []string
	}{
		"lines":                     {[]string{"a\nb\n"}, []string{"a", "b"}},
		"a line in pieces":          {[]string{"he", "ll", "o\nthere"}, []string{"hello", "there"}},
		"empty lines":               {[]string{"\n\na\n"}, []string{"", "", "a"}},
		"a line over the limit":     {[]string{long + "z\nq\n"}, []string{long, "z", "q"}},
		"a line of just the limit":  {[]string{long + "\n"}, []string{long}},
		"over the limit, in pieces": {[]string{long[:10], long + "z", "z\n"}, []string{long, strings.Repeat("y", 10) + "zz"}},
		"no line end at all":        {[]string{long, long, "z"}, []string{long, long, "z"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var got []string
			o := &output{file: r, line: func(b []byte) { got = append(got, string(b)) }}
			for _, text := range c.writes {
				if _, err := w.WriteString(text); err != nil {
					t.Fatal(err)
				}
				conn, err := r.SyscallConn()
				if err != nil {
					t.Fatal(err)
				}
				if err := conn.Control(func(fd uintptr) {
					for o.readOnce(fd) {
					}
				}); err != nil {
					t.Fatal(err)
				}
			}
			w.Close()
			o.run()
			if d := cmp.Diff(got, c.want); d != "" {
				t.Errorf("(-got +want)\n%s", d)
			}
			all := strings.Join(c.writes, "")
			if want := all[max(0, len(all)-maxTail):]; string(o.tail) != want {
				t.Errorf("the tail is %d bytes %.20q, want %d %.20q", len(o.tail), o.tail, len(want), want)
			}
		})
	}
}

// The error of a Go program precedes its goroutine dump.
func TestTheReasonAboveALongDumpIsKept(t *testing.T) {
	dump := strings.Repeat("goroutine 7 [select]:\n", 1000)
	for printed, want := range map[string]string{
		"panic: one\n" + dump + "fatal error: two\n" + dump: "fatal error: two\n…\n" + dump[len(dump)-maxTail:],
		dump + "panic: three\n":                             (dump + "panic: three\n")[len(dump)+13-maxTail:],
		dump:                                                dump[len(dump)-maxTail:],
		"panic: " + strings.Repeat("x", 2*maxFatal) + "\n" + dump: "panic: " + strings.Repeat("x", maxFatal-7) + "\n…\n" +
			dump[len(dump)-maxTail:],
	} {
		o := &output{line: func([]byte) {}}
		o.split([]byte(printed))
		if got := o.last(); got != want {
			t.Errorf("got %.60q…, %d bytes, want %.60q…, %d bytes", got, len(got), want, len(want))
		}
	}
}

func TestPrintedTextContainsNoControlCharacters(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext":                    "plain\ttext",
		"\x1b[31mred\x1b[0m":             "red",
		"\x1b]0;title\x07x":              "0;titlex",
		"bell\a nul\x00":                 "bell nul",
		"bad \xff byte":                  "bad \uFFFD byte",
		"50%\r100%":                      "50% 100%",
		"größe ✓":                        "größe ✓",
		"\x1b[38;5;196mcolour\x1b[K end": "colour end",
	} {
		if got := clean([]byte(in)); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
