package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/swaggest/jsonschema-go"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// schema is a JSON Schema in the document.
type schema = map[string]any

const components = "#/components/schemas/"

func ref(name string) schema { return schema{"$ref": components + name} }

// historyEvent is one entry of a run's history. Its number counts 1, 2, 3 … without gaps; the number inside the payload
// is that of the command.
type historyEvent struct {
	ID   string       `json:"id"`
	Seq  int64        `json:"sequence"`
	Type string       `json:"event_type"` // the payload has the schema of this name, if there is one
	At   history.Time `json:"recorded_at"`
	// workflow task whose completion recorded the event; absent for other events
	TaskID      string          `json:"workflow_task_id,omitempty"`
	SeenThrough int64           `json:"seen_through,omitempty"` // last event in the history of that task
	Payload     json.RawMessage `json:"payload"`
}

var (
	timeType    = reflect.TypeFor[history.Time]()
	payloadType = reflect.TypeFor[payload.Payload]()
	eventType   = reflect.TypeFor[history.Event]()
)

// schemas converts Go types to schemas by the rules of encoding/json. A type that is both read and written has two
// schemas: a written object always has the members without omitempty, and a read object may lack every member.
type schemas struct {
	source *source
	named  map[string]schema
	read   *jsonschema.Reflector
	write  *jsonschema.Reflector
}

func newSchemas(s *source) *schemas {
	d := &schemas{source: s, named: map[string]schema{}}
	d.read, d.write = d.reflector(true), d.reflector(false)
	return d
}

func (d *schemas) reflector(reads bool) *jsonschema.Reflector {
	r := &jsonschema.Reflector{}
	r.InlineDefinition(history.Time{})
	r.InlineDefinition(protocol.Quantity{})
	r.InlineDefinition(protocol.Resources{})
	r.AddTypeMapping(history.Event{}, historyEvent{})
	r.DefaultOptions = append(r.DefaultOptions,
		jsonschema.DefinitionsPrefix(components), jsonschema.RootRef, jsonschema.SkipEmbeddedMapsSlices,
		func(rc *jsonschema.ReflectContext) { rc.EnvelopNullability = true },
		jsonschema.InterceptDefName(func(t reflect.Type, _ string) string { return nameOf(t, reads) }),
		jsonschema.InterceptSchema(func(p jsonschema.InterceptSchemaParams) (bool, error) {
			return d.describeTypes(p, reads)
		}),
		jsonschema.InterceptProp(func(p jsonschema.InterceptPropParams) error { return d.member(p, reads) }),
		jsonschema.InterceptNullability(func(p jsonschema.InterceptNullabilityParams) { notNull(p, reads) }),
	)
	return r
}

// nameOf returns the name of a type in the document.
func nameOf(t reflect.Type, reads bool) string {
	name := t.Name()
	switch {
	case name == "":
		return ""
	case t == eventType: // never used: historyEvent replaces it
		return t.String()
	}
	name = strings.ToUpper(name[:1]) + name[1:]
	if reads && t.Kind() == reflect.Struct {
		return strings.TrimSuffix(name, "Request") + "Request"
	}
	return name
}

// describeTypes sets the schemas of types that define their JSON encoding, lists the values of enums and adds the
// comments of types.
func (d *schemas) describeTypes(p jsonschema.InterceptSchemaParams, reads bool) (stop bool, err error) {
	t := p.Schema.ReflectType
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return false, nil
	}
	if err := d.source.load(t); err != nil {
		return false, err
	}
	switch {
	case t == timeType:
		p.Schema.Type = nil
		p.Schema.AddType(jsonschema.String)
		p.Schema.AddType(jsonschema.Null)
		p.Schema.WithFormat("date-time")
		return true, nil
	case t == reflect.TypeFor[protocol.Quantity]():
		p.Schema.Type = nil
		p.Schema.AddType(jsonschema.String)
		if reads {
			p.Schema.AddType(jsonschema.Number)
		}
		return true, nil
	case t == payloadType:
		envelope(p.Schema, reads)
		return true, nil
	case !p.Processed:
		return false, nil
	}
	if t.Kind() == reflect.String && t.PkgPath() != "" {
		for _, v := range d.source.values[t.PkgPath()+"."+t.Name()] {
			p.Schema.Enum = append(p.Schema.Enum, v)
		}
	}
	if t == eventType {
		t = reflect.TypeFor[historyEvent]()
	}
	if t.Name() != "" && p.Schema.Description == nil {
		if about := d.source.aboutType(t); about != "" {
			p.Schema.WithDescription(about)
		}
	}
	slices.Sort(p.Schema.Required)
	p.Schema.Required = slices.Compact(p.Schema.Required)
	return false, nil
}

