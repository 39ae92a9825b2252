// Package conformance tests a server against the contract through HTTP alone: its cases are documents that any
// language can run.
package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// These are the parts to which a case may belong.
const (
	Contract = "contract" // behaviour that published clients rely on
	Sojourn  = "sojourn"  // extensions of Sojourn
)

// Suite is one document with cases about one subject.
type Suite struct {
	Suite string            `json:"suite"`
	About string            `json:"about"`
	Part  string            `json:"part"`            // contract or sojourn, for every case without its own part
	Given map[string][]Step `json:"given,omitempty"` // beginnings that several cases share, by name
	Cases []Case            `json:"cases"`
}

// Case is an independent sequence of requests. Its variables are ${id}, new for each run of the case, ${token}, and the
// variables that its steps save.
type Case struct {
	Suite string `json:"-"`
	Name  string `json:"name"`
	Part  string `json:"part,omitempty"`
	// Needs are requirements on the server; otherwise the case is skipped: authentication, which is detected, or a
	// setting that Options.With lists.
	Needs []string `json:"needs,omitempty"`
	Given []string `json:"given,omitempty"` // beginnings of the suite, in this order
	// Before creates the state that the case tests, after the given steps. After checks the state afterwards.
	Before []Step `json:"before,omitempty"`
	Steps  []Step `json:"steps"`
	After  []Step `json:"after,omitempty"`
}

// Step is a request with its expected response.
type Step struct {
	About   string  `json:"about,omitempty"`
	Request Request `json:"request"`
	Answer  Answer  `json:"answer"`
	// Meanwhile are steps that run while the server holds this request, and for which it waits.
	Meanwhile []Step `json:"meanwhile,omitempty"`
	// Eventually repeats the request, for at most half a minute, until its response matches, because its effect takes a
	// moment.
	Eventually bool              `json:"eventually,omitempty"`
	Save       map[string]string `json:"save,omitempty"` // variable → JSON pointer into the response's body
	// Unchanged lists paths whose responses to GET must be the same before and after this request; PATH#/POINTER: only
	// that part of the body.
	Unchanged []string `json:"unchanged,omitempty"`
}

// Request is a request. Standard headers are added: the token, the version of the API, the type of the body. A null
// header is omitted.
type Request struct {
	Method  string             `json:"method"`
	Path    string             `json:"path"`
	Headers map[string]*string `json:"headers,omitempty"`
	Body    json.RawMessage    `json:"body,omitempty"`
	Text    *string            `json:"text,omitempty"`   // a body that is not JSON
	Repeat  *Repeat            `json:"repeat,omitempty"` // a generated body of a given length
	// disconnect after this number of server-sent events; the body of the response is their list
	Events int `json:"events,omitempty"`
}

// Repeat is a JSON object {member: "xxx…"} of that many bytes in its text.
type Repeat struct {
	Member string `json:"member"`
	Bytes  int    `json:"bytes"`
}

// Answer is the expected response. See Match for patterns of the body.
type Answer struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers,omitempty"` // exact; "*": any that is not empty
	Body    json.RawMessage   `json:"body,omitempty"`
}

// ID names a case among all.
func (c Case) ID() string { return c.Suite + "/" + c.Name }

// Load reads all suites of a directory, in the order of their names.
func Load(files fs.FS, dir string) ([]Case, error) {
	names, err := fs.Glob(files, path.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []Case
	seen := map[string]bool{}
	for _, name := range names {
		raw, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		var s Suite
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, c := range s.Cases {
			if c.Suite = s.Suite; c.Part == "" {
				c.Part = s.Part
			}
			if c.Part != Contract && c.Part != Sojourn {
				return nil, fmt.Errorf("%s: case %q: part is %q, not contract or sojourn", name, c.Name, c.Part)
			}
			if seen[c.ID()] || c.Name == "" || len(c.Steps) == 0 {
				return nil, fmt.Errorf("%s: case %q needs a unique name and at least one step", name, c.Name)
			}
			seen[c.ID()] = true
			var before []Step
			for _, g := range c.Given {
				steps, known := s.Given[g]
				if !known {
					return nil, fmt.Errorf("%s: case %q: unknown name %q in its member given", name, c.Name, g)
				}
				before = append(before, steps...)
			}
			c.Before = append(before, c.Before...)
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no cases in %s", dir)
	}
	return all, nil
}

// fill replaces ${name} by the values of variables. In JSON text, a variable may occur inside a string; "${name}" alone
// becomes the variable's value of any type.
func fill(text string, vars map[string]any) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, after, closed := strings.Cut(rest, "}")
		value, known := vars[name]
		if !closed || !known {
			return "", fmt.Errorf("undefined variable ${%s}", name)
		}
		if s, ok := value.(string); ok {
			b.WriteString(s)
		} else {
			raw, err := json.Marshal(value)
			if err != nil {
				return "", err
			}
			b.Write(raw)
		}
		text = after
	}
}

// filled returns a JSON value with its variables replaced.
func filled(v any, vars map[string]any) (any, error) {
	switch v := v.(type) {
	case string:
		if name, ok := strings.CutPrefix(v, "${"); ok && strings.IndexByte(name, '}') == len(name)-1 {
			value, known := vars[name[:len(name)-1]]
			if !known {
				return nil, fmt.Errorf("undefined variable %s", v)
			}
			return value, nil
		}
		return fill(v, vars)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			var err error
			if out[i], err = filled(item, vars); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, item := range v {
			name, err := fill(k, vars)
			if err != nil {
				return nil, err
			}
			if out[name], err = filled(item, vars); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}
