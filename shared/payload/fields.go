package payload

import (
	"encoding/binary"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// field is one member of a struct as encoding/json would name it.
type field struct {
	name      string
	key       []byte // name with its length prefix, as encoded in a map
	typ       reflect.Type
	index     []int
	tagged    bool
	omitEmpty bool
	omitZero  bool
	quoted    bool
	indirect  bool                     // reached through an embedded pointer, which may be nil
	isZero    func(reflect.Value) bool // the type's own IsZero, for omitzero
}

// optional reports whether the field can be absent from an encoding.
func (f *field) optional() bool { return f.omitEmpty || f.omitZero || f.indirect }

// value returns the field in v and whether it must be written.
func (f *field) value(v reflect.Value) (reflect.Value, bool) {
	if len(f.index) == 1 {
		v = v.Field(f.index[0])
	} else {
		for _, i := range f.index {
			if v.Kind() == reflect.Pointer {
				if v.IsNil() {
					return reflect.Value{}, false
				}
				v = v.Elem()
			}
			v = v.Field(i)
		}
	}
	if f.omitEmpty && empty(v) {
		return v, false
	}
	if f.omitZero && (f.isZero != nil && f.isZero(v) || f.isZero == nil && v.IsZero()) {
		return v, false
	}
	return v, true
}

func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Bool, reflect.Interface, reflect.Pointer, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return v.IsZero()
	}
	return false
}

// structInfo has the data of a struct type for encoding and decoding.
type structInfo struct {
	fields []field
	byName map[string]int
}

// find returns the field for a key of the wire: the exact name first, else the first that differs only in case.
func (s *structInfo) find(key []byte) int {
	if i, ok := s.byName[string(key)]; ok {
		return i
	}
	for i := range s.fields {
		if strings.EqualFold(s.fields[i].name, string(key)) {
			return i
		}
	}
	return -1
}

var structs sync.Map // reflect.Type → *structInfo

func structOf(t reflect.Type) *structInfo {
	if s, ok := structs.Load(t); ok {
		return s.(*structInfo)
	}
	s := &structInfo{fields: fieldsOf(t), byName: map[string]int{}}
	for i, f := range s.fields {
		s.byName[f.name] = i
	}
	kept, _ := structs.LoadOrStore(t, s)
	return kept.(*structInfo)
}

// fieldsOf collects the members level by level through embedded structs. Of several members with one name the
// shallowest counts; at the same depth the only tagged one; otherwise none. Members are returned in declaration order.
func fieldsOf(t reflect.Type) []field {
	type level struct {
		typ      reflect.Type
		index    []int
		indirect bool
	}
	var found []field
	next := []level{{typ: t}}
	seen := map[reflect.Type]bool{}
	for len(next) > 0 {
		current := next
		next = nil
		visited := map[reflect.Type]bool{}
		for _, l := range current {
			if seen[l.typ] {
				continue
			}
			visited[l.typ] = true
			for i := range l.typ.NumField() {
				sf := l.typ.Field(i)
				elem := sf.Type
				if elem.Kind() == reflect.Pointer && elem.Name() == "" {
					elem = elem.Elem()
				}
				if sf.Anonymous {
					if !sf.IsExported() && elem.Kind() != reflect.Struct {
						continue
					}
				} else if !sf.IsExported() {
					continue
				}
				tag := sf.Tag.Get("json")
				if tag == "-" {
					continue
				}
				name, options, _ := strings.Cut(tag, ",")
				if !validName(name) {
					name = ""
				}
				index := append(slices.Clone(l.index), i)
				if name == "" && sf.Anonymous && elem.Kind() == reflect.Struct {
					next = append(next, level{elem, index, l.indirect || sf.Type.Kind() == reflect.Pointer})
					continue
				}
				found = append(found, newField(sf, name, options, index, l.indirect))
			}
		}
		for typ := range visited {
			seen[typ] = true
		}
	}
	return dominant(found)
}

func newField(sf reflect.StructField, name, options string, index []int, indirect bool) field {
	f := field{name: name, typ: sf.Type, index: index, tagged: name != "", indirect: indirect}
	if name == "" {
		f.name = sf.Name
	}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "omitempty":
			f.omitEmpty = true
		case "omitzero":
			f.omitZero = true
			f.isZero = zeroMethod(sf.Type)
		case "string":
			elem := sf.Type
			if elem.Kind() == reflect.Pointer && elem.Name() == "" {
				elem = elem.Elem()
			}
			k := elem.Kind()
			f.quoted = k == reflect.Bool || k == reflect.String || k >= reflect.Int && k <= reflect.Float64
		}
	}
	f.key = append(binary.AppendVarint(nil, int64(len(f.name))), f.name...)
	return f
}

type zeroer interface{ IsZero() bool }

// zeroMethod returns the IsZero method of t, or nil if it has none.
func zeroMethod(t reflect.Type) func(reflect.Value) bool {
	iface := reflect.TypeFor[zeroer]()
	switch {
	case t.Implements(iface) && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface):
		return func(v reflect.Value) bool { return v.IsNil() || v.Interface().(zeroer).IsZero() }
	case t.Implements(iface):
		return func(v reflect.Value) bool { return v.Interface().(zeroer).IsZero() }
	case reflect.PointerTo(t).Implements(iface):
		return func(v reflect.Value) bool {
			if !v.CanAddr() {
				p := reflect.New(t).Elem()
				p.Set(v)
				v = p
			}
			return v.Addr().Interface().(zeroer).IsZero()
		}
	}
	return nil
}

// dominant selects one field for each name that several fields have, and returns the fields in declaration order.
func dominant(found []field) []field {
	bearers := map[string][]int{}
	for i, f := range found {
		bearers[f.name] = append(bearers[f.name], i)
	}
	var out []field
	for _, same := range bearers {
		depth := len(found[same[0]].index) // found is ordered by depth
		var shallow, tagged []int
		for _, i := range same {
			if len(found[i].index) != depth {
				break
			}
			shallow = append(shallow, i)
			if found[i].tagged {
				tagged = append(tagged, i)
			}
		}
		switch {
		case len(shallow) == 1:
			out = append(out, found[shallow[0]])
		case len(tagged) == 1:
			out = append(out, found[tagged[0]])
		}
	}
	slices.SortFunc(out, func(a, b field) int { return slices.Compare(a.index, b.index) })
	return out
}

func validName(s string) bool {
	for _, c := range s {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			return false
		}
	}
	return s != ""
}
