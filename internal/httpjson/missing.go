package httpjson

import (
	"reflect"
	"strings"
	"sync"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Missing returns a refusal if a decoded body lacks members that its route requires. "a|b" requires one of both, and
// the refusal names the first. An empty text, 0 and null count as missing. v is the value that Decode filled.
func Missing(v any, needs []string) error {
	var names []string
	body := reflect.ValueOf(v).Elem()
	for _, need := range needs {
		present := false
		for name := range strings.SplitSeq(need, "|") {
			present = present || isSet(body, name)
		}
		if !present {
			name, _, _ := strings.Cut(need, "|")
			names = append(names, name)
		}
	}
	return protocol.Missing(names)
}

func isSet(body reflect.Value, name string) bool {
	at, ok := memberOf(body.Type(), name)
	if !ok {
		panic("httpjson: " + body.Type().String() + " has no member " + name)
	}
	f := body.FieldByIndex(at)
	if f.Type() == rawMessage {
		return f.Len() > 0 && string(f.Bytes()) != "null"
	}
	return !f.IsZero()
}

type memberKey struct {
	of   reflect.Type
	name string
}

var memberPlaces sync.Map // memberKey → []int: cache of field positions

// memberOf returns the index of the field with a JSON name, by the rule of encoding/json: the least nested one.
func memberOf(t reflect.Type, name string) ([]int, bool) {
	key := memberKey{t, name}
	if at, ok := memberPlaces.Load(key); ok {
		return at.([]int), true
	}
	var found []int
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && tag == name && (found == nil || len(f.Index) < len(found)) {
			found = f.Index
		}
	}
	if found != nil {
		memberPlaces.Store(key, found)
	}
	return found, found != nil
}
