package openapi

import (
	"fmt"
	"reflect"

	"github.com/sojourn-run/sojourn/shared/history"
)

// describePayloads describes the payload of each event type in the schemas of events. Unknown types may have any
// payload.
func (d *schemas) describePayloads() error {
	var all, types []any
	for _, name := range history.Types() {
		data, err := history.DecodeData(name, nil)
		if err != nil {
			return err
		}
		t := reflect.TypeOf(data).Elem()
		if t.Name() != name {
			return fmt.Errorf("the payload type of event %s has the name %s", name, t.Name())
		}
		s, err := d.schemaOf(reflect.Zero(t).Interface(), false)
		if err != nil {
			return err
		}
		types = append(types, name)
		all = append(all, schema{
			"if":   schema{"properties": schema{"event_type": schema{"const": name}}},
			"then": schema{"properties": schema{"payload": s}},
		})
	}
	const rule = "PayloadByType"
	d.named[rule] = schema{
		"description": "The payload of an event has the schema with the name of its event_type.", "allOf": all,
		"properties": schema{"event_type": schema{"anyOf": []any{ref("EventType"), schema{"type": "string"}}}},
	}
	d.named["EventType"] = schema{
		"description": "The event types of this release. Later releases may have more.", "type": "string", "enum": types,
	}
	for _, name := range []string{"HistoryEvent", "Event"} {
		s := d.named[name]
		if s == nil {
			return fmt.Errorf("schema %s not found", name)
		}
		s["allOf"] = []any{ref(rule)}
	}
	return nil
}
