package openapi

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/docs"
)

var (
	sentences  = regexp.MustCompile(`^[A-Z][a-z]+ .+\.$`)
	imperative = regexp.MustCompile(`^[A-Z][a-z]+ .*[^.]$`)
)

func TestEveryOperationIsDescribed(t *testing.T) {
	known := map[string]bool{}
	for _, rt := range Routes() {
		known[rt.Operation] = true
		switch a, there := aboutOf(rt.Operation); {
		case !there:
			t.Errorf("%s is not described in about_work.go or about_control.go", rt.Operation)
		case !sentences.MatchString(a.text) || !imperative.MatchString(rt.Shape.Summary):
			t.Errorf("%s: the description must be sentences, the summary a title: %q, %q", rt.Operation, a.text, rt.Shape.Summary)
		case len(rt.Shape.Needs) > 0 && a.body == "" && rt.Operation != "import":
			t.Errorf("%s requires a body and has no example of one", rt.Operation)
		case rt.Shape.Body == nil && a.body != "":
			t.Errorf("%s reads no body and has an example of one", rt.Operation)
		}
	}
	for _, list := range []map[string]about{aboutWork, aboutControl} {
		for operation := range list {
			if !known[operation] {
				t.Errorf("operation %s does not exist", operation)
			}
		}
	}
}

func TestExamplesFitTheirSchemas(t *testing.T) {
	c, err := NewChecker(docs.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	paths := c.doc["paths"].(object)
	seen := 0
	for _, rt := range Routes() {
		op := paths[rt.Pattern].(object)[strings.ToLower(rt.Method)].(object)
		body, _ := op["requestBody"].(object)
		if body == nil {
			continue
		}
		media := body["content"].(object)["application/json"].(object)
		if media["example"] == nil {
			continue
		}
		seen++
		raw, err := json.Marshal(media["example"])
		if err != nil {
			t.Fatal(err)
		}
		if err := c.validate([]string{
			"paths", rt.Pattern, strings.ToLower(rt.Method), "requestBody", "content", "application/json", "schema",
		}, raw); err != nil {
			t.Errorf("%s: %v", rt.Operation, err)
		}
	}
	for name, s := range c.doc["components"].(object)["schemas"].(object) {
		list, _ := s.(object)["examples"].([]any)
		for _, v := range list {
			seen++
			raw, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.validate([]string{"components", "schemas", name}, raw); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if seen < 40 {
		t.Errorf("found only %d examples", seen)
	}
}

func TestPayloadOfAnEventHasTheSchemaOfItsType(t *testing.T) {
	c, err := NewChecker(docs.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]bool{
		`{"event_type": "TimerFired", "payload": {"sequence": 1, "timer_id": "r-1", "delay_seconds": 5}}`:   true,
		`{"event_type": "TimerFired", "payload": {"sequence": "1", "timer_id": "r-1", "delay_seconds": 5}}`: false,
		`{"event_type": "TimerFired", "payload": {"timer_id": "r-1", "delay_seconds": 5}}`:                  false,
		`{"event_type": "SomethingNew", "payload": {"sequence": "1"}}`:                                      true,
	} {
		var m map[string]any
		if err := json.Unmarshal([]byte(body), &m); err != nil {
			t.Fatal(err)
		}
		m["id"], m["sequence"], m["recorded_at"] = "e1", 1, "2026-01-02T03:04:05.000006Z"
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.validate([]string{"components", "schemas", "HistoryEvent"}, raw); (err == nil) != want {
			t.Errorf("%s: got %v", body, err)
		}
	}
}
