package payload

import (
	"encoding/binary"
	"slices"

	asm64 "github.com/segmentio/asm/base64"
	"github.com/segmentio/asm/utf8"
)

// This file determines the cost of large payloads in a process that only forwards them: it decodes the base64 text and
// checks every byte of the frame. Both have fast paths for valid input. For all other input they use the code that
// returns the errors.

// fast64 is strict64 with SIMD instructions where the processor has them.
var fast64 = asm64.StdEncoding.Strict()

// appendDecoded appends the decoded bytes of standard base64 text without line breaks.
func appendDecoded(dst, text []byte) ([]byte, error) {
	start := len(dst)
	dst = slices.Grow(dst, strict64.DecodedLen(len(text)))
	n, err := fast64.Decode(dst[start:cap(dst)], text)
	if err != nil {
		if _, all := strict64.AppendDecode(nil, text); all != nil {
			err = all // its offset must count from the beginning
		}
		return dst, fail(ErrInvalidFraming, "the payload is not standard base64%s: %w", jsonHint(text), err)
	}
	// The standard decoder skips line breaks; the other clients refuse them.
	if strict64.EncodedLen(n) != len(text) {
		return dst, fail(ErrInvalidFraming, "the payload has a line break in its base64")
	}
	return dst[:start+n], nil
}

// scan returns the end of the value at pos, or -1 for a value that [reader.skip] must check: most such values are
// invalid. depth is the number of enclosing containers.
func scan(buf []byte, pos, depth int) int {
	if pos >= len(buf) {
		return -1
	}
	tag := buf[pos]
	pos++
	switch tag {
	case tagNull:
		return pos
	case tagBool:
		if pos >= len(buf) || buf[pos] > 1 {
			return -1
		}
		return pos + 1
	case tagLong:
		_, pos = scanLong(buf, pos)
		return pos
	case tagDouble:
		if len(buf)-pos < 8 || binary.LittleEndian.Uint64(buf[pos:])>>52&0x7ff == 0x7ff {
			return -1
		}
		return pos + 8
	case tagBytes:
		n, pos := scanLong(buf, pos)
		if pos < 0 || n < 0 || n > int64(len(buf)-pos) {
			return -1
		}
		return pos + int(n)
	case tagString:
		return scanText(buf, pos)
	case tagArray:
		return scanItems(buf, pos, depth+1, false)
	case tagMap:
		return scanItems(buf, pos, depth+1, true)
	}
	return -1
}

func scanItems(buf []byte, pos, depth int, keyed bool) int {
	if depth > MaxDepth {
		return -1
	}
	for {
		n, next := scanLong(buf, pos)
		if pos = next; pos < 0 || n == 0 {
			return pos
		}
		if n < 0 || n > int64(len(buf)-pos) { // a block with its size, or an invalid length
			return -1
		}
		for ; n > 0; n-- {
			if keyed {
				if pos = scanText(buf, pos); pos < 0 {
					return -1
				}
			}
			// Checked inline: a call per item costs more than the check of the most frequent types.
			switch {
			case pos >= len(buf):
				return -1
			case buf[pos] == tagString:
				pos = scanText(buf, pos+1)
			case buf[pos] == tagLong && pos+1 < len(buf) && buf[pos+1] < 0x80:
				pos += 2
			default:
				pos = scan(buf, pos, depth)
			}
			if pos < 0 {
				return -1
			}
		}
	}
}

// scanLong reads a number and returns the position after it, or -1 if there is none.
func scanLong(buf []byte, pos int) (int64, int) {
	if pos >= len(buf) {
		return 0, -1
	}
	if b := buf[pos]; b < 0x80 {
		return int64(b>>1) ^ -int64(b&1), pos + 1
	}
	u, n := binary.Uvarint(buf[pos:])
	if n <= 0 {
		return 0, -1
	}
	return int64(u>>1) ^ -int64(u&1), pos + n
}

// high are the bits that no letter of ASCII has, of eight bytes.
const high = 0x8080808080808080

// scanText returns the position after the text whose length is at pos, or -1 if it is not UTF-8 or is truncated.
func scanText(buf []byte, pos int) int {
	if pos < len(buf)-8 && buf[pos] < 16 && buf[pos]&1 == 0 { // up to seven bytes: most names
		n := int(buf[pos] >> 1)
		if binary.LittleEndian.Uint64(buf[pos+1:])<<(64-8*n)&high == 0 {
			return pos + 1 + n
		}
	}
	n, pos := scanLong(buf, pos)
	if pos < 0 || n < 0 || n > int64(len(buf)-pos) {
		return -1
	}
	text := buf[pos : pos+int(n)]
	if len(text) >= 8 && len(text) < 32 { // names and short lines: overlapping words
		m := min(8, len(text)-8)
		first, last := binary.LittleEndian.Uint64(text), binary.LittleEndian.Uint64(text[len(text)-8:])
		inner := binary.LittleEndian.Uint64(text[m:]) | binary.LittleEndian.Uint64(text[len(text)-8-m:])
		if (first|last|inner)&high == 0 {
			return pos + len(text)
		}
	}
	if !utf8.Valid(text) {
		return -1
	}
	return pos + len(text)
}
