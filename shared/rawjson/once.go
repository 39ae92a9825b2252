package rawjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Once is a text in which each member of an object stands once, where it stood last: encoding/json would make one value
// of all of them, with what the earlier ones had and the last one has not. It is the text itself when that is so, as in
// all that a client writes from a value, and when it is no JSON.
func Once(text []byte) []byte {
	if !repeats(text) {
		return text
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return text
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) { // more than one value
		return text
	}
	once, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return once
}

// fewNames is how many names of an object are compared one by one.
const fewNames = 32

// level is an object or an array that a text is in.
type level struct {
	array bool
	first int             // how many names were noted before its own
	more  map[string]bool // the names of an object that has many
}

// repeats says whether an object of a JSON text has two members of one name. Where it is no JSON it may say anything.
func repeats(text []byte) bool {
	var (
		roomOfNames  [fewNames][]byte
		roomOfLevels [16]level
	)
	names, levels, named := roomOfNames[:0], roomOfLevels[:0], false // named: the string that comes next is a name
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{':
			levels, named = append(levels, level{first: len(names)}), true
		case '[':
			levels, named = append(levels, level{array: true, first: len(names)}), false
		case '}', ']':
			if len(levels) == 0 {
				return false
			}
			names, levels, named = names[:levels[len(levels)-1].first], levels[:len(levels)-1], false
		case ',':
			named = len(levels) > 0 && !levels[len(levels)-1].array
		case '"':
			n := stringLength(text[i:])
			if n == 0 {
				return false
			}
			if named {
				name := text[i+1 : i+n-1]
				if bytes.IndexByte(name, '\\') >= 0 {
					var plain string
					if json.Unmarshal(text[i:i+n], &plain) != nil {
						return false
					}
					name = []byte(plain)
				}
				at := &levels[len(levels)-1]
				if at.has(name, names) {
					return true
				}
				names, named = append(names, name), false
			}
			i += n - 1
		}
	}
	return false
}

// has says whether an object has a name among those that are noted of it.
func (l *level) has(name []byte, names [][]byte) bool {
	own := names[l.first:]
	if len(own) < fewNames {
		for _, n := range own {
			if bytes.Equal(n, name) {
				return true
			}
		}
		return false
	}
	if l.more == nil {
		l.more = make(map[string]bool, 2*fewNames)
		for _, n := range own {
			l.more[string(n)] = true
		}
	}
	if l.more[string(name)] {
		return true
	}
	l.more[string(name)] = true
	return false
}
