package record

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// These are the JSON members of rows that apps of two releases may rewrite in turn.
var (
	queueMembers     = jsonNames(reflect.TypeFor[engine.Queue]())
	namespaceMembers = jsonNames(reflect.TypeFor[store.Namespace]())
)

// jsonNames returns the JSON names of the fields of a struct.
func jsonNames(t reflect.Type) map[string]bool {
	known := map[string]bool{}
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			known[name] = true
		}
	}
	return known
}

// decodeOpen reads the JSON column of a row into v. It returns the members that this build does not know, because a
// newer build wrote them; they are written back with the row. So, during an upgrade, an app of the older build does not
// delete settings that were made through the newer build.
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

// DocumentWith encodes v together with the members that this build does not know.
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
