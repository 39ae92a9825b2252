package stack

import (
	"net/url"
	"regexp"
	"runtime/debug"
	"strings"
)

// OfPanic is the stack of a panic that was recovered, for people: it begins where the code was that panicked, without
// the frames of those who caught it and of the runtime. It is for a deferred function.
func OfPanic() string { return fromPanic(string(debug.Stack())) }

// fromPanic leaves out of a goroutine's stack what is above the code that panicked. A frame is two lines, the function
// and its place.
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
	return s // ended otherwise, as by runtime.Goexit
}

// pythonHead begins a trace of Python, which goes from the outermost frame to the innermost.
const pythonHead = "Traceback (most recent call last):\n"

// Clean prepares a stack for storage and logs: it removes NUL characters and shortens the stack to most bytes of UTF-8.
func Clean(s string, most int) string { return Shorten(strings.ReplaceAll(s, "\x00", ""), most) }

// Shorten cuts a stack to so many bytes, and keeps where the code failed: the beginning, or of Python the end.
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
	// a frame of what came with the language or was installed, not written by who reads
	library = regexp.MustCompile(
		`(?:^|/)(?:site-packages|dist-packages|node_modules|pkg/mod)/|/lib/python3|/go/src/|@v\d|^node:|^<|^runtime/`,
	)
)

// Place is where a stack says that code failed, as "/srv/handlers/orders.py:42": the innermost frame of people's own
// code, or when there is none the innermost. Python writes that last, all others first. It is empty for a text that
// names no file. The dashboard's lib/stack.ts has the same rule.
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
