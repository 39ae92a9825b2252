package httpjson

import (
	"reflect"
	"strings"
	"sync"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Missing returns a refusal if a decoded body lacks members that its verb requires. "a|b" requires one of both, and the
// refusal names the first. An empty text, 0 and null count as missing. v is the value that Decode filled.
func Missing(v any, needs []string) error {
	var names []string
	body := reflect.ValueOf(v).Elem()
	for _, need := range needs {
		said := false
		for name := range strings.SplitSeq(need, "|") {
			said = said || says(body, name)
		}
		if !said {
			name, _, _ := strings.Cut(need, "|")
			names = append(names, name)
		}
	}
	return protocol.Missing(names)
}

func says(body reflect.Value, name string) bool {
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

// memberOf is the place of the member of that name in a struct: the outermost, as encoding/json has it.
func memberOf(t reflect.Type, name string) ([]int, bool) {
	key := memberKey{t, name}
	if at, ok := memberPlaces.Load(key); ok {
		return at.([]int), true
	}
	var found []int
	for _, f := range reflect.VisibleFields(t) {
		said, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && said == name && (found == nil || len(f.Index) < len(found)) {
			found = f.Index
		}
	}
	if found != nil {
		memberPlaces.Store(key, found)
	}
	return found, found != nil
}
