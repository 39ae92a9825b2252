package httpjson

import (
	"reflect"
	"strings"
	"sync"

	"github.com/sojourn-run/sojourn/internal/rawjson"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A JSON text of a few bytes per value can need a hundred times its size when decoded: a list of {} becomes a list of
// structs. Payloads do not, since they are converted without decoding.

// A decoded text may need at most freeMemory bytes plus memoryRatio bytes per byte of its length.
const (
	freeMemory  = 1 << 20
	memoryRatio = 16
)

// maxQuoted is the length of the longest member name in quotes, with every character escaped.
const maxQuoted = 6*protocol.MaxName + 2

// These are the sizes of values without a Go type, in bytes.
const (
	entryWeight = 64 // size of an entry of a map
	anyWeight   = 32 // size of a value in an interface
)

// Inspect reads a text before it is decoded into v. It returns the members that v does not have, and refuses a text
// that would decode into far more memory than its own size. It skips payloads. Text that is not JSON passes: decoding
// it returns the error.
func Inspect(raw []byte, v any) (Unknown, error) {
	s := inspector{text: raw, most: freeMemory + memoryRatio*len(raw)}
	s.at = s.pathBuffer[:0]
	s.value(reflect.TypeOf(v))
	if !s.exceeded {
		return s.unknown, nil
	}
	return Unknown{}, protocol.Refuse(
		protocol.ReasonPayloadTooLarge, "the body has too many values outside payloads for its size; send fewer items per request",
	)
}

// inspector sums the memory that a text needs when decoded. It stops at the end of the text, at invalid JSON, and above
// most.
type inspector struct {
	text     []byte
	pos      int
	weight   int
	most     int
	depth    int
	exceeded bool
	broken   bool

	at         []step   // path of the current value
	pathBuffer [16]step // backing array of at: a body of usual depth needs no allocation
	unknown    Unknown
}

func (s *inspector) add(n int) {
	s.weight += n
	s.exceeded = s.exceeded || s.weight > s.most
}

func (s *inspector) done() bool { return s.exceeded || s.broken || s.pos >= len(s.text) }

// next returns the first byte of the next value, name or bracket; 0 at the end.
func (s *inspector) next() byte {
	for ; s.pos < len(s.text); s.pos++ {
		switch c := s.text[s.pos]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
		default:
			return c
		}
	}
	return 0
}

var (
	payloadType = reflect.TypeFor[payload.Payload]()
	valueType   = reflect.TypeFor[protocol.Value]()
)

// value reads one value of type t; a nil t is a value that is not stored.
func (s *inspector) value(t reflect.Type) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
		s.add(int(t.Size()))
	}
	if t == rawMessage || t == payloadType || t == valueType {
		t = nil
	}
	c := s.next()
	if s.depth++; s.depth > 10_000 {
		s.broken = true
	}
	switch c {
	case '{':
		s.object(t)
	case '[':
		s.list(t)
	case '"':
		s.skipText()
	case '}', ']', 0:
		s.broken = true
	default:
		for s.pos < len(s.text) && strings.IndexByte(",]} \t\r\n", s.text[s.pos]) < 0 {
			s.pos++
		}
	}
	s.depth--
}

func (s *inspector) list(t reflect.Type) {
	var item reflect.Type
	weight := 0
	switch {
	case t == nil:
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Array:
		item = t.Elem()
		weight = int(item.Size())
	case t.Kind() == reflect.Interface:
		item, weight = t, anyWeight
	}
	s.pos++
	for i := 0; !s.done(); i++ {
		if s.next() == ']' {
			s.pos++
			return
		}
		s.add(weight)
		s.nestedValue(step{index: i}, item)
	}
}

// nestedValue reads a value inside the current one; at is its last path element.
func (s *inspector) nestedValue(at step, t reflect.Type) {
	if t == nil { // an untyped value has no unknown members, so it needs no path
		s.value(nil)
		return
	}
	s.at = append(s.at, at)
	s.value(t)
	s.at = s.at[:len(s.at)-1]
}

func (s *inspector) object(t reflect.Type) {
	var members map[string]reflect.Type
	var item reflect.Type
	weight := 0
	switch {
	case t == nil:
	case t.Kind() == reflect.Struct:
		members = typesOf(t)
	case t.Kind() == reflect.Map:
		item = t.Elem()
		weight = entryWeight + int(item.Size())
	case t.Kind() == reflect.Interface:
		item, weight = t, entryWeight+anyWeight
	}
	for s.pos++; !s.done(); {
		switch s.next() {
		case '}':
			s.pos++
			return
		case '"':
		default:
			s.broken = true
			return
		}
		at, from := item, s.pos
		if s.skipText(); members != nil && !s.broken {
			known := s.pos-from <= maxQuoted
			if known {
				at, known = members[strings.ToLower(string(rawjson.Name(s.text[from:s.pos])))]
			}
			if !known {
				s.recordUnknown(step{from: from, to: s.pos}, members)
			}
		}
		s.add(weight)
		s.nestedValue(step{from: from, to: s.pos}, at)
	}
}

// skipText skips a string without allocating it.
func (s *inspector) skipText() {
	for s.pos++; s.pos < len(s.text); s.pos++ {
		switch s.text[s.pos] {
		case '\\':
			s.pos++
		case '"':
			s.pos++
			return
		}
	}
	s.broken = true
}

var memberTypesOf sync.Map // reflect.Type → map[string]reflect.Type

func typesOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := memberTypesOf.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	types := memberTypes(t)
	memberTypesOf.Store(t, types)
	return types
}
