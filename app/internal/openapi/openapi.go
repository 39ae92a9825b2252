// Package openapi generates docs/openapi.json from the routes and the Go types that serve them.
package openapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/httpapi"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

//go:generate go run ./write

// Routes returns all routes that the document describes.
func Routes() []serve.Route { return append(httpapi.Routes(), workerapi.Routes()...) }

type object = map[string]any

// Document describes the routes as JSON in a stable order. root is the directory of the module, whose sources
// contain the comments. A route without described responses is an error.
func Document(root string, routes []serve.Route) ([]byte, error) {
	d := &document{schemas: newSchemas(newSource(root)), paths: object{}, refusals: object{}, examples: object{}}
	if err := d.shared(); err != nil {
		return nil, err
	}
	for _, rt := range routes {
		if err := d.add(rt); err != nil {
			return nil, fmt.Errorf("%s %s: %w", rt.Method, rt.Pattern, err)
		}
	}
	if err := d.schemas.splitCommands(); err != nil {
		return nil, err
	}
	if err := d.schemas.describePayloads(); err != nil {
		return nil, err
	}
	for name, v := range d.examples {
		d.schemas.named[name]["examples"] = []any{v}
	}
	if err := d.prune(); err != nil {
		return nil, err
	}
	whole := object{
		"openapi": "3.1.0",
		"info": object{
			"title":   "Sojourn",
			"version": "1",
			"description": "Control plane and worker protocol of a Sojourn app. Operations with `x-sojourn` exist only in Sojourn; " +
				"the others are the contract of the published clients. A caller needs one of the roles in `x-roles`. " +
				"`x-max-body-bytes` is the maximum length of the request body.",
			"license": object{"name": "see the repository"},
		},
		"servers":  []any{object{"url": "/"}},
		"security": []any{object{"token": []string{}}, object{"cookie": []string{}}},
		"tags":     tags,
		"paths":    d.paths,
		"components": object{
			"schemas": d.schemas.named, "responses": d.refusals, "headers": headers, "parameters": parameters,
			"securitySchemes": object{
				"token":  object{"type": "http", "scheme": "bearer", "description": "opaque token of the form sjn_ID_SECRET"},
				"cookie": object{"type": "apiKey", "in": "cookie", "name": auth.Cookie, "description": "cookie of the dashboard"},
			},
		},
	}
	var raw bytes.Buffer
	e := json.NewEncoder(&raw)
	e.SetEscapeHTML(false)
	if err := e.Encode(whole); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := writeLines(&b, bytes.TrimSpace(raw.Bytes()), documentLines); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// documentLines is the depth down to which each member of the document has its own line: that of operations and
// schemas.
const documentLines = 3

// writeLines writes compact JSON with separate lines for the members of objects down to the given depth, so that a
// changed operation is one changed line.
func writeLines(b *bytes.Buffer, raw json.RawMessage, depth int) error {
	if depth == 0 || raw[0] != '{' {
		b.Write(raw)
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return err
	}
	between := "{\n"
	for _, name := range slices.Sorted(maps.Keys(members)) {
		fmt.Fprintf(b, "%s%q:", between, name)
		if err := writeLines(b, members[name], depth-1); err != nil {
			return err
		}
		between = ",\n"
	}
	if len(members) == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return nil
}

type document struct {
	schemas  *schemas
	paths    object
	refusals object // error responses that many routes share
	examples object // of responses, by the schema's name
}

// prune removes schemas without references: schemas of types that were inlined.
func (d *document) prune() error {
	for {
		raw, err := json.Marshal([]any{d.paths, d.refusals, d.schemas.named})
		if err != nil {
			return err
		}
		before := len(d.schemas.named)
		maps.DeleteFunc(d.schemas.named, func(name string, _ schema) bool {
			return !bytes.Contains(raw, []byte(`"`+components+name+`"`))
		})
		if len(d.schemas.named) == before {
			return nil
		}
	}
}

var tags = []any{
	object{"name": "control plane", "description": "workflows, schedules, namespaces and their operation"},
	object{"name": "worker protocol", "description": "requests of workers in any language"},
	object{"name": "sojourn", "description": "routes that are not part of the contract"},
}

var headers = object{
	"ControlPlaneVersion": object{
		"description": "version of the control plane",
		"schema":      object{"type": "string", "const": httpapi.Version},
	},
	"ProtocolVersion": object{
		"description": "version of the worker protocol",
		"schema":      object{"type": "string", "const": workerapi.Version},
	},
	"RetryAfter":   object{"description": "seconds until the next attempt", "schema": object{"type": "string"}},
	"Authenticate": object{"description": "authentication scheme", "schema": object{"type": "string"}},
}

var parameters = object{
	"Namespace": object{
		"name": "X-Namespace", "in": "header", "description": "namespace of the request",
		"schema": object{"type": "string", "pattern": `^[a-z0-9][a-z0-9._-]{0,127}$`, "default": "default"},
	},
	"Strict": object{
		"name": "strict", "in": "query",
		"description": "reject a request with unknown members or query parameters; by default the response lists them in warnings",
		"schema":      object{"type": "boolean", "default": false},
	},
	"IdempotencyKey": object{
		"name": protocol.HeaderIdempotencyKey, "in": "header",
		"description": "a request that is repeated with the same key returns the run that the first one started; valid UTF-8",
		"schema":      object{"type": "string", "minLength": 1, "maxLength": protocol.MaxIdempotencyKey},
	},
	"ControlPlaneVersion": object{
		"name": httpapi.VersionHeader, "in": "header", "required": true,
		"schema": object{"type": "string", "const": httpapi.Version},
	},
	"ProtocolVersion": object{
		"name": workerapi.VersionHeader, "in": "header", "required": true, "description": "1.0 up to " + workerapi.Version,
		"schema": object{"type": "string", "pattern": `^1\.(1?[0-9]|20)$`},
	},
}

// workerResponse holds the members of every response of the worker protocol.
type workerResponse struct {
	Version      string                      `json:"protocol_version"`
	Capabilities protocol.ServerCapabilities `json:"server_capabilities"`
}

// warnedResponse has the members that every control plane response may have.
type warnedResponse struct {
	// warnings about unknown members and query parameters of the request, and about other probable mistakes
	Warnings []protocol.Warning `json:"warnings,omitempty"`
}

// workflowResponse holds the members of every response of the workflow routes.
type workflowResponse struct {
	ControlPlane httpapi.ControlPlane `json:"control_plane"`
}

// refusal is the body of an error response.
type refusal struct {
	Reason     protocol.Reason     `json:"reason"`
	Message    string              `json:"message"`                     // text for people; it may change
	Fields     map[string][]string `json:"errors,omitempty"`            // errors by the path of their member
	Validation map[string][]string `json:"validation_errors,omitempty"` // equals errors
}

type workerRefusal struct {
	refusal
	Error string `json:"error"` // equals message
	workerResponse
}

type workflowRefusal struct {
	refusal
	workflowResponse
}

// shared returns the schemas to which operations refer.
func (d *document) shared() error {
	for _, v := range []any{
		refusal{}, workerRefusal{}, workflowRefusal{}, workerResponse{}, workflowResponse{}, warnedResponse{},
	} {
		if _, err := d.schemas.schemaOf(v, false); err != nil {
			return err
		}
	}
	return nil
}

// hasControlPlane reports whether a route's responses have the control_plane object.
func hasControlPlane(rt serve.Route) bool {
	return rt.Pattern == "/api/workflows" || strings.HasPrefix(rt.Pattern, "/api/workflows/")
}

var part = regexp.MustCompile(`\{([a-z_]+)\}`)

func (d *document) add(rt serve.Route) error {
	if len(rt.Shape.Responses) == 0 || rt.Shape.Summary == "" {
		return fmt.Errorf("operation %s has no entry in shapes.go", rt.Operation)
	}
	op := object{
		"operationId": d.id(rt), "summary": rt.Shape.Summary, "tags": []string{tag(rt)}, "x-roles": auth.Holders(rt.Roles),
	}
	text, found := aboutOf(rt.Operation)
	if found {
		op["description"] = text.text
	}
	if rt.Sojourn && !unversioned[rt.Operation] {
		op["x-sojourn"] = true
	}
	if rt.Open() {
		op["security"], op["x-roles"] = []any{}, []auth.Role{}
	}
	params, err := d.parameters(rt)
	if err != nil {
		return err
	}
	op["parameters"] = params
	if rt.Shape.Body != nil {
		s, err := d.schemas.inlineSchema(rt.Shape.Body, true, inPath(rt))
		if err != nil {
			return err
		}
		if len(rt.Shape.Needs) > 0 {
			if err := requireMembers(s, rt.Shape.Needs); err != nil {
				return err
			}
		}
		media := object{"schema": s}
		if err := example(media, text.body); err != nil {
			return err
		}
		op["requestBody"] = object{"content": object{"application/json": media}, "required": len(rt.Shape.Needs) > 0}
		op["x-max-body-bytes"] = cmp.Or(rt.Shape.MaxBody, httpjson.MaxBody)
	}
	reasons := refusals(rt)
	if op["responses"], err = d.responses(rt, reasons); err != nil {
		return err
	}
	if err := d.answers(rt, text.answer); err != nil {
		return err
	}
	item, _ := d.paths[rt.Pattern].(object)
	if item == nil {
		item = object{}
		d.paths[rt.Pattern] = item
	}
	item[strings.ToLower(rt.Method)] = op
	return nil
}

// id returns the operation's ID. Commands and the debug view of a named run have the suffix _run, since they share
// their operation name with those of the current run.
func (d *document) id(rt serve.Route) string {
	if !strings.Contains(rt.Pattern, "{run}/") || rt.Method == http.MethodGet && rt.Operation != "debug_workflow" {
		return rt.Operation
	}
	return rt.Operation + "_run"
}

// unversioned lists operations of the contract that need no version header, since clients read the supported versions
// there.
var unversioned = map[string]bool{"cluster_info": true, "health": true, "ready": true}

func tag(rt serve.Route) string {
	switch {
	case unversioned[rt.Operation]:
		return "control plane"
	case rt.Plane == serve.Work:
		return "worker protocol"
	case rt.Plane == serve.Control && !rt.Sojourn:
		return "control plane"
	}
	return "sojourn"
}

// inPath reports which members of a body are taken from the path instead.
func inPath(rt serve.Route) func(string) bool {
	var names []string
	for _, p := range part.FindAllStringSubmatch(rt.Pattern, -1) {
		switch p[1] {
		case "name":
			names = append(names, "signal_name", "query_name", "update_name")
		case "workflow":
			names = append(names, "namespace", "workflow_id", "run_id")
		case "namespace":
			names = append(names, "name")
		default:
			names = append(names, p[1]+"_id")
		}
	}
	return func(name string) bool { return slices.Contains(names, name) }
}

func (d *document) parameters(rt serve.Route) ([]any, error) {
	list := []any{}
	for _, p := range part.FindAllStringSubmatch(rt.Pattern, -1) {
		list = append(list, object{
			"name": p[1], "in": "path", "required": true, "schema": object{"type": "string", "minLength": 1, "maxLength": 255},
		})
	}
	if !rt.Open() {
		list = append(list, object{"$ref": "#/components/parameters/Namespace"})
		if rt.Plane != serve.Work {
			list = append(list, object{"$ref": "#/components/parameters/Strict"})
		}
	}
	switch {
	case rt.Sojourn:
	case rt.Plane == serve.Control:
		list = append(list, object{"$ref": "#/components/parameters/ControlPlaneVersion"})
	case rt.Plane == serve.Work:
		list = append(list, object{"$ref": "#/components/parameters/ProtocolVersion"})
	}
	if rt.Shape.IdempotencyKey {
		list = append(list, object{"$ref": "#/components/parameters/IdempotencyKey"})
	}
	if rt.Shape.Query == nil {
		return list, nil
	}
	s, err := d.schemas.inlineSchema(rt.Shape.Query, true, func(name string) bool {
		return name == "namespace" || inPath(rt)(name)
	})
	if err != nil {
		return nil, err
	}
	all := s["properties"].(schema)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := maps.Clone(all[name].(schema))
		p := object{"name": name, "in": "query", "schema": m}
		if about, ok := m["description"]; ok {
			p["description"] = about
			delete(m, "description")
		}
		list = append(list, p)
	}
	return list, nil
}

