package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sojourn-run/sojourn/app/internal/serve"
)

// about is the description of an operation beyond its summary: its effects, and example bodies in JSON.
type about struct{ text, body, answer string }

// aboutOf returns the description of an operation, by the name of its route.
func aboutOf(operation string) (about, bool) {
	a, there := aboutWork[operation]
	if !there {
		a, there = aboutControl[operation]
	}
	return a, there
}

// example adds an example to a media type.
func example(media object, raw string) error {
	if raw == "" {
		return nil
	}
	var v any
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		return fmt.Errorf("example %.60s: %w", raw, err)
	}
	media["example"] = v
	return nil
}

// answers adds the example to the schema of a route's successful response: the body without the members that every
// response has.
func (d *document) answers(rt serve.Route, raw string) error {
	if raw == "" {
		return nil
	}
	status := slices.Min(slices.Collect(maps.Keys(rt.Shape.Responses)))
	body := rt.Shape.Responses[status]
	if list, ok := body.(serve.AnyOf); ok {
		body = list[0]
	}
	s, err := d.schemas.schemaOf(body, false)
	if err != nil {
		return err
	}
	name, named := strings.CutPrefix(text(s["$ref"]), components)
	if !named {
		return fmt.Errorf("the response has an unnamed type, which cannot have an example")
	}
	var v any
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		return fmt.Errorf("example %.60s: %w", raw, err)
	}
	d.examples[name] = v
	return nil
}
