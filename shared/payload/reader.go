package payload

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// reader decodes a datum from untrusted input: it compares every length with the remaining bytes before using it.
type reader struct {
	buf   []byte
	pos   int
	depth int
}

func (r *reader) bad(what string) error {
	return fail(ErrInvalidFraming, "invalid payload: %s at byte %d", what, r.pos)
}

// mustBeAtEnd reports bytes after the datum.
func (r *reader) mustBeAtEnd() error {
	if r.pos != len(r.buf) {
		return r.bad("trailing bytes")
	}
	return nil
}

// tag reads the branch of the next value.
func (r *reader) tag() (byte, error) {
	if r.pos >= len(r.buf) {
		return 0, r.bad("truncated value")
	}
	tag := r.buf[r.pos]
	if tag > tagMap || tag&1 != 0 {
		return 0, r.bad("unknown value branch")
	}
	r.pos++
	return tag, nil
}

// peek returns the next tag without consuming it.
func (r *reader) peek() (byte, error) {
	tag, err := r.tag()
	if err == nil {
		r.pos--
	}
	return tag, err
}

func (r *reader) long() (int64, error) {
	if r.pos < len(r.buf) && r.buf[r.pos] < 0x80 { // most numbers and lengths
		b := r.buf[r.pos]
		r.pos++
		return int64(b>>1) ^ -int64(b&1), nil
	}
	u, n := binary.Uvarint(r.buf[r.pos:])
	if n == 0 {
		return 0, r.bad("truncated number")
	}
	if n < 0 {
		return 0, r.bad("over-long number")
	}
	r.pos += n
	return int64(u>>1) ^ -int64(u&1), nil
}

func (r *reader) bool() (bool, error) {
	if r.pos >= len(r.buf) {
		return false, r.bad("truncated boolean")
	}
	b := r.buf[r.pos]
	if b > 1 {
		return false, r.bad("invalid boolean")
	}
	r.pos++
	return b == 1, nil
}

func (r *reader) double() (float64, error) {
	if len(r.buf)-r.pos < 8 {
		return 0, r.bad("truncated double")
	}
	f := math.Float64frombits(binary.LittleEndian.Uint64(r.buf[r.pos:]))
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, r.bad("non-finite double")
	}
	r.pos += 8
	return f, nil
}

// bytes returns a window of the buffer, valid until the buffer is released.
func (r *reader) bytes() ([]byte, error) {
	n, err := r.long()
	if err != nil {
		return nil, err
	}
	if n < 0 || n > int64(len(r.buf)-r.pos) {
		return nil, r.bad("length beyond the end")
	}
	b := r.buf[r.pos : r.pos+int(n)]
	r.pos += int(n)
	return b, nil
}

// text reads bytes that must be UTF-8.
func (r *reader) text() ([]byte, error) {
	b, err := r.bytes()
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(b) {
		return nil, r.bad("invalid UTF-8 before")
	}
	return b, nil
}

// skipText skips a text. It is fast for short ASCII texts, which are the most common.
func (r *reader) skipText() error {
	if r.pos < len(r.buf) && r.buf[r.pos] < 0x80 && r.buf[r.pos]&1 == 0 {
		start := r.pos + 1
		if end := start + int(r.buf[r.pos]>>1); end <= len(r.buf) {
			rest, high := r.buf[start:end], uint64(0)
			for ; len(rest) >= 8; rest = rest[8:] {
				high |= binary.LittleEndian.Uint64(rest)
			}
			for _, c := range rest {
				high |= uint64(c)
			}
			if high&0x8080808080808080 == 0 {
				r.pos = end
				return nil
			}
		}
	}
	_, err := r.text()
	return err
}

// blocks iterates the items of an array or map whose branch has been read: a sequence of counted blocks ended by an
// empty one. A negative count is followed by the size of its block in bytes.
type blocks struct {
	left    int // items left in this block
	sizedTo int // where a sized block must end; 0 if the block states no size
	least   int // minimum number of bytes of an item
}

