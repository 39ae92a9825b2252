package protocol

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sojourn-run/sojourn/shared/history"
)

// Limits of request members are defined only in their tags. The API description is generated from the tags. The broker
// checks the requests of all transports with CheckLimits, and the engine checks commands with CheckCommand.

// MaxTaskBytes is the maximum number of bytes of tasks in one response on any transport: half a frame of the socket.
// The other half is for the rest of the response and for one task that exceeds the maximum alone.
const MaxTaskBytes = 4 << 20

// CheckLimits refuses the first member of a request, a struct or a pointer to a struct, that violates the limits in its
// tag:
//
//	minLength, maxLength  bytes of a text
//	minimum, maximum      of an integer
//	maxItems, each        entries of a list of texts, and bytes of each entry, none of which may be empty
//	enum                  valid texts, separated by commas
//	clean                 an error text: it is cleaned (see ErrorText) and not rejected
//
// Headers have their limits by their type, without a tag; see [CheckHeaders].
//
// Texts must be valid UTF-8 without NUL characters, which some databases cannot store. A zero value of an optional
// member ("omitempty", "omitzero") counts as absent, and a nil pointer is valid. CheckLimits checks members of embedded
// structs, but not of other structs, which their own verbs check. Lengths are bytes of UTF-8, but characters in JSON
// Schema, so the description permits longer texts than CheckLimits.
func CheckLimits(in any) error {
	return CheckLimitsAt(in, unnested)
}

// unnested returns the path of a member of a top-level request: its name.
func unnested(member string) string { return member }

// CheckLimitsAt checks a part of a request like CheckLimits; at returns the path of one of its members.
func CheckLimitsAt(in any, at func(member string) string) error {
	return checkLimits(reflect.Indirect(reflect.ValueOf(in)), at)
}

// checkLimits is CheckLimitsAt for the value of a struct.
func checkLimits(v reflect.Value, at func(member string) string) error {
	for _, m := range limitsOf(v.Type()) {
		if err := m.check(v.FieldByIndex(m.index), at); err != nil {
			return err
		}
	}
	return nil
}

// checkMembers rejects a command at its first member that is required and missing, or outside the limits in its tag. at
// returns the path of a member.
func checkMembers(c *Command, at func(member string) string) error {
	v := reflect.ValueOf(c).Elem()
	either, there := "", false // first of the members of which one is required, and whether one is present
	for _, m := range commands()[c.Type] {
		field := v.FieldByIndex(m.index)
		absent := field.IsZero() || field.Kind() == reflect.Slice && field.Len() == 0
		switch {
		case m.either:
			if either == "" {
				either = m.name
			}
			there = there || !absent
		case m.needed && absent:
			return Invalid(at(m.name), "is needed")
		}
		if err := m.check(field, at); err != nil {
			return err
		}
	}
	if either != "" && !there {
		return Invalid(at(either), "is needed")
	}
	return nil
}

// commands returns, by command type, the members that the command reads and that are texts, required or limited.
var commands = sync.OnceValue(func() map[CommandType][]limit {
	all := map[CommandType][]limit{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Command]()) {
		of := strings.Fields(f.Tag.Get("of"))
		if f.Anonymous || len(of) == 0 {
			continue // members of a parallel group have no limits in tags: the engine checks the group as a whole
		}
		l := readLimit(f)
		for _, command := range of {
			name := strings.TrimRight(command, "!|")
			l.needed, l.either = command == name+"!", command == name+"|"
			if l.limited || l.needed || l.either || l.text {
				all[CommandType(name)] = append(all[CommandType(name)], l)
			}
		}
	}
	return all
})

// limit has the limits in the tags of one member. A missing number means no limit.
type limit struct {
	name                 string
	index                []int
	limited              bool
	needed, either       bool // of commands: it, or one of some members
	optional             bool
	text                 bool // a text, or a list of texts, that every database must be able to store
	minLength, maxLength int
	minimum, maximum     *int64
	maxItems, each       int
	enum                 []string
}

