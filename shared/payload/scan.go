package payload

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"unicode/utf8"
)

// What a large payload costs a process that only passes it on is this file: its text is turned into the frame, and the
// frame is looked at to its last byte. Both take what is as it should be in long strides, and leave all else to the
// code that says what is wrong.

// pairs gives for two characters of base64, the first in the low byte, the twelve bits they stand for; what is no such
// pair has noPair.
var (
	pairs     [1 << 16]uint16
	pairsMade sync.Once
)

const noPair = 1 << 15

func makePairs() {
	for i := range pairs {
		pairs[i] = noPair
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	for high, first := range []byte(alphabet) {
		for low, second := range []byte(alphabet) {
			pairs[uint16(first)|uint16(second)<<8] = uint16(high<<6 | low)
		}
	}
}

// appendDecoded appends what standard base64 text, without line breaks, stands for.
func appendDecoded(dst, text []byte) ([]byte, error) {
	pairsMade.Do(makePairs)
	start := len(dst)
	dst = slices.Grow(dst, strict64.DecodedLen(len(text)))
	out, rest := dst[start:cap(dst)], text
	for len(rest) >= 16 { // the last eight to fifteen, of which some may be padding, make more than the two bytes too many
		eight := binary.LittleEndian.Uint64(rest)
		a, b := pairs[uint16(eight)], pairs[uint16(eight>>16)]
		c, d := pairs[uint16(eight>>32)], pairs[uint16(eight>>48)]
		if (a|b|c|d)&noPair != 0 {
			break
		}
		binary.BigEndian.PutUint64(out, uint64(a)<<52|uint64(b)<<40|uint64(c)<<28|uint64(d)<<16)
		out, rest = out[6:], rest[8:]
	}
	// The standard decoder skips line breaks; the other clients refuse them.
	if bytes.IndexByte(rest, '\n') >= 0 || bytes.IndexByte(rest, '\r') >= 0 {
		return dst, fmt.Errorf("%w: line break in base64", ErrInvalidFraming)
	}
	dst, err := strict64.AppendDecode(dst[:start+(len(text)-len(rest))/4*3], rest)
	if err != nil {
		if _, all := strict64.AppendDecode(nil, text); all != nil {
			err = all // which counts from the beginning
		}
		return dst, fmt.Errorf("%w: not standard base64%s: %w", ErrInvalidFraming, jsonHint(text), err)
	}
	return dst, nil
}

// scan returns where the value at pos ends, or -1 for one that [reader.skip] has to judge: most of those are not valid.
// Depth is how many containers it lies in.
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
		if n < 0 || n > int64(len(buf)-pos) { // a block that says its size, or a lie
			return -1
		}
		for ; n > 0; n-- {
			if keyed {
				if pos = scanText(buf, pos); pos < 0 {
					return -1
				}
			}
			// What most items are is looked at here: a call for each costs more than the look.
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

// scanLong reads a number and returns where it ends; -1 for none.
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

// scanText returns where text ends whose length is at pos; -1 if it is not UTF-8, or cut short.
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
	end := pos + int(n)
	rest := buf[pos:end]
	for ; len(rest) >= 8; rest = rest[8:] {
		if binary.LittleEndian.Uint64(rest)&high != 0 {
			break
		}
	}
	if len(rest) > 0 && !isText(rest) {
		return -1
	}
	return end
}

// isText says whether b is UTF-8. It strides over ASCII between other letters, as there is in most languages.
func isText(b []byte) bool {
	for i := 0; i < len(b); {
		if len(b)-i >= 8 {
			found := binary.LittleEndian.Uint64(b[i:]) & high
			if i += bits.TrailingZeros64(found) / 8; found == 0 {
				continue
			}
		}
		first := b[i]
		switch {
		case first < utf8.RuneSelf:
			i++
		case first >= 0xc2 && first < 0xe0 && len(b)-i >= 2 && b[i+1]&0xc0 == 0x80:
			i += 2
		case first > 0xe0 && first < 0xf0 && first != 0xed && len(b)-i >= 3 && b[i+1]&0xc0 == 0x80 && b[i+2]&0xc0 == 0x80:
			i += 3
		default:
			r, size := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && size <= 1 {
				return false
			}
			i += size
		}
	}
	return true
}
