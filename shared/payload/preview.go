package payload

import (
	"unicode/utf8"

	"github.com/sojourn-run/sojourn/internal/rawjson"
)

// Size returns the length in bytes of the value with a blob of this length in bytes.
func Size(blob int) int { return strict64.DecodedLen(blob) }

// Preview returns the beginning of the JSON of a value, at most `most` bytes, from the beginning of its blob. The text
// ends between two characters, not between two JSON tokens. The error is ErrInvalidFraming if the blob does not begin
// as one; the rest of the blob is not validated.
func Preview(blob string, most int) (string, error) {
	if n := 2*most + strict64.EncodedLen(len(header)); len(blob) > n {
		blob = blob[:n] // most values have more JSON than encoded bytes
	}
	blob = blob[:len(blob)-len(blob)%4]
	bin := make([]byte, strict64.DecodedLen(len(blob)))
	n, err := strict64.Decode(bin, []byte(blob))
	if err != nil || n < len(header) || string(bin[:len(header)]) != header {
		return "", fail(ErrInvalidFraming, "the payload is not a frame of this codec")
	}
	p := previewer{reader: reader{buf: bin[len(header):n]}, most: most}
	p.value()
	return string(CutText(p.out, most)), nil
}

// CutText returns the beginning of a text, at most `most` bytes, without a part of a character at its end.
func CutText[T string | []byte](text T, most int) T {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// previewer appends the JSON of a datum, whose end may be missing, until it has enough text.
type previewer struct {
	reader
	out  []byte
	most int
}

// value appends one value. It returns false if the rest of the datum is missing or not needed.
func (p *previewer) value() bool {
	tag, err := p.tag()
	if err != nil {
		return false
	}
	switch tag {
	case tagString:
		return p.string()
	case tagArray:
		return p.items('[', ']', p.value)
	case tagMap:
		return p.items('{', '}', func() bool {
			if !p.string() {
				return false
			}
			p.out = append(p.out, ':')
			return p.value()
		})
	case tagBytes:
		n, err := p.long()
		if err != nil || n < 0 {
			return false
		}
		whole := int(min(n, int64(len(p.buf)-p.pos)))
		p.out = appendBytes(p.out, p.buf[p.pos:p.pos+whole], true)
		p.pos += whole
		return int64(whole) == n && len(p.out) < p.most
	}
	p.pos--
	out, err := p.json(p.out, true) // short
	if err != nil {
		return false
	}
	p.out = out
	return len(p.out) < p.most
}

// string appends a text, or the available part of it, without the closing quote.
func (p *previewer) string() bool {
	n, err := p.long()
	if err != nil || n < 0 {
		return false
	}
	rest := p.buf[p.pos:]
	if n <= int64(len(rest)) {
		p.out = rawjson.AppendString(p.out, rest[:n])
		p.pos += int(n)
		return len(p.out) < p.most
	}
	for end := len(rest); end > 0 && end > len(rest)-utf8.UTFMax; end-- { // a part of a character at the end
		if utf8.RuneStart(rest[end-1]) {
			if !utf8.FullRune(rest[end-1:]) {
				rest = rest[:end-1]
			}
			break
		}
	}
	p.out = rawjson.AppendString(p.out, rest)
	p.out = p.out[:len(p.out)-1]
	return false
}

// items appends the items of an array or map.
func (p *previewer) items(first, last byte, item func() bool) bool {
	if p.depth++; p.depth > MaxDepth {
		return false
	}
	p.out = append(p.out, first)
	for more := false; ; {
		n, err := p.long()
		if err != nil {
			return false
		}
		if n == 0 {
			p.depth--
			p.out = append(p.out, last)
			return len(p.out) < p.most
		}
		if n < 0 {
			if _, err := p.long(); err != nil {
				return false
			}
			n = -n
		}
		for ; n != 0; n-- {
			if more {
				p.out = append(p.out, ',')
			}
			if more = true; !item() {
				return false
			}
		}
	}
}