// envelope sets the schema of an encoded value. Requests may also contain the encoded text alone.
func envelope(s *jsonschema.Schema, reads bool) {
	s.Type = nil
	s.AddType(jsonschema.Object)
	s.AddType(jsonschema.Null)
	if reads {
		s.AddType(jsonschema.String)
	}
	codec, blob := jsonschema.String.ToSchemaOrBool(), jsonschema.String.ToSchemaOrBool()
	codec.TypeObject.WithEnum(payload.Codec)
	blob.TypeObject.WithDescription("base64 of an Avro single-object frame with the fixed recursive value schema")
	s.WithProperties(map[string]jsonschema.SchemaOrBool{"codec": codec, "blob": blob})
	s.WithRequired("blob", "codec")
	s.WithDescription("An encoded value; null is none.")
}

// member marks required members and adds the comments of members.
func (d *schemas) member(p jsonschema.InterceptPropParams, reads bool) error {
	if !p.Processed {
		return nil
	}
	if p.PropertySchema.AnyOf != nil { // null or a named type: keywords next to it would apply to both
		p.PropertySchema.Type = nil
		for _, s := range p.PropertySchema.AnyOf {
			if s.TypeObject.Ref != nil {
				s.TypeObject.Type = nil
			}
		}
	}
	if p.Field.Type == reflect.TypeFor[history.Headers]() {
		p.PropertySchema.WithMaxProperties(history.MaxHeaders)
	}
	if p.Field.Type == reflect.TypeFor[protocol.TTL]() { // null: no time limit
		p.PropertySchema.AddType(jsonschema.Null)
	}
	if err := limitStrings(p.PropertySchema, p.Field.Tag.Get("each")); err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	_, options, _ := strings.Cut(p.Field.Tag.Get("json"), ",")
	if !reads && !strings.Contains(options, "omit") {
		p.ParentSchema.Required = append(p.ParentSchema.Required, p.Name)
	}
	t := p.ParentSchema.ReflectType
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	if t == eventType {
		t = reflect.TypeFor[historyEvent]()
	}
	if about := d.source.aboutField(t, p.Field.Name); about != "" && p.PropertySchema.Description == nil {
		p.PropertySchema.WithDescription(about)
	}
	return nil
}

// notNull removes null from lists and maps: responses write empty ones instead.
func notNull(p jsonschema.InterceptNullabilityParams, reads bool) {
	k := p.Type.Kind()
	if reads || k != reflect.Slice && k != reflect.Map || p.Type == reflect.TypeFor[json.RawMessage]() {
		return
	}
	if p.Schema.Ref == nil && p.Schema.HasType(jsonschema.Null) {
		p.Schema.RemoveType(jsonschema.Null)
	}
}

// schemaOf returns the schema of a value's type: a reference if the type has a name.
func (d *schemas) schemaOf(v any, reads bool) (schema, error) {
	r := d.write
	if reads {
		r = d.read
	}
	var failed error
	s, err := r.Reflect(v, jsonschema.CollectDefinitions(func(name string, def jsonschema.Schema) {
		m, err := asMap(def)
		if old, there := d.named[name]; err == nil && there && !reflect.DeepEqual(old, m) {
			err = fmt.Errorf("two types are called %s", name)
		}
		if err != nil {
			failed = err
		}
		d.named[name] = m
	}))
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, fmt.Errorf("schema of %T: %w", v, err)
	}
	return asMap(s)
}

// inlineSchema returns the schema of a value's type, never as a reference, without some of its members.
func (d *schemas) inlineSchema(v any, reads bool, without func(member string) bool) (schema, error) {
	s, err := d.schemaOf(v, reads)
	if err != nil {
		return nil, err
	}
	if name, ok := strings.CutPrefix(text(s["$ref"]), components); ok {
		s = maps.Clone(d.named[name])
	}
	kept := schema{}
	if all, ok := s["properties"].(schema); ok {
		for name, m := range all {
			if !without(name) {
				kept[name] = m
			}
		}
	}
	s["properties"] = kept
	if list, ok := s["required"].([]any); ok {
		s["required"] = slices.DeleteFunc(slices.Clone(list), func(v any) bool { return without(text(v)) })
	}
	return s, nil
}

func text(v any) string { s, _ := v.(string); return s }

func asMap(v any) (schema, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var m schema
	return m, d.Decode(&m)
}
