package openapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/internal/openapi"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/docs"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestThePublishedDescriptionIsThatOfTheRoutes(t *testing.T) {
	got, err := openapi.Document("../../..", openapi.Routes())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, docs.OpenAPI) {
		t.Error("docs/openapi.json is not what the routes and types say: run make generate")
	}
	if clash := regexp.MustCompile(`"\w+Type[0-9]"`).Find(got); clash != nil {
		t.Errorf("two types are called %s: give one another name", bytes.Trim(clash, `"`))
	}
}

// A program that switches on the reason of a wait may rely on the list: each constant has its rule, and the description
// and the dashboard have them all.
func TestTheReasonsOfWaitsAreOneClosedList(t *testing.T) {
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Enum []string }
		}
	}
	if err := json.Unmarshal(docs.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	list := []string{}
	for _, r := range protocol.WaitRules {
		list = append(list, string(r.Reason))
	}
	described := doc.Components.Schemas["WaitReason"].Enum
	slices.Sort(list)
	slices.Sort(described)
	if !slices.Equal(list, described) {
		t.Errorf("the description lists %v, the rules %v", described, list)
	}
	dashboard, err := os.ReadFile("../../../web/src/api/waits.ts")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range protocol.WaitRules {
		if !strings.Contains(string(dashboard), fmt.Sprintf("  %s: { form: %q, text: %q },\n", r.Reason, r.Form, r.Text)) {
			t.Errorf("the dashboard does not know %s as it is: run go generate ./shared/protocol", r.Reason)
		}
	}
}

func TestEveryRouteIsDescribedOnce(t *testing.T) {
	c, err := openapi.NewChecker(docs.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for _, op := range c.Operations() {
		described[op] = true
	}
	for _, rt := range openapi.Routes() {
		if !described[rt.Method+" "+rt.Pattern] {
			t.Errorf("%s %s is not described", rt.Method, rt.Pattern)
		}
		delete(described, rt.Method+" "+rt.Pattern)
	}
	for op := range described {
		t.Errorf("%s is described and not served", op)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			ID string `json:"operationId"`
		}
	}
	if err := json.Unmarshal(docs.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for path, item := range doc.Paths {
		for _, op := range item {
			if other, twice := seen[op.ID]; twice {
				t.Errorf("%s and %s are both called %s", path, other, op.ID)
			}
			seen[op.ID] = path
		}
	}
}

func TestRouteWithoutTypesIsAnError(t *testing.T) {
	rt := serve.Route{Method: "GET", Pattern: "/api/new", Operation: "novelty", Plane: serve.Own}
	if _, err := openapi.Document("../../..", []serve.Route{rt}); err == nil ||
		!strings.Contains(err.Error(), "novelty has no entry in shapes.go") {
		t.Errorf("got %v", err)
	}
}

// The checker rejects responses that are not described.
func TestTheCheckerRefusesWhatIsNotDescribed(t *testing.T) {
	c, err := openapi.NewChecker(docs.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Content-Type": {"application/json"}, "X-Durable-Workflow-Control-Plane-Version": {"2"}}
	for _, x := range []struct {
		pattern string
		status  int
		body    string
		header  http.Header
		want    string // a part of the expected error; empty: no error
	}{
		{"GET /up", 200, `{"status":"up","timestamp":"2026-01-02T03:04:05.000006Z"}`, header, ""},
		{"GET /up", 200, `{"status":"up","timestamp":"2026-01-02T03:04:05.000006Z","more":1}`, header, ""},
		{"GET /up", 200, `{"status":"up"}`, header, "timestamp"},
		{"GET /up", 200, `{"status":"down","timestamp":null}`, header, "value must be"},
		{"GET /up", 200, `{"status":"up","timestamp":"yesterday"}`, header, "date-time"},
		{"GET /up", 200, `{"status":"up"`, header, "not JSON"},
		{"GET /up", 201, `{}`, header, "status 201"},
		{"GET /up", 200, `{}`, http.Header{"Content-Type": {"application/json"}}, "no header"},
		{"GET /api/namespaces/{namespace}", 404, `{"reason":"namespace_not_found","message":"m"}`, header, ""},
		{"GET /api/namespaces/{namespace}", 404, `{"reason":"task_not_found","message":"m"}`, header, "reason"},
		{"GET /api/namespaces/{namespace}", 404, `{"reason":"namespace_not_found"}`, header, "message"},
		{"GET /api/workflows/{workflow}", 404, `{"reason":"instance_not_found","message":"m"}`, header, "control_plane"},
		{"", 404, `{"reason":"not_found","message":"m"}`, header, ""},
		{"", 500, `{"reason":"internal","message":"m"}`, header, "no route"},
		{"", 404, `{}`, header, "reason"},
	} {
		err := c.Response(x.pattern, x.status, x.header, []byte(x.body))
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s %d %s: got %v, want %q", x.pattern, x.status, x.body, err, x.want)
		}
	}
}

// A body with the shape of an earlier valid body is not validated again, so every difference that a schema can see must
// change the shape.
func TestTheCheckerValidatesEveryNewShape(t *testing.T) {
	c, err := openapi.NewChecker(docs.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Content-Type": {"application/json"}, "X-Durable-Workflow-Control-Plane-Version": {"2"}}
	check := func(body string) error { return c.Response("GET /up", 200, header, []byte(body)) }
	if err := check(`{"status":"up","timestamp":"2026-01-02T03:04:05.000006Z","more":[{"a":1},{"b":2}]}`); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{
		`{"status":"down","timestamp":"2026-01-02T03:04:05.000006Z","more":[{"a":1},{"b":2}]}`,
		`{"status":true,"timestamp":"2026-01-02T03:04:05.000006Z","more":[{"a":1},{"b":2}]}`,
		`{"status":["up"],"timestamp":"2026-01-02T03:04:05.000006Z","more":[{"a":1},{"b":2}]}`,
		`{"status":null,"timestamp":"2026-01-02T03:04:05.000006Z","more":[{"a":1},{"b":2}]}`,
		`{"status":"up","timestamp":"yesterday","more":[{"a":1},{"b":2}]}`,
		`{"status":"up","timestamp":20260102,"more":[{"a":1},{"b":2}]}`,
		`{"status":"up","more":[{"a":1},{"b":2}]}`,
	} {
		if check(body) == nil {
			t.Errorf("accepted %s", body)
		}
	}
}
