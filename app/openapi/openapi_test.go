package openapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/openapi"
	"github.com/sojourn-run/sojourn/docs"
)

func TestThePublishedDescriptionIsThatOfTheRoutes(t *testing.T) {
	got, err := openapi.Document("../..", openapi.Routes())
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

func TestARouteThatDoesNotSayItsTypesIsAnError(t *testing.T) {
	rt := auth.Route{Method: "GET", Pattern: "/api/new", Operation: "novelty", Plane: auth.Own}
	if _, err := openapi.Document("../..", []auth.Route{rt}); err == nil || !strings.Contains(err.Error(), "novelty has no shape") {
		t.Errorf("got %v", err)
	}
}

// The checker is only worth something if it can say no.
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
		want    string // a part of what is wrong; empty: nothing
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
		err := c.Answer(x.pattern, x.status, x.header, []byte(x.body))
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s %d %s: got %v, want %q", x.pattern, x.status, x.body, err, x.want)
		}
	}
}
