package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// decode parses JSON and keeps numbers in their original form.
func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

// Match returns an error that names the first part of a value that does not match a pattern; nil if the value matches.
// In a pattern
//
//	a scalar or null     is that value; numbers are equal when their values are
//	an object            has these members; the value may have more
//	a list               is a list of as many items, which fit one by one
//	{"$type": T}         a value of JSON type T: string number integer boolean object array null, or "string|null"
//	{"$regex": R}        a string that matches
//	{"$oneOf": [P…]}     a value that fits one of the patterns
//	{"$not": P}          a value that does not fit
//	{"$contains": P}     a list with an item that fits
//	{"$each": P}         a list whose items all fit
//	{"$length": N}       a list, string or object of that length
//	{"$min": N}          a number that is at least N
//	{"$above": N}        a number that is greater than N
//	{"$absent": true}    as a member: there is none of that name
func Match(pattern, value any) error { return match("", pattern, value) }

func match(at string, pattern, value any) error {
	switch p := pattern.(type) {
	case map[string]any:
		if name, arg, ok := operator(p); ok {
			return operate(at, name, arg, value)
		}
		v, ok := value.(map[string]any)
		if !ok {
			return mismatch(at, "an object", value)
		}
		for _, name := range sorted(p) {
			inner, there := v[name]
			if op, _, ok := operatorOf(p[name]); ok && op == "$absent" {
				if there {
					return mismatch(at+"/"+name, "no such member", inner)
				}
				continue
			}
			if !there {
				return fmt.Errorf("%s is missing", at+"/"+name)
			}
			if err := match(at+"/"+name, p[name], inner); err != nil {
				return err
			}
		}
		return nil
	case []any:
		v, ok := value.([]any)
		if !ok || len(v) != len(p) {
			return mismatch(at, fmt.Sprintf("a list of %d", len(p)), value)
		}
		for i := range p {
			if err := match(at+"/"+strconv.Itoa(i), p[i], v[i]); err != nil {
				return err
			}
		}
		return nil
	case json.Number:
		if n, ok := value.(json.Number); ok && sameNumber(p, n) {
			return nil
		}
	default:
		if pattern == value {
			return nil
		}
	}
	return mismatch(at, show(pattern), value)
}

func operate(at, name string, arg, value any) error {
	switch name {
	case "$type":
		kinds := strings.Split(fmt.Sprint(arg), "|")
		if !slices.ContainsFunc(kinds, func(k string) bool { return isA(k, value) }) {
			return mismatch(at, "a "+strings.Join(kinds, " or "), value)
		}
		return nil
	case "$regex":
		s, ok := value.(string)
		r, err := regexp.Compile(fmt.Sprint(arg))
		if err != nil {
			return fmt.Errorf("%s: invalid regular expression in the pattern: %w", at, err)
		}
		if !ok || !r.MatchString(s) {
			return mismatch(at, "text like "+r.String(), value)
		}
		return nil
	case "$oneOf":
		list, _ := arg.([]any)
		for _, p := range list {
			if match(at, p, value) == nil {
				return nil
			}
		}
		return mismatch(at, "one of "+show(arg), value)
	case "$not":
		if match(at, arg, value) == nil {
			return mismatch(at, "not "+show(arg), value)
		}
		return nil
	case "$contains", "$each":
		list, ok := value.([]any)
		if !ok {
			return mismatch(at, "a list", value)
		}
		for i, item := range list {
			err := match(at+"/"+strconv.Itoa(i), arg, item)
			if name == "$contains" && err == nil {
				return nil
			}
			if name == "$each" && err != nil {
				return err
			}
		}
		if name == "$contains" {
			return mismatch(at, "a list with "+show(arg), value)
		}
		return nil
	case "$length":
		if n, ok := arg.(json.Number); ok && n.String() == strconv.Itoa(length(value)) {
			return nil
		}
		return mismatch(at, fmt.Sprintf("of length %v", arg), value)
	case "$min", "$above":
		n, ok := value.(json.Number)
		least, ok2 := arg.(json.Number)
		if ok && ok2 {
			have, _ := n.Float64()
			want, _ := least.Float64()
			if have > want || have == want && name == "$min" {
				return nil
			}
		}
		return mismatch(at, fmt.Sprintf("a number with %s %v", name, arg), value)
	case "$absent":
		return mismatch(at, "no such member", value)
	}
	return fmt.Errorf("%s: unknown operator %s in the pattern", at, name)
}

// operator returns the operator of an object of the form {"$name": argument}.
func operator(p map[string]any) (name string, arg any, ok bool) {
	if len(p) != 1 {
		return "", nil, false
	}
	for name, arg = range p {
	}
	return name, arg, strings.HasPrefix(name, "$")
}

func operatorOf(v any) (name string, arg any, ok bool) {
	p, isObject := v.(map[string]any)
	if !isObject {
		return "", nil, false
	}
	return operator(p)
}

func isA(kind string, v any) bool {
	switch v := v.(type) {
	case nil:
		return kind == "null"
	case string:
		return kind == "string"
	case bool:
		return kind == "boolean"
	case json.Number:
		return kind == "number" || kind == "integer" && !strings.ContainsAny(v.String(), ".eE")
	case []any:
		return kind == "array"
	case map[string]any:
		return kind == "object"
	}
	return false
}

func length(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case []any:
		return len(v)
	case map[string]any:
		return len(v)
	}
	return -1
}

func sameNumber(a, b json.Number) bool {
	x, err := a.Float64()
	y, err2 := b.Float64()
	return a == b || err == nil && err2 == nil && x == y
}

func mismatch(at, want string, got any) error {
	if at == "" {
		at = "the body"
	}
	return fmt.Errorf("%s is %s, want %s", at, show(got), want)
}

func show(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(raw) > 300 {
		return string(raw[:300]) + "…"
	}
	return string(raw)
}

func sorted(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
