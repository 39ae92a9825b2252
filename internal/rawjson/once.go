package rawjson

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
)

// MaxDepth is the maximum nesting of objects and arrays, as in encoding/json.
const MaxDepth = 10_000

// Once returns a text in which each member of an object occurs once, at its last position and with its last value:
// encoding/json would merge the values of duplicate members. It returns the text itself if no member is duplicate, as
// in texts that a client encodes from a value, and if the text is not JSON.
func Once(text []byte) []byte {
	if len(text) > math.MaxInt32 || !repeats(text) || !json.Valid(text) {
		return text
	}
	w := deduplicator{text: text, out: make([]byte, 0, len(text))}
	w.copyValue()
	return w.out
}

// deduplicator copies a valid JSON text without the members that a later member of the same name replaces. It builds no
// values: they would take fifty times the memory of the text.
type deduplicator struct {
	text, out []byte
	pos       int
	members   []member // members of the objects that are being copied
}

// member is a member of a copied object: the offsets in out at which the member starts, its name ends and the member
// ends.
type member struct{ start, nameEnd, end int32 }

// next skips white space and separators, and returns the first byte of the next value, name or bracket.
func (w *deduplicator) next() byte {
	for {
		switch c := w.text[w.pos]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			w.pos++
		default:
			return c
		}
	}
}

func (w *deduplicator) copyValue() {
	switch w.next() {
	case '{':
		w.copyObject()
	case '[':
		w.pos++
		w.out = append(w.out, '[')
		for n := 0; w.next() != ']'; n++ {
			if n > 0 {
				w.out = append(w.out, ',')
			}
			w.copyValue()
		}
		w.pos++
		w.out = append(w.out, ']')
	case '"':
		w.copy(stringLength(w.text[w.pos:]))
	default:
		n := bytes.IndexAny(w.text[w.pos:], ",]} \t\r\n")
		if n < 0 {
			n = len(w.text) - w.pos
		}
		w.copy(n)
	}
}

func (w *deduplicator) copy(n int) {
	w.out = append(w.out, w.text[w.pos:w.pos+n]...)
	w.pos += n
}

func (w *deduplicator) copyObject() {
	w.pos++
	w.out = append(w.out, '{')
	own := len(w.members)
	for w.next() != '}' {
		if len(w.members) > own {
			w.out = append(w.out, ',')
		}
		m := member{start: int32(len(w.out))}
		w.copy(stringLength(w.text[w.pos:]))
		m.nameEnd = int32(len(w.out))
		w.next()
		w.out = append(w.out, ':')
		w.copyValue()
		m.end = int32(len(w.out))
		w.members = append(w.members, m)
	}
	w.pos++
	w.drop(w.members[own:])
	w.members = w.members[:own]
	w.out = append(w.out, '}')
}

// drop removes members from the end of out that occur again later in it.
func (w *deduplicator) drop(members []member) {
	duplicate := w.duplicates(members)
	if duplicate == nil {
		return
	}
	end := int(members[0].start)
	for i, m := range members {
		if duplicate[i] {
			continue
		}
		if end > int(members[0].start) {
			w.out[end] = ','
			end++
		}
		end += copy(w.out[end:], w.out[m.start:m.end])
	}
	w.out = w.out[:end]
}

// duplicates reports for each member whether its name occurs again; nil: no name does.
func (w *deduplicator) duplicates(members []member) (duplicate []bool) {
	order := make([]int32, len(members))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return bytes.Compare(w.name(members[a]), w.name(members[b])) })
	for k := 1; k < len(order); k++ {
		if bytes.Equal(w.name(members[order[k-1]]), w.name(members[order[k]])) {
			if duplicate == nil {
				duplicate = make([]bool, len(members))
			}
			duplicate[order[k-1]] = true
		}
	}
	return duplicate
}

func (w *deduplicator) name(m member) []byte { return Name(w.out[m.start:m.nameEnd]) }

// Name returns the text of a member's name in quotes.
func Name(quoted []byte) []byte {
	name := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(name, '\\') < 0 {
		return name
	}
	var plain string
	if json.Unmarshal(quoted, &plain) != nil {
		return name
	}
	return []byte(plain)
}

// fewNames is the maximum number of names of an object that are compared pairwise.
const fewNames = 32

// level is one level of nesting: an object or array that encloses the current value.
type level struct {
	array bool
	first int // number of names recorded before its own
}

// repeats reports whether an object of a JSON text has two members of one name. The result is undefined if the text is
// not JSON or is too deep for decoders.
func repeats(text []byte) bool {
	var (
		roomOfNames  [fewNames]span
		roomOfLevels [16]level
	)
	names, levels, named := roomOfNames[:0], roomOfLevels[:0], false // named: the next string is a name
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			if len(levels) == MaxDepth {
				return false
			}
			named = text[i] == '{'
			levels = append(levels, level{array: !named, first: len(names)})
		case '}', ']':
			if len(levels) == 0 {
				return false
			}
			first := levels[len(levels)-1].first
			if twice(text, names[first:]) {
				return true
			}
			names, levels, named = names[:first], levels[:len(levels)-1], false
		case ',':
			named = len(levels) > 0 && !levels[len(levels)-1].array
		case '"':
			n := stringLength(text[i:])
			if n == 0 {
				return false
			}
			if named {
				names, named = append(names, span{int32(i), int32(i + n)}), false
			}
			i += n - 1
		}
	}
	return false
}

// span is the position of a name in a text, including its quotes.
type span struct{ start, end int32 }

func (n span) in(text []byte) []byte { return Name(text[n.start:n.end]) }

// twice reports whether a name occurs twice; it changes the order of names.
func twice(text []byte, names []span) bool {
	if len(names) <= fewNames {
		for i, n := range names {
			for _, other := range names[:i] {
				if bytes.Equal(n.in(text), other.in(text)) {
					return true
				}
			}
		}
		return false
	}
	slices.SortFunc(names, func(a, b span) int { return bytes.Compare(a.in(text), b.in(text)) })
	for i := 1; i < len(names); i++ {
		if bytes.Equal(names[i-1].in(text), names[i].in(text)) {
			return true
		}
	}
	return false
}
