package sandbox

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"unicode"
)

// output splits one output stream of an executor into lines. Its memory is limited to one line and a tail.
type output struct {
	file *os.File
	line func(text []byte) // called with each line, without its line feed

	mu      sync.Mutex // held while reading and logging; guards the fields below
	buf     [32 << 10]byte
	partial []byte
	tail    []byte // the last output, for crash reports
	// the last line with the cause of a crash of a Go program, which a long dump may follow; nil: none
	fatal []byte
	ended bool
}

// These are the maximum sizes, in bytes, of the stored end of the output and of the stored line before a crash dump.
const (
	maxTail  = 4 << 10
	maxFatal = 1 << 10
)

// run reads until the stream ends.
func (o *output) run() {
	conn, err := o.file.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Read(func(fd uintptr) bool {
		for o.readOnce(fd) {
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.ended
	})
	o.flush()
}

// catchUp reads all available output, so that output before a result is logged before the result.
func (o *output) catchUp() {
	conn, err := o.file.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		for range 4 << 20 / len(o.buf) { // bounded, because a program that prints without end must not delay its result
			if !o.readOnce(fd) {
				break
			}
		}
	})
	o.flush()
}

// readOnce reads once; false if no data is available or the stream has ended.
func (o *output) readOnce(fd uintptr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return false
	}
	n, err := readNonblocking(int(fd), o.buf[:])
	switch {
	case n > 0:
		o.split(o.buf[:n])
		return true
	case errors.Is(err, syscall.EINTR):
		return true
	case errors.Is(err, syscall.EAGAIN):
		return false
	}
	o.ended = true
	return false
}

func (o *output) split(b []byte) {
	if len(b) >= maxTail {
		o.tail = append(o.tail[:0], b[len(b)-maxTail:]...)
	} else {
		if excess := len(o.tail) + len(b) - maxTail; excess > 0 {
			o.tail = append(o.tail[:0], o.tail[excess:]...)
		}
		o.tail = append(o.tail, b...)
	}
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			room := min(maxLogLine-len(o.partial), len(b))
			o.partial = append(o.partial, b[:room]...)
			if b = b[room:]; len(b) == 0 {
				return
			}
			o.emitLine(o.partial)
			o.partial = o.partial[:0]
			continue
		}
		if len(o.partial) > 0 {
			room := min(maxLogLine-len(o.partial), i)
			o.partial = append(o.partial, b[:room]...)
			o.emitLine(o.partial)
			o.partial = o.partial[:0]
			if room < i {
				b = b[room:]
				continue
			}
		} else {
			for j := 0; ; j += maxLogLine {
				o.emitLine(b[j:min(j+maxLogLine, i)])
				if j+maxLogLine >= i {
					break
				}
			}
		}
		b = b[i+1:]
	}
}

// emitLine passes a line to the log.
func (o *output) emitLine(line []byte) {
	if bytes.HasPrefix(line, []byte("fatal error: ")) || bytes.HasPrefix(line, []byte("panic: ")) {
		o.fatal = append(o.fatal[:0], line[:min(len(line), maxFatal)]...)
	}
	o.line(line)
}

// flush logs the last line if it has no line feed.
func (o *output) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.partial) > 0 {
		o.emitLine(o.partial)
		o.partial = o.partial[:0]
	}
}

// last returns the end of the output, preceded by the line with the error if the end does not contain it.
func (o *output) last() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.fatal) > 0 && !bytes.Contains(o.tail, o.fatal) {
		return clean(o.fatal) + "\n…\n" + clean(o.tail)
	}
	return clean(o.tail)
}

// clean converts output to valid UTF-8 without control characters and terminal sequences.
func clean(b []byte) string {
	plain := true
	for _, c := range b {
		if c < ' ' && c != '\t' && c != '\n' || c >= 0x7f {
			plain = false
			break
		}
	}
	if plain {
		return string(b)
	}
	var out strings.Builder
	escape := false
	for i, r := range []rune(strings.ToValidUTF8(string(b), "\uFFFD")) {
		switch {
		case escape:
			// ESC [ parameters letter, or ESC and one character.
			escape = r == '[' || r >= '0' && r <= '?'
		case r == 0x1b:
			escape = true
		case r == '\t' || r == '\n' || !unicode.IsControl(r):
			out.WriteRune(r)
		case r == '\r' && i < len(b)-1:
			out.WriteByte(' ')
		}
	}
	return out.String()
}
