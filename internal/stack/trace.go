package stack

import (
	"net/url"
	"regexp"
	"runtime/debug"
	"strings"
)

// OfPanic returns the stack of a recovered panic, for people: it begins at the code that panicked, without the frames
// of recover and of the runtime. Call it in a deferred function.
func OfPanic() string { return fromPanic(string(debug.Stack())) }

// fromPanic removes from a goroutine's stack the frames above the code that panicked. A frame has two lines, the
// function and its position.
func fromPanic(s string) string {
	lines := strings.Split(s, "\n")
	for at := 1; at+2 < len(lines); at += 2 {
		if !strings.HasPrefix(lines[at], "panic(") {
			continue
		}
		for at += 2; at+2 < len(lines) && strings.HasPrefix(lines[at], "runtime."); at += 2 {
		}
		return strings.Join(append(lines[:1:1], lines[at:]...), "\n")
	}
	return s // the goroutine ended in another way, such as runtime.Goexit
}

// pythonHead begins a trace of Python, which goes from the outermost frame to the innermost.
const pythonHead = "Traceback (most recent call last):\n"

// Clean prepares a stack for storage and logs: it removes NUL characters and shortens the stack to most bytes of UTF-8.
func Clean(s string, most int) string { return Shorten(strings.ReplaceAll(s, "\x00", ""), most) }

// Shorten truncates a stack to most bytes and keeps the position of the failure: the beginning, or for Python the end.
func Shorten(s string, most int) string {
	if len(s) <= most {
		return strings.ToValidUTF8(s, "")
	}
	if strings.HasPrefix(s, pythonHead) {
		if tail := most - len(pythonHead) - len("  …\n"); tail > 0 {
			s = s[len(s)-tail:]
			if _, whole, ok := strings.Cut(s, "\n"); ok {
				s = whole
			}
			return pythonHead + "  …\n" + strings.ToValidUTF8(s, "")
		}
	}
	return strings.ToValidUTF8(s[:most], "")
}

var (
	pythonFrame = regexp.MustCompile(`File "([^"]+)", line (\d+)`)
	otherFrame  = regexp.MustCompile(`((?:file://)?[^\s()"']*[\w.@-]\.(?:go|[cm]?[jt]sx?|rs|py))(?:\?[^\s:]*)?:(\d+)`)
	// a frame of the standard library or an installed package, not of the user's code
	library = regexp.MustCompile(
		`(?:^|/)(?:site-packages|dist-packages|node_modules|pkg/mod)/|/lib/python3|/go/src/|@v\d|^node:|^<|^runtime/`,
	)
)

// Place returns the position at which code failed, as "/srv/handlers/orders.py:42": the innermost frame of the user's
// code, or, if there is none, the innermost frame. Python prints it last, other languages first. It is empty for a text
// that names no file. The dashboard's lib/stack.ts has the same rule.
func Place(s string) string {
	frames := pythonFrame.FindAllStringSubmatch(s, -1)
	for i, j := 0, len(frames)-1; i < j; i, j = i+1, j-1 {
		frames[i], frames[j] = frames[j], frames[i]
	}
	if len(frames) == 0 {
		frames = otherFrame.FindAllStringSubmatch(s, -1)
	}
	for _, f := range frames {
		if !library.MatchString(f[1]) {
			return place(f)
		}
	}
	if len(frames) == 0 {
		return ""
	}
	return place(frames[0])
}

func place(frame []string) string {
	file, is := strings.CutPrefix(frame[1], "file://")
	if is {
		if plain, err := url.PathUnescape(file); err == nil {
			file = plain
		}
	}
	return file + ":" + frame[2]
}
