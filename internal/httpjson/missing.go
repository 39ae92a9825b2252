package httpjson

import (
	"reflect"
	"strings"
	"sync"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Missing refuses a decoded body that is without members its verb needs; "a|b" is either, and is called by its first
// name. An empty text, a number of 0 and null are as good as nothing: no member that is needed may be one. v is what
// Decode filled.
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

var memberPlaces sync.Map // memberKey → []int: one look for each member of each type

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
