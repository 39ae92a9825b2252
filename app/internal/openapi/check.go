package openapi

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Checker compares responses with the API description. It is safe for concurrent use.
type Checker struct {
	doc object

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // by pointer; nil: the body is not described
	valid    map[validShape]struct{}
}

// validShape is the shape of a body that matched its schema.
type validShape struct {
	schema *jsonschema.Schema
	shape  uint64
}

const resource = "openapi.json"

// NewChecker parses an API description.
func NewChecker(document []byte) (*Checker, error) {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return nil, fmt.Errorf("description: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	doc, ok := v.(object)
	if !ok {
		return nil, fmt.Errorf("description: not an object")
	}
	schemas, valid := map[string]*jsonschema.Schema{}, map[validShape]struct{}{}
	return &Checker{doc: doc, compiler: c, schemas: schemas, valid: valid}, c.AddResource(resource, v)
}

// Response checks a response to METHOD PATTERN and returns an error for an undescribed status, a missing header or a
// body that does not match. An empty pattern means that no route matched the request.
func (c *Checker) Response(pattern string, status int, header http.Header, body []byte) error {
	method, path, ok := strings.Cut(pattern, " ")
	if !ok {
		return c.unrouted(status, body)
	}
	at := []string{"paths", path, strings.ToLower(method), "responses", strconv.Itoa(status)}
	response, at := c.find(at)
	if response == nil {
		return fmt.Errorf("status %d of %s is not described", status, pattern)
	}
	if headers, ok := response["headers"].(object); ok {
		for name := range headers {
			if header.Get(name) == "" {
				return fmt.Errorf("%s: %d has no header %s", pattern, status, name)
			}
		}
	}
	media, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	content, _ := response["content"].(object)
	if content[media] == nil {
		return fmt.Errorf("%s: %d has media type %q, which is not described", pattern, status, media)
	}
	if media != "application/json" {
		return nil
	}
	if err := c.validate(append(at, "content", media, "schema"), body); err != nil {
		return fmt.Errorf("%s: %d: %w", pattern, status, err)
	}
	return nil
}

// unrouted checks the response to a request without a route, which is refused like any other request.
func (c *Checker) unrouted(status int, body []byte) error {
	if status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
		return fmt.Errorf("no route, and status %d", status)
	}
	return c.validate([]string{"components", "schemas", "Refusal"}, body)
}

// find follows a path of members and the reference at its end.
func (c *Checker) find(path []string) (object, []string) {
	at := c.doc
	for _, name := range path {
		at, _ = at[name].(object)
	}
	if r, ok := at["$ref"].(string); ok {
		return c.find(strings.Split(strings.TrimPrefix(r, "#/"), "/"))
	}
	return at, path
}

func (c *Checker) validate(path []string, body []byte) error {
	s, err := c.schema(path)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	// Most bodies of a test differ from earlier ones only in IDs, numbers and times. Validating them again would take half
	// of the processor time of a test.
	known := validShape{s, shape(v)}
	c.mu.Lock()
	_, seen := c.valid[known]
	c.mu.Unlock()
	if seen {
		return nil
	}
	if err := s.Validate(v); err != nil {
		return fmt.Errorf("%w: %.2000s", err, body)
	}
	c.mu.Lock()
	c.valid[known] = struct{}{}
	c.mu.Unlock()
	return nil
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

func (c *Checker) schema(path []string) (*jsonschema.Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pointer := resource + "#"
	for _, p := range path {
		pointer += "/" + escape.Replace(p)
	}
	if s := c.schemas[pointer]; s != nil {
		return s, nil
	}
	s, err := c.compiler.Compile(pointer)
	if err != nil {
		return nil, fmt.Errorf("schema %s: %w", pointer, err)
	}
	c.schemas[pointer] = s
	return s, nil
}

// Operations returns METHOD PATTERN of all described operations.
func (c *Checker) Operations() []string {
	var list []string
	paths, _ := c.doc["paths"].(object)
	for path, item := range paths {
		for method := range item.(object) {
			list = append(list, strings.ToUpper(method)+" "+path)
		}
	}
	return list
}
