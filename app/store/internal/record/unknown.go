package record

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// The members of the rows that are rewritten whole and that builds of two releases may write in turn.
var (
	queueMembers     = members(reflect.TypeFor[engine.Queue]())
	namespaceMembers = members(reflect.TypeFor[store.Namespace]())
)

// members are the names that a struct has in JSON.
func members(t reflect.Type) map[string]bool {
	known := map[string]bool{}
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			known[name] = true
		}
	}
	return known
}

// decodeOpen reads the JSON column of a row into v and returns the members that this build does not know because a
// newer build wrote them. They are written back with the row. During an upgrade, an app of the older build can
// therefore rewrite the row without undoing decisions that were made through the newer build.
func decodeOpen(body string, v any, known map[string]bool) (unknown map[string]json.RawMessage, err error) {
	if err := json.Unmarshal([]byte(body), v); err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &all); err != nil {
		return nil, err
	}
	for name := range all {
		if known[name] {
			delete(all, name)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return all, nil
}

// DocumentWith is document with the members that this build does not know.
func DocumentWith(v any, unknown map[string]json.RawMessage) (string, error) {
	body, err := Document(v)
	if err != nil || len(unknown) == 0 {
		return body, err
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(body), &all); err != nil {
		return "", err
	}
	for name, value := range unknown {
		all[name] = value
	}
	return Document(all)
}
