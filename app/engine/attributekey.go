package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// This file defines how the values of search attributes are compared. A database orders text by bytes, and SQLite and
// PostgreSQL must order equally. So each value becomes a text (a key) whose bytes have the same order as the values.

// These are the types under which a namespace may register search attributes.
const (
	AttributeKeyword     = "keyword"
	AttributeKeywordList = "keyword_list"
	AttributeText        = "text"
	AttributeInt         = "int"
	AttributeDouble      = "double"
	AttributeBool        = "bool"
	AttributeTime        = "datetime"
)

// RegisteredTypes lists these types.
var RegisteredTypes = []string{
	AttributeKeyword, AttributeText, AttributeInt, AttributeDouble, AttributeBool, AttributeTime, AttributeKeywordList,
}

// SystemAttributes are the attribute names that a filter knows for every run, with their types. A custom attribute of
// the same name is stored, but filters never use it.
var SystemAttributes = map[string]string{
	"WorkflowType": AttributeKeyword, "WorkflowId": AttributeKeyword, "RunId": AttributeKeyword,
	"Status":    AttributeKeyword,
	"StartTime": AttributeTime, "CloseTime": AttributeTime, "TaskQueue": AttributeKeyword, "BuildId": AttributeKeyword,
	"BusinessKey": AttributeKeyword,
}

// A key is a value in the form of the index of search attributes: a letter for its kind, and text whose bytes have the
// same order as the values.

// TextKey returns the key of a text.
func TextKey(s string) string { return "t" + strings.ReplaceAll(s, "\x00", "�") }

// BoolKey returns the key of true or false.
func BoolKey(v bool) string {
	if v {
		return "b1"
	}
	return "b0"
}

// TimeKey returns the key of a time, to the microsecond.
func TimeKey(t time.Time) string { return fmt.Sprintf("d%016x", uint64(t.UnixMicro())^1<<63) }

// NumberKey returns the key of a JSON number. Integers and fractions have one common order, so that a filter "> 2.5"
// finds 3. 64-bit integers are exact, unlike floats, which do not distinguish two large IDs.
func NumberKey(n json.Number) (string, bool) {
	near, err := strconv.ParseFloat(string(n), 64)
	if err != nil || len(n) > 400 {
		return "", false
	}
	rest := int64(0) // difference between an integer and the nearest float
	if size := math.Abs(near); size >= 1<<53 && size <= 1<<63 {
		// smaller integers are exact as floats, larger ones are not 64-bit; an exact 1e-999999 would be slow to compute
		if exact, ok := new(big.Rat).SetString(string(n)); ok && exact.IsInt() && exact.Num().IsInt64() {
			whole, _ := new(big.Float).SetFloat64(near).Int(nil)
			rest = new(big.Int).Sub(exact.Num(), whole).Int64()
		}
	}
	bits := math.Float64bits(near + 0) // adding 0 turns negative zero into zero
	if bits>>63 == 1 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	return fmt.Sprintf("n%016x%04x", bits, uint16(rest+1<<15)), true
}

// AttributeTimeOf parses a datetime value: RFC 3339, or a date.
func AttributeTimeOf(s string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if len(s) >= len(time.DateOnly) {
			if t, err := time.Parse(layout, s); err == nil && t.Year() > 0 {
				return t, true
			}
		}
	}
	return time.Time{}, false
}

// AttributeKeys returns the distinct keys of one value. A list has the keys of its elements. A text that is a time also
// has the time's key, since the attribute may be registered as a time later.
func AttributeKeys(raw json.RawMessage) []string {
	var v any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil
	}
	var keys []string
	add := func(v any) {
		switch v := v.(type) {
		case string:
			keys = append(keys, TextKey(v))
			if t, ok := AttributeTimeOf(v); ok {
				keys = append(keys, TimeKey(t))
			}
		case bool:
			keys = append(keys, BoolKey(v))
		case json.Number:
			if k, ok := NumberKey(v); ok {
				keys = append(keys, k)
			}
		}
	}
	if list, many := v.([]any); many {
		for _, item := range list {
			add(item)
		}
	} else {
		add(v)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// CheckTypes refuses values that do not have the type under which their namespace registered them; null deletes an
// attribute and is always valid. An attribute that is not registered may have any value, and is indexed by the value's
// type.
func CheckTypes(attributes json.RawMessage, types map[string]string, at func(name string) string) error {
	if len(types) == 0 || len(attributes) == 0 {
		return nil
	}
	var values object
	if json.Unmarshal(attributes, &values) != nil {
		return nil //nolint:nilerr // other checks refuse values that are no object
	}
	var wrong *protocol.Error
	for name, raw := range values {
		typ, registered := types[name]
		if !registered || string(raw) == "null" || typed(typ, raw) {
			continue
		}
		field, text := at(name), fmt.Sprintf("is registered as %s; %s is not a value of this type", typ, shorten(string(raw)))
		if wrong == nil {
			wrong = &protocol.Error{Reason: protocol.ReasonValidation, Fields: map[string][]string{}}
		}
		wrong.Fields[field] = []string{text}
		if m := field + ": " + text; wrong.Message == "" || m < wrong.Message {
			wrong.Message = m
		}
	}
	if wrong == nil {
		return nil
	}
	return wrong
}

// setsAttributes reports whether a command may set search attributes.
func setsAttributes(c protocol.Command) bool {
	return c.Type == protocol.UpsertSearchAttributes || c.Type == protocol.StartChildWorkflow && len(c.Attributes) > 0
}

// Labels reports whether any of the commands may set search attributes of its run or of a child. A completion with such
// commands must load the registered types; other completions need not read them.
func Labels(commands []protocol.Command) bool { return slices.ContainsFunc(commands, setsAttributes) }

// checkUpserts checks the types of the search attributes that commands upsert, or with which they start children.
func checkUpserts(commands []protocol.Command, types map[string]string) error {
	for i, c := range commands {
		if !setsAttributes(c) {
			continue
		}
		if err := CheckTypes(c.Attributes, types, func(name string) string {
			return fmt.Sprintf("commands.%d.attributes.%s", i, name)
		}); err != nil {
			return err
		}
	}
	return nil
}

func shorten(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}

func typed(typ string, raw json.RawMessage) bool {
	var v any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return false
	}
	switch v := v.(type) {
	case string:
		if typ == AttributeTime {
			_, ok := AttributeTimeOf(v)
			return ok
		}
		return typ == AttributeKeyword || typ == AttributeText
	case bool:
		return typ == AttributeBool
	case json.Number:
		if typ == AttributeInt {
			_, err := v.Int64()
			return err == nil
		}
		_, ok := NumberKey(v)
		return typ == AttributeDouble && ok
	case []any:
		return typ == AttributeKeywordList && !slices.ContainsFunc(v, func(m any) bool { _, ok := m.(string); return !ok })
	}
	return false
}