func (d *document) responses(rt serve.Route, reasons map[int][]protocol.Reason) (object, error) {
	all := object{}
	for status, body := range rt.Shape.Responses {
		r := object{"description": cmp.Or(http.StatusText(status), "response"), "headers": answerHeaders(rt, status)}
		switch body := body.(type) {
		case serve.Media:
			r["content"] = object{string(body): object{}}
		case serve.AnyOf:
			var list []any
			for _, one := range body {
				s, err := d.schemas.schemaOf(one, false)
				if err != nil {
					return nil, err
				}
				list = append(list, s)
			}
			r["content"] = object{"application/json": object{"schema": withCommonMembers(rt, object{"anyOf": list})}}
		default:
			s, err := d.schemas.schemaOf(body, false)
			if err != nil {
				return nil, err
			}
			r["content"] = object{"application/json": object{"schema": withCommonMembers(rt, s)}}
		}
		all[strconv.Itoa(status)] = r
	}
	for status, list := range reasons {
		r := d.refusedResponse(rt, status, list)
		key := strconv.Itoa(status)
		if success, there := all[key].(object); there { // a successful response has this status too
			if m, ok := success["content"].(object)["application/json"].(object); ok {
				m["schema"] = object{"anyOf": []any{m["schema"], refusedSchema(rt, list)}}
			}
			continue
		}
		all[key] = r
	}
	return all, nil
}

