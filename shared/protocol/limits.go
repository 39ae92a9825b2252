package protocol

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The limits of what a request may say stand in the tags of its members and nowhere else: the description of the API is
// made of the same tags, and whichever door a request came in by, its verb asks CheckLimits.

// CheckLimits refuses the first member of a request, a struct or a pointer to one, that is outside of the limits in its
// tag:
//
//	minLength, maxLength  bytes of a text
//	minimum, maximum      of a whole number
//	maxItems, each        entries of a list of texts, and bytes of each, of which none is empty
//	enum                  the texts it may be, between commas
//
// A member that may be left out ("omitempty") and is zero was left out, and a nil pointer is within all limits. Members
// of embedded structs are looked at, those of other structs are not: their own verbs do. Lengths are of UTF-8 and not
// of characters, as JSON Schema has it, so the description lets more through than is taken.
func CheckLimits(in any) error {
	v := reflect.Indirect(reflect.ValueOf(in))
	for _, m := range limitsOf(v.Type()) {
		field := v.FieldByIndex(m.index)
		if field.Kind() == reflect.Pointer {
			if field.IsNil() {
				continue
			}
			field = field.Elem()
		} else if m.optional && field.IsZero() {
			continue
		}
		if err := m.check(field); err != nil {
			return err
		}
	}
	return nil
}

// limit is what the tag of one member says. Without a number there is no such limit.
type limit struct {
	name                 string
	index                []int
	optional             bool
	minLength, maxLength int
	minimum, maximum     *int64
	maxItems, each       int
	enum                 []string
}

func (l *limit) check(v reflect.Value) error {
	switch v.Kind() {
	case reflect.String:
		if len(l.enum) > 0 && !slices.Contains(l.enum, v.String()) {
			return Invalid(l.name, "must be one of %s", strings.Join(l.enum, ", "))
		}
		return l.checkLength(l.name, v.Len(), l.minLength, l.maxLength)
	case reflect.Int, reflect.Int64:
		n := v.Int()
		switch {
		case l.maximum != nil && (n < *l.minimum || n > *l.maximum):
			return Invalid(l.name, "must be between %d and %d", *l.minimum, *l.maximum)
		case l.minimum != nil && n < *l.minimum:
			return Invalid(l.name, "must be at least %d", *l.minimum)
		}
	case reflect.Slice:
		if l.maxItems > 0 && v.Len() > l.maxItems {
			return Invalid(l.name, "has more than %d entries", l.maxItems)
		}
		for i := 0; l.each > 0 && i < v.Len(); i++ {
			if err := l.checkLength(fmt.Sprintf("%s.%d", l.name, i), v.Index(i).Len(), 1, l.each); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *limit) checkLength(name string, n, least, most int) error {
	switch {
	case least > 0 && (n < least || n > most):
		return Invalid(name, "must be %d to %d bytes", least, most)
	case most > 0 && n > most:
		return Invalid(name, "is longer than %d bytes", most)
	}
	return nil
}

// limits remembers what limitsOf found, by reflect.Type: tags are read once.
var limits sync.Map

// limitsOf are the members of a type of requests whose tags name a limit.
func limitsOf(t reflect.Type) []limit {
	if known, ok := limits.Load(t); ok {
		return known.([]limit)
	}
	var found []limit
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if l := readLimit(f.Tag); f.IsExported() && name != "" && name != "-" && l != nil {
			l.name, l.index, l.optional = name, f.Index, strings.Contains(options, "omitempty")
			found = append(found, *l)
		}
	}
	limits.Store(t, found)
	return found
}

// readLimit reads a tag; nil without a limit. A number that is none, a maximum without its minimum, and a text that has
// a least length and no most, are mistakes of the program.
func readLimit(tag reflect.StructTag) *limit {
	l, limited := &limit{}, false
	number := func(key string) *int64 {
		text, ok := tag.Lookup(key)
		if !ok {
			return nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("protocol: tag %s:%q is no number", key, text))
		}
		limited = true
		return &n
	}
	for key, to := range map[string]*int{
		"minLength": &l.minLength, "maxLength": &l.maxLength, "maxItems": &l.maxItems, "each": &l.each,
	} {
		if n := number(key); n != nil {
			*to = int(*n)
		}
	}
	l.minimum, l.maximum = number("minimum"), number("maximum")
	if text, ok := tag.Lookup("enum"); ok {
		l.enum, limited = strings.Split(text, ","), true
	}
	if l.maximum != nil && l.minimum == nil || l.minLength > 0 && l.maxLength == 0 {
		panic(fmt.Sprintf("protocol: tag %s names one of two bounds", tag))
	}
	if !limited {
		return nil
	}
	return l
}
