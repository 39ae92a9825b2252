// Package frame is the protocol between worker and executor: length-prefixed frames of a JSON header and an opaque
// body.
//
// A frame is `u32le headerLen | u32le bodyLen | header (UTF-8 JSON) | body`. Both lengths are checked against [Limits]
// before anything is allocated, because the other side runs user code and can write any bytes.
package frame

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// prefix is the size of the two lengths in front of every frame, in bytes.
const prefix = 8

// Limits bound one frame, in bytes.
type Limits struct {
	Header int // maximum size of the JSON header
	Body   int // maximum size of the opaque body
}

// DefaultLimits are the limits of protocol version 1: 64 KiB of header, and a payload of 2 MiB plus a reserve of 64
// KiB.
var DefaultLimits = Limits{Header: 64 << 10, Body: 2<<20 + 64<<10}

// Deadline is the maximum time from the first to the last byte of a frame.
const Deadline = 10 * time.Second

// ErrMalformed is wrapped by every error that reports a violation of the protocol, in contrast to a closed connection.
var ErrMalformed = errors.New("malformed frame")

// Frame is a message with a header and a body.
type Frame struct {
	Header
	Body []byte
}

// Append appends the encoding of f to dst. It fails if f exceeds l, so that the sender detects the error before the
// receiver.
func Append(dst []byte, f Frame, l Limits) ([]byte, error) {
	dst, err := AppendHead(dst, &f, l)
	if err != nil {
		return dst, err
	}
	return append(dst, f.Body...), nil
}

// AppendHead is like Append, but omits the body, which the caller writes itself to avoid a copy.
func AppendHead(dst []byte, f *Frame, l Limits) ([]byte, error) {
	if len(f.Body) > l.Body {
		return dst, fmt.Errorf("body of %d bytes exceeds %d: %w", len(f.Body), l.Body, ErrMalformed)
	}
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	whole := false
	if f.T == Invoke {
		dst, whole = appendInvoke(dst, &f.Header)
	}
	if !whole {
		h := f.Header // values that are encoded as JSON escape to the heap, but most calls have none
		header, err := json.Marshal(&h)
		if err != nil {
			return dst[:start], fmt.Errorf("header: %w", err)
		}
		dst = append(dst[:start+prefix], header...)
	}
	header := len(dst) - start - prefix
	if header > l.Header {
		return dst[:start], fmt.Errorf("header of %d bytes exceeds %d: %w", header, l.Header, ErrMalformed)
	}
	binary.LittleEndian.PutUint32(dst[start:], uint32(header))
	binary.LittleEndian.PutUint32(dst[start+4:], uint32(len(f.Body)))
	return dst, nil
}

// Reader reads frames from a byte stream. It is not safe for concurrent use.
type Reader struct {
	r      *bufio.Reader
	limits Limits
	// deadline sets a read deadline on the stream, or removes it for the zero time; nil if the stream has none.
	deadline func(time.Time) error
	patience time.Duration
}

// NewReader returns a reader of frames within l from r. If deadline is not nil, it is called with the time by which a
// started frame must be complete, and with the zero time once it is.
func NewReader(r io.Reader, l Limits, deadline func(time.Time) error) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 16<<10), limits: l, deadline: deadline, patience: Deadline}
}

// SetPatience replaces [Deadline] for all frames that are read later.
func (r *Reader) SetPatience(d time.Duration) { r.patience = d }

// Read returns the next frame; the caller owns its body. It returns io.EOF only between frames. Errors that wrap
// [ErrMalformed] report a violation of the protocol: a length over the limit, a header that is not a JSON object in
// UTF-8, a truncated frame, or a frame that took longer than the deadline.
func (r *Reader) Read() (Frame, error) {
	if _, err := r.r.Peek(1); err != nil {
		return Frame{}, err
	}
	armed := false
	arm := func(need int) error {
		if armed || r.deadline == nil || r.r.Buffered() >= need {
			return nil
		}
		armed = true
		return r.deadline(time.Now().Add(r.patience))
	}
	if err := arm(prefix); err != nil {
		return Frame{}, err
	}
	lengths, err := r.r.Peek(prefix)
	if err != nil {
		return Frame{}, cut(err)
	}
	headerLen, bodyLen := binary.LittleEndian.Uint32(lengths[:4]), binary.LittleEndian.Uint32(lengths[4:])
	_, _ = r.r.Discard(prefix) // cannot fail: these bytes are in the buffer
	if uint64(headerLen) > uint64(r.limits.Header) {
		return Frame{}, fmt.Errorf("header of %d bytes exceeds %d: %w", headerLen, r.limits.Header, ErrMalformed)
	}
	if uint64(bodyLen) > uint64(r.limits.Body) {
		return Frame{}, fmt.Errorf("body of %d bytes exceeds %d: %w", bodyLen, r.limits.Body, ErrMalformed)
	}
	if err := arm(int(headerLen) + int(bodyLen)); err != nil {
		return Frame{}, err
	}
	var f Frame
	if f.Header, err = r.header(int(headerLen)); err != nil {
		return Frame{}, err
	}
	if bodyLen > 0 {
		f.Body = make([]byte, bodyLen)
		if _, err := io.ReadFull(r.r, f.Body); err != nil {
			return Frame{}, cut(err)
		}
	}
	if armed {
		if err := r.deadline(time.Time{}); err != nil {
			return Frame{}, err
		}
	}
	return f, nil
}

// header reads a header of a given size, usually without copying it from the buffer.
func (r *Reader) header(size int) (Header, error) {
	var raw []byte
	var err error
	if size <= r.r.Size() {
		if raw, err = r.r.Peek(size); err == nil {
			defer func() { _, _ = r.r.Discard(size) }() // cannot fail: these bytes are in the buffer
		}
	} else {
		raw = make([]byte, size)
		_, err = io.ReadFull(r.r, raw)
	}
	if err != nil {
		return Header{}, cut(err)
	}
	var h Header
	if readResult(&h, raw) {
		return h, nil
	}
	return parse(raw)
}

func parse(raw []byte) (h Header, err error) {
	if !utf8.Valid(raw) {
		return h, fmt.Errorf("header is not UTF-8: %w", ErrMalformed)
	}
	if err := json.Unmarshal(raw, &h); err != nil {
		return h, fmt.Errorf("header: %w: %w", err, ErrMalformed)
	}
	if h.T == "" {
		return h, fmt.Errorf("header without a type: %w", ErrMalformed)
	}
	return h, nil
}

// cut converts an end of the stream or a timeout inside a frame to a protocol error.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("frame cut short: %w", ErrMalformed)
	}
	var late interface{ Timeout() bool }
	if errors.As(err, &late) && late.Timeout() {
		return fmt.Errorf("frame not complete in time: %w", ErrMalformed)
	}
	return err
}