// refusedResponse returns the error response with a status. Errors that all routes of a kind share are one component.
func (d *document) refusedResponse(rt serve.Route, status int, list []protocol.Reason) object {
	usual := commonRefusals[status]
	name := ""
	if !slices.ContainsFunc(list, func(r protocol.Reason) bool { return !slices.Contains(usual, r) }) {
		list, name = usual, routeFamily(rt)+strings.ReplaceAll(http.StatusText(status), " ", "")
	}
	r := object{
		"description": cmp.Or(http.StatusText(status), "rejected"), "headers": answerHeaders(rt, status),
		"content": object{"application/json": object{"schema": refusedSchema(rt, list)}},
	}
	if name == "" {
		return r
	}
	d.refusals[name] = r
	return object{"$ref": "#/components/responses/" + name}
}

func refusedSchema(rt serve.Route, list []protocol.Reason) schema {
	return object{"allOf": []any{
		ref(routeFamily(rt) + "Refusal"), object{"properties": object{"reason": object{"enum": list}}},
	}}
}

// routeFamily returns the family of a route whose error responses have additional members: Worker, Workflow, or none.
func routeFamily(rt serve.Route) string {
	switch {
	case rt.Plane == serve.Work:
		return "Worker"
	case hasControlPlane(rt):
		return "Workflow"
	}
	return ""
}

// withCommonMembers adds the members that every response of an API contains.
func withCommonMembers(rt serve.Route, s schema) schema {
	if rt.Shape.Bare {
		return s
	}
	all := []any{s}
	if name := routeFamily(rt); name != "" {
		all = append(all, ref(name+"Response"))
	}
	if rt.Plane != serve.Work && (!rt.Open() || rt.Shape.Body != nil) {
		all = append(all, ref("WarnedResponse"))
	}
	if len(all) == 1 {
		return s
	}
	return object{"allOf": all}
}

func answerHeaders(rt serve.Route, status int) object {
	h := object{}
	if rt.Plane == serve.Work {
		h[workerapi.VersionHeader] = object{"$ref": "#/components/headers/ProtocolVersion"}
	} else {
		h[httpapi.VersionHeader] = object{"$ref": "#/components/headers/ControlPlaneVersion"}
	}
	switch status {
	case http.StatusUnauthorized:
		h["WWW-Authenticate"] = object{"$ref": "#/components/headers/Authenticate"}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h["Retry-After"] = object{"$ref": "#/components/headers/RetryAfter"}
	}
	return h
}
