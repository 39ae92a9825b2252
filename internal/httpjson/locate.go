package httpjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// wrongMember returns the error for a valid JSON text that does not fit v, with the path of the wrong member, such as
// commands.3.activity_type. It decodes member by member, and is called only for invalid requests.
func wrongMember(raw []byte, v any, decodeErr error) error {
	path, err := locate(raw, reflect.TypeOf(v).Elem())
	if err == nil { // each member can be decoded separately
		err = decodeErr
	}
	if path == "" {
		path = "body"
	}
	switch {
	case errors.Is(err, payload.ErrUnsupportedCodec):
		return protocol.Refuse(protocol.ReasonUnsupportedCodec, "%s: %v; use %s", path, err, payload.Codec).
			With("field", path)
	case errors.Is(err, payload.ErrTooLarge):
		return protocol.Refuse(protocol.ReasonPayloadTooLarge, "%s: %v", path, err).With("limit", payload.MaxBytes).
			With("field", path)
	}
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return protocol.Invalid(path, "%v", err)
	}
	return protocol.Invalid(path, "must be %s, not %.60s", typeName(wrong.Type), wrong.Value)
}

// typeName returns a readable name for the type of a value.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "an integer of " + strconv.Itoa(t.Bits()) + " bits"
}

// locate finds the innermost member of raw that does not decode into t.
func locate(raw json.RawMessage, t reflect.Type) (string, error) {
	err := json.Unmarshal(raw, reflect.New(t).Interface())
	if err == nil {
		return "", nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return "", err
	}
	switch t.Kind() {
	case reflect.Struct:
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil {
			return "", err
		}
		types := memberTypes(t)
		for name, m := range members {
			at, known := types[strings.ToLower(name)]
			if !known {
				continue
			}
			if path, inner := locate(m, at); inner != nil {
				return join(name, path), inner
			}
		}
	case reflect.Map:
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil {
			return "", err
		}
		for name, m := range members {
			if path, inner := locate(m, t.Elem()); inner != nil {
				return join(name, path), inner
			}
		}
	case reflect.Slice:
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) != nil {
			return "", err
		}
		for i, m := range items {
			if path, inner := locate(m, t.Elem()); inner != nil {
				return join(strconv.Itoa(i), path), inner
			}
		}
	}
	return "", err
}

func join(name, path string) string {
	if path == "" {
		return name
	}
	return name + "." + path
}

// memberTypes maps the names of an object's members to their types. Names are in lower case, since encoding/json
// matches them without regard to case.
func memberTypes(t reflect.Type) map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || name == "-", f.Anonymous && name == "":
			continue
		case name == "":
			name = f.Name
		}
		types[strings.ToLower(name)] = f.Type
	}
	return types
}

// WithoutNUL rejects strings with a NUL character, which a text column cannot store. It removes NUL characters from
// error texts, which may contain a program's output: a refusal would lose the report.
func WithoutNUL(raw []byte, v any) error {
	if !bytes.Contains(raw, []byte(`\u0000`)) {
		return nil
	}
	if path := findNUL(reflect.ValueOf(v).Elem(), false); path != "" {
		return protocol.Invalid(path, "must not contain the NUL character")
	}
	return nil
}

var (
	failure    = reflect.TypeFor[protocol.Failure]()
	printed    = reflect.TypeFor[protocol.LogChunk]()
	rawMessage = reflect.TypeFor[json.RawMessage]()
)

func findNUL(v reflect.Value, clean bool) string {
	switch v.Kind() {
	case reflect.String:
		if !strings.Contains(v.String(), "\x00") {
			return ""
		}
		if clean && v.CanSet() {
			v.SetString(strings.ReplaceAll(v.String(), "\x00", ""))
			return ""
		}
		return "body"
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return findNUL(v.Elem(), clean)
		}
	case reflect.Slice:
		if v.Type() == rawMessage || v.Type().Elem().Kind() == reflect.Uint8 {
			return ""
		}
		for i := range v.Len() {
			if p := findNUL(v.Index(i), clean); p != "" {
				return prefixed(strconv.Itoa(i), p)
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if p := findNUL(it.Value(), false); p != "" {
				return prefixed(it.Key().String(), p)
			}
			if p := findNUL(it.Key(), false); p != "" {
				return p
			}
		}
	case reflect.Struct:
		clean = clean || v.Type() == failure || v.Type() == printed
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() {
				continue
			}
			if p := findNUL(v.Field(i), clean || f.Tag.Get("clean") != ""); p != "" {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if f.Anonymous && name == "" {
					return p
				}
				return prefixed(name, p)
			}
		}
	}
	return ""
}

// prefixed prefixes a path with a member's name; "body" is the path of the value itself.
func prefixed(name, path string) string {
	if path == "body" {
		return name
	}
	return name + "." + path
}