func (l *limit) check(v reflect.Value, at func(string) string) error {
	switch {
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	case l.optional && v.IsZero():
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		if reason := badText(v.String()); l.text && reason != "" {
			return Invalid(at(l.name), "%s", reason)
		}
		if len(l.enum) > 0 && !slices.Contains(l.enum, v.String()) {
			return Invalid(at(l.name), "must be %s", oneOf(l.enum))
		}
		return checkLength(v.Len(), l.minLength, l.maxLength, func() string { return at(l.name) })
	case reflect.Int, reflect.Int64:
		n := v.Int()
		switch {
		case v.Type() == reflect.TypeFor[TTL]() && TTL(n) == NoTTL:
		case l.maximum != nil && (n < *l.minimum || n > *l.maximum):
			return Invalid(at(l.name), "must be between %d and %d", *l.minimum, *l.maximum)
		case l.minimum != nil && n < *l.minimum:
			return Invalid(at(l.name), "must be at least %d", *l.minimum)
		}
	case reflect.Map:
		if h, ok := v.Interface().(history.Headers); ok {
			return CheckHeaders(h, at(l.name))
		}
	case reflect.Slice:
		if l.maxItems > 0 && v.Len() > l.maxItems {
			return Invalid(at(l.name), "has more than %d entries", l.maxItems)
		}
		for i := 0; l.text && i < v.Len(); i++ {
			if reason := badText(v.Index(i).String()); reason != "" {
				return Invalid(fmt.Sprintf("%s.%d", at(l.name), i), "%s", reason)
			}
		}
		for i := 0; l.each > 0 && i < v.Len(); i++ {
			err := checkLength(v.Index(i).Len(), 1, l.each, func() string { return fmt.Sprintf("%s.%d", at(l.name), i) })
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func oneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return "one of " + strings.Join(words, ", ")
}

func checkLength(n, least, most int, name func() string) error {
	switch {
	case least > 0 && (n < least || n > most):
		return Invalid(name(), "must be %d to %d bytes", least, most)
	case most > 0 && n > most:
		return Invalid(name(), "is longer than %d bytes", most)
	}
	return nil
}

// limits caches the results of limitsOf by reflect.Type, so that tags are parsed once.
var limits sync.Map

// limitsOf returns the members of a request type whose tags have a limit.
func limitsOf(t reflect.Type) []limit {
	if known, ok := limits.Load(t); ok {
		return known.([]limit)
	}
	var found []limit
	for _, f := range reflect.VisibleFields(t) {
		if l := readLimit(f); f.IsExported() && l.name != "" && l.name != "-" && (l.limited || l.text) {
			found = append(found, l)
		}
	}
	limits.Store(t, found)
	return found
}

// isText reports whether a member is a text, a pointer to one, or a list of texts.
func isText(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t.Kind() == reflect.String
}

// readLimit parses the tags of a member. It panics if a limit is not a number, a maximum has no minimum, or a text has
// a minimum length and no maximum: these are errors in the program.
func readLimit(f reflect.StructField) limit {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	l := limit{
		name: name, index: f.Index,
		optional: strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero"),
		text:     isText(f.Type) && f.Tag.Get("clean") == "",
	}
	number := func(key string) *int64 {
		text, ok := f.Tag.Lookup(key)
		if !ok {
			return nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("protocol: tag %s:%q is not a number", key, text))
		}
		l.limited = true
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
	if f.Type == reflect.TypeFor[history.Headers]() {
		l.limited = true
	}
	if text, ok := f.Tag.Lookup("enum"); ok {
		l.enum, l.limited = strings.Split(text, ","), true
	}
	if l.maximum != nil && l.minimum == nil || l.minLength > 0 && l.maxLength == 0 {
		panic(fmt.Sprintf("protocol: tag %s names one of two bounds", f.Tag))
	}
	return l
}
