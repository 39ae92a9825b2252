package openapi

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/swaggest/jsonschema-go"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// requireMembers sets the required members of an object: each of the names; for names like "a|b", one of them.
func requireMembers(s schema, names []string) error {
	members, _ := s["properties"].(schema)
	required, _ := s["required"].([]any)
	var all []any
	for _, name := range names {
		either := strings.Split(name, "|")
		for _, n := range either {
			if members[n] == nil {
				return fmt.Errorf("required member %s is not a member of the body", n)
			}
		}
		if len(either) == 1 {
			required = append(required, name)
			continue
		}
		var one []any
		for _, n := range either {
			one = append(one, schema{"required": []string{n}})
		}
		all = append(all, schema{"anyOf": one})
	}
	if len(required) > 0 {
		s["required"] = required
	}
	switch len(all) {
	case 0:
	case 1:
		s["anyOf"] = all[0].(schema)["anyOf"]
	default:
		s["allOf"] = all
	}
	return nil
}

// limitStrings limits the strings of a list to 1 to most bytes.
func limitStrings(s *jsonschema.Schema, most string) error {
	if most == "" {
		return nil
	}
	n, err := strconv.ParseInt(most, 10, 64)
	if err != nil || s.Items == nil || s.Items.SchemaOrBool == nil {
		return fmt.Errorf("tag each:%q requires a list of strings and a number", most)
	}
	s.Items.SchemaOrBool.TypeObjectEns().WithMinLength(1).WithMaxLength(n)
	return nil
}

// splitCommands splits the schema of commands into one schema per command, by the tags of the members.
func (d *schemas) splitCommands() error {
	const name = "CommandRequest"
	whole, there := d.named[name]
	if !there {
		return nil
	}
	members, _ := whole["properties"].(schema)
	commands := map[string]schema{}
	needs := map[string][]string{}
	either := map[string][]string{}
	tagged := map[string]bool{"type": true}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[protocol.Command]()) {
		member, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		of := f.Tag.Get("of")
		if len(f.Index) > 1 {
			of = reflect.TypeFor[protocol.Command]().Field(f.Index[0]).Tag.Get("of")
		}
		if member == "" || of == "" {
			continue
		}
		tagged[member] = true
		for _, c := range strings.Fields(of) {
			command := strings.TrimRight(c, "!|")
			if commands[command] == nil {
				commands[command] = schema{"type": schema{"const": command}}
			}
			commands[command][member] = members[member]
			switch c[len(command):] {
			case "!":
				needs[command] = append(needs[command], member)
			case "|":
				either[command] = append(either[command], member)
			}
		}
	}
	for member := range members {
		if !tagged[member] {
			return fmt.Errorf("no command declares that it reads %s", member)
		}
	}
	known := d.source.values[reflect.TypeFor[protocol.Command]().PkgPath()+".CommandType"]
	mapping, list := schema{}, []any{}
	for _, command := range slices.Sorted(maps.Keys(commands)) {
		if !slices.Contains(known, command) {
			return fmt.Errorf("command %s not found", command)
		}
		s := schema{"type": "object", "properties": commands[command]}
		names := append([]string{"type"}, needs[command]...)
		if len(either[command]) > 0 {
			names = append(names, strings.Join(either[command], "|"))
		}
		if err := requireMembers(s, names); err != nil {
			return err
		}
		title := schemaName(command) + "Command"
		d.named[title] = s
		mapping[command] = components + title
		list = append(list, ref(title))
	}
	if len(list) != len(known) {
		return fmt.Errorf("%d of %d commands have members", len(list), len(known))
	}
	d.named[name] = schema{
		"description":   "A command of workflow code. Members that a command does not read are ignored. Durations are whole seconds.",
		"oneOf":         list,
		"discriminator": schema{"propertyName": "type", "mapping": mapping},
	}
	return nil
}

// schemaName converts a snake_case name to the name of a schema.
func schemaName(name string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(name, "_") {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}
