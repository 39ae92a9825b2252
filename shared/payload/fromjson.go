package payload

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// jsonSource parses a valid JSON text and encodes it at the same time: an intermediate value would cost ten times as
// much, for each step of a handler in another language.
type jsonSource struct {
	text   []byte
	pos    int
	tagged bool // convert objects in which ToJSON encoded bytes
}

// json encodes the value of a JSON text.
func (w *writer) json(raw []byte, tagged bool) error {
	switch {
	case len(raw) == 0:
		return fail(ErrInvalidJSON, "empty JSON text")
	case !utf8.Valid(raw):
		return fail(ErrInvalidUTF8, "the JSON text is not valid UTF-8")
	case !json.Valid(raw):
		var v any
		return fail(ErrInvalidJSON, "invalid JSON: %w", json.Unmarshal(raw, &v)) // the error has the position
	}
	w.buf = slices.Grow(w.buf, len(raw)+len(raw)/8)
	s := jsonSource{text: raw, tagged: tagged}
	return w.value(&s)
}

// next returns the first byte of the next value, name or bracket.
func (s *jsonSource) next() byte {
	for {
		switch c := s.text[s.pos]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			s.pos++
		default:
			return c
		}
	}
}

func (w *writer) value(s *jsonSource) error {
	switch c := s.next(); c {
	case 'n':
		s.pos += len("null")
		w.null()
	case 't':
		s.pos += len("true")
		w.bool(true)
	case 'f':
		s.pos += len("false")
		w.bool(false)
	case '"':
		text, err := s.string()
		if err != nil {
			return err
		}
		w.buf = append(w.buf, tagString)
		w.number(int64(len(text)))
		w.buf = append(w.buf, text...)
	case '[':
		return w.array(s)
	case '{':
		return w.object(s)
	default:
		return w.validNumber(string(s.number()))
	}
	return nil
}

// number consumes the digits and signs of a number.
func (s *jsonSource) number() []byte {
	start := s.pos
	for s.pos < len(s.text) && strings.IndexByte("0123456789-+.eE", s.text[s.pos]) >= 0 {
		s.pos++
	}
	return s.text[start:s.pos]
}

// string consumes a string; the result may alias the text.
func (s *jsonSource) string() ([]byte, error) {
	start := s.pos
	for i := start + 1; ; i++ {
		n := bytes.IndexByte(s.text[i:], '"')
		i += n
		escapes := 0
		for s.text[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			s.pos = i + 1
			break
		}
	}
	quoted := s.text[start:s.pos]
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1], nil
	}
	var text string
	if err := json.Unmarshal(quoted, &text); err != nil {
		return nil, fail(ErrInvalidJSON, "invalid JSON: %w", err)
	}
	return []byte(text), nil
}

func (w *writer) array(s *jsonSource) error {
	s.pos++
	if err := w.enter(); err != nil {
		return err
	}
	w.buf = append(w.buf, tagArray)
	start, n := len(w.buf), 0
	for ; s.next() != ']'; n++ {
		if err := w.value(s); err != nil {
			return at(err, "["+strconv.Itoa(n)+"]")
		}
	}
	s.pos++
	w.closeBlock(start, n)
	return nil
}

// entry is a member of an encoded object: its name, and the positions of both in the buffer.
type entry struct {
	name       string
	start, end int
}

func (w *writer) object(s *jsonSource) error {
	s.pos++
	if err := w.enter(); err != nil {
		return err
	}
	w.buf = append(w.buf, tagMap)
	start := len(w.buf)
	var few [16]entry
	entries, sorted := few[:0], true
	for s.next() != '}' {
		name, err := s.string()
		if err != nil {
			return err
		}
		e := entry{name: string(name), start: len(w.buf)}
		w.number(int64(len(name)))
		w.buf = append(w.buf, name...)
		if err := w.value(s); err != nil {
			return at(err, "."+e.name)
		}
		e.end = len(w.buf)
		sorted = sorted && (len(entries) == 0 || entries[len(entries)-1].name < e.name)
		entries = append(entries, e)
	}
	s.pos++
	n := len(entries)
	if !sorted {
		n = w.sort(start, entries)
	}
	if s.tagged && n == 2 && w.untag(start) {
		return nil
	}
	w.closeBlock(start, n)
	return nil
}

// bytesTag is the encoded beginning of an object that represents bytes, which has two members.
var bytesTag = func() []byte {
	w := writer{}
	_ = w.text("$type")
	_ = w.string("bytes")
	_ = w.text("base64")
	return append(w.buf, tagString)
}()

// untag replaces an object whose members were written since start by bytes, if it represents bytes.
func (w *writer) untag(start int) bool {
	rest, ok := bytes.CutPrefix(w.buf[start:], bytesTag)
	if !ok {
		return false
	}
	_, n := binary.Varint(rest)
	raw, err := base64.StdEncoding.AppendDecode(nil, rest[n:])
	if err != nil {
		return false
	}
	w.buf = w.buf[:start-1]
	w.bytes(raw)
	w.depth--
	return true
}

// sort sorts the members written since start by name, keeps the last of each name, and returns their number.
func (w *writer) sort(start int, entries []entry) (n int) {
	slices.SortStableFunc(entries, func(a, b entry) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	written := slices.Clone(w.buf[start:])
	w.buf = w.buf[:start]
	for i, e := range entries {
		if i+1 < len(entries) && entries[i+1].name == e.name {
			continue
		}
		w.buf = append(w.buf, written[e.start-start:e.end-start]...)
		n++
	}
	return n
}

// closeBlock inserts the number of items before the items written since start, and the end marker after them.
func (w *writer) closeBlock(start, n int) {
	if n > 0 {
		var count [binary.MaxVarintLen64]byte
		w.buf = slices.Insert(w.buf, start, count[:binary.PutVarint(count[:], int64(n))]...)
	}
	w.buf = append(w.buf, 0)
	w.depth--
}
