package payload

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strconv"

	"github.com/sojourn-run/sojourn/internal/rawjson"
)

// json appends the next value as JSON text without an intermediate value. Bytes are a tagged object or, as in
// encoding/json, their base64 text.
func (r *reader) json(out []byte, tagged bool) ([]byte, error) {
	tag, err := r.tag()
	if err != nil {
		return out, err
	}
	switch tag {
	case tagBool:
		v, err := r.bool()
		return strconv.AppendBool(out, v), err
	case tagLong:
		n, err := r.long()
		return strconv.AppendInt(out, n, 10), err
	case tagDouble:
		f, err := r.double()
		return appendDouble(out, f), err
	case tagBytes:
		b, err := r.bytes()
		return appendBytes(out, b, tagged), err
	case tagString:
		b, err := r.text()
		return rawjson.AppendString(out, b), err
	case tagArray:
		return r.jsonArray(out, tagged)
	case tagMap:
		return r.jsonObject(out, tagged)
	}
	return append(out, "null"...), nil
}

func (r *reader) jsonArray(out []byte, tagged bool) ([]byte, error) {
	items, err := r.enter(1)
	if err != nil {
		return out, err
	}
	out = append(out, '[')
	for first := true; ; first = false {
		more, err := r.next(&items)
		if err != nil {
			return out, err
		}
		if !more {
			return append(out, ']'), nil
		}
		if !first {
			out = append(out, ',')
		}
		if out, err = r.json(out, tagged); err != nil {
			return out, err
		}
	}
}

// member is a member of an appended object: its name in the datum, and the positions of both in the text.
type member struct {
	name       []byte
	start, end int
}

func (r *reader) jsonObject(out []byte, tagged bool) ([]byte, error) {
	items, err := r.enter(2)
	if err != nil {
		return out, err
	}
	out = append(out, '{')
	start := len(out)
	var few [16]member
	members, sorted := few[:0], true
	for {
		more, err := r.next(&items)
		if err != nil {
			return out, err
		}
		if !more {
			break
		}
		name, err := r.text()
		if err != nil {
			return out, err
		}
		m := member{name: name, start: len(out)}
		out = append(rawjson.AppendString(out, name), ':')
		if out, err = r.json(out, tagged); err != nil {
			return out, err
		}
		out = append(out, ',')
		m.end = len(out)
		sorted = sorted && (len(members) == 0 || bytes.Compare(members[len(members)-1].name, name) < 0)
		members = append(members, m)
	}
	if !sorted {
		out = sortMembers(out, start, members)
	}
	if len(members) > 0 {
		out = out[:len(out)-1] // the last comma
	}
	return append(out, '}'), nil
}

// sortMembers sorts the members appended since start by name; of members with the same name the last counts.
func sortMembers(out []byte, start int, members []member) []byte {
	slices.SortStableFunc(members, func(a, b member) int { return bytes.Compare(a.name, b.name) })
	appended := slices.Clone(out[start:])
	out = out[:start]
	for i, m := range members {
		if i+1 == len(members) || !bytes.Equal(members[i+1].name, m.name) {
			out = append(out, appended[m.start-start:m.end-start]...)
		}
	}
	return out
}

func appendBytes(out, b []byte, tagged bool) []byte {
	if tagged {
		out = append(out, `{"$type":"bytes","base64":`...)
	}
	out = append(out, '"')
	out = base64.StdEncoding.AppendEncode(out, b)
	out = append(out, '"')
	if tagged {
		out = append(out, '}')
	}
	return out
}