// enter starts an array (least 1) or map (least 2: key length and branch).
func (r *reader) enter(least int) (blocks, error) {
	if r.depth++; r.depth > MaxDepth {
		return blocks{}, fail(ErrInvalidFraming, "%w", fail(ErrTooDeep, "the value has more than %d levels", MaxDepth))
	}
	return blocks{least: least}, nil
}

// next reports whether another item follows; after false the container is left.
func (r *reader) next(b *blocks) (bool, error) {
	if b.left > 0 {
		b.left--
		return true, nil
	}
	if b.sizedTo > 0 && r.pos != b.sizedTo {
		return false, r.bad("block size does not match")
	}
	n, err := r.long()
	if err != nil {
		return false, err
	}
	if n == 0 {
		r.depth--
		return false, nil
	}
	b.sizedTo = 0
	if n < 0 {
		size, err := r.long()
		if err != nil {
			return false, err
		}
		if n == math.MinInt64 || size <= 0 || size > int64(len(r.buf)-r.pos) {
			return false, r.bad("block size beyond the end")
		}
		n, b.sizedTo = -n, r.pos+int(size)
	}
	if n > int64((len(r.buf)-r.pos)/b.least) {
		return false, r.bad("block count beyond the end")
	}
	b.left = int(n) - 1
	return true, nil
}

// room returns the capacity to allocate for the announced items: enough for most values, and little for a false number.
func (b *blocks) room() int { return min(b.left+1, 1024) }

// skip checks one value and moves past it.
func (r *reader) skip() error {
	tag, err := r.tag()
	if err != nil {
		return err
	}
	switch tag {
	case tagBool:
		_, err = r.bool()
	case tagLong:
		_, err = r.long()
	case tagDouble:
		_, err = r.double()
	case tagBytes:
		_, err = r.bytes()
	case tagString:
		err = r.skipText()
	case tagArray:
		err = r.skipItems(false)
	case tagMap:
		err = r.skipItems(true)
	}
	return err
}

func (r *reader) skipItems(keyed bool) error {
	least := 1
	if keyed {
		least = 2
	}
	b, err := r.enter(least)
	if err != nil {
		return err
	}
	for {
		more, err := r.next(&b)
		if err != nil || !more {
			return err
		}
		if keyed {
			if err := r.skipText(); err != nil {
				return err
			}
		}
		if err := r.skip(); err != nil {
			return err
		}
	}
}

// any reads one value in its plain Go form: nil, bool, int64, float64, []byte, string, []any or map[string]any.
func (r *reader) any() (any, error) {
	tag, err := r.tag()
	if err != nil {
		return nil, err
	}
	switch tag {
	case tagBool:
		return r.bool()
	case tagLong:
		return r.long()
	case tagDouble:
		return r.double()
	case tagBytes:
		b, err := r.bytes()
		if err != nil {
			return nil, err
		}
		return append(make([]byte, 0, len(b)), b...), nil
	case tagString:
		b, err := r.text()
		return string(b), err
	case tagArray:
		return r.anyArray()
	case tagMap:
		return r.anyMap()
	}
	return nil, nil
}

func (r *reader) anyArray() ([]any, error) {
	b, err := r.enter(1)
	if err != nil {
		return nil, err
	}
	var items []any
	for {
		more, err := r.next(&b)
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		if items == nil {
			items = make([]any, 0, b.room())
		}
		item, err := r.any()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	if items == nil {
		items = []any{}
	}
	return items, nil
}

func (r *reader) anyMap() (map[string]any, error) {
	b, err := r.enter(2)
	if err != nil {
		return nil, err
	}
	var entries map[string]any
	for {
		more, err := r.next(&b)
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		if entries == nil {
			entries = make(map[string]any, b.room())
		}
		key, err := r.text()
		if err != nil {
			return nil, err
		}
		name := string(key)
		item, err := r.any()
		if err != nil {
			return nil, err
		}
		entries[name] = item
	}
	if entries == nil {
		entries = map[string]any{}
	}
	return entries, nil
}
