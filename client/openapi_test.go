package client

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// described are the types of this package that responses are decoded into, by their schemas in the API description.
var described = map[string]any{
	"RunView": RunInfo{}, "RunStuck": Stuck{}, "Wait": Wait{}, "Pending": Pending{}, "PendingActivity": PendingActivity{},
	"PendingTimer": PendingTimer{}, "PendingWait": PendingWait{}, "PendingUpdate": PendingUpdate{},
	"PendingChild": PendingChild{}, "PendingTask": PendingTask{}, "PendingCancellation": PendingCancellation{},
	"ScheduleView": ScheduleInfo{}, "ScheduleSpec": ScheduleSpec{}, "ScheduleInterval": ScheduleInterval{},
	"SessionView": SessionInfo{}, "SessionEvent": SessionEvent{}, "SessionAttempt": SessionAttempt{},
	"ScheduleFire": Firing{}, "QueueState": QueueInfo{}, "QueueTally": QueueStats{}, "TaskTally": TaskCounts{},
	"BuildCohort": BuildInfo{}, "Deployment": DeploymentInfo{}, "DeploymentState": DeploymentResult{},
	"LimitState": QueueLimits{}, "Budget": TaskLimits{}, "Warning": Warning{},
	"BatchJobView": BatchInfo{}, "BatchPreview": BatchPreview{}, "BatchResult": BatchResult{},
	"FindResponse": Finding{}, "Found": Found{},
}

// ofWorkers are the schemas with example responses that only workers receive.
var ofWorkers = []string{"ActivityPolled", "HeartbeatResponse", "RegisterResponse", "WorkflowOutcome"}

// schema is a JSON schema of the API description.
type schema struct {
	Ref        string            `json:"$ref"`
	Type       any               `json:"type"` // a name, or a list of names
	Properties map[string]schema `json:"properties"`
	AnyOf      []schema          `json:"anyOf"`
	AllOf      []schema          `json:"allOf"`
	Enum       []string          `json:"enum"`
	Examples   []json.RawMessage `json:"examples"`
}

func schemas(t *testing.T) map[string]schema {
	t.Helper()
	raw, err := os.ReadFile("../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var api struct {
		Components struct {
			Schemas map[string]schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(raw, &api); err != nil {
		t.Fatal(err)
	}
	return api.Components.Schemas
}

// kinds returns the JSON types of a schema, except null.
func kinds(all map[string]schema, s schema) (names []string) {
	switch typ := s.Type.(type) {
	case string:
		names = append(names, typ)
	case []any:
		for _, name := range typ {
			names = append(names, name.(string))
		}
	}
	if s.Ref != "" {
		names = append(names, kinds(all, all[s.Ref[strings.LastIndex(s.Ref, "/")+1:]])...)
	}
	for _, part := range append(s.AnyOf, s.AllOf...) {
		names = append(names, kinds(all, part)...)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "null" })
}

// kindOf returns the JSON type that a Go type is decoded from; empty: any.
func kindOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		return ""
	case t == reflect.TypeFor[time.Time](), t.Kind() == reflect.String:
		return "string"
	case t.Kind() == reflect.Pointer:
		return kindOf(t.Elem())
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map:
		return "object"
	case t.Kind() == reflect.Slice:
		return "array"
	case t.Kind() == reflect.Bool:
		return "boolean"
	case t.Kind() == reflect.Float64:
		return "number"
	}
	return "integer"
}

func TestTypesOfThisPackageMatchTheAPIDescription(t *testing.T) {
	all := schemas(t)
	for name, v := range described {
		of, ok := all[name]
		if !ok {
			t.Errorf("no schema %s", name)
			continue
		}
		typ := reflect.TypeOf(v)
		for f := range typ.Fields() {
			member, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.IsExported() || f.Anonymous || member == "-" {
				continue
			}
			p, ok := of.Properties[member]
			if !ok {
				t.Errorf("%s.%s: schema %s has no member %q", typ.Name(), f.Name, name, member)
				continue
			}
			if want := kinds(all, p); len(want) > 0 && kindOf(f.Type) != "" && !slices.Contains(want, kindOf(f.Type)) {
				t.Errorf("%s.%s is decoded from %s; %s of schema %s is %v", typ.Name(), f.Name, kindOf(f.Type), member, name, want)
			}
		}
	}
}

func TestExampleResponsesOfTheAPIDescriptionAreDecoded(t *testing.T) {
	decoded := 0
	for name, s := range schemas(t) {
		for _, example := range s.Examples {
			var err error
			switch name {
			case "StartResponse", "ActivityResponse":
				var run RunInfo
				err = json.Unmarshal(example, &run)
				if err == nil && (run.WorkflowID == "" || run.RunID == "" || run.Status == "") {
					t.Errorf("%s: %s is decoded to %+v", name, example, run)
				}
			case "AwakeableReceipt", "ActivityReceipt", "ActivityHeartbeatReceipt": // the client returns only errors
				continue
			case "QueryResponse":
				var a protocol.QueryResponse
				var state map[string]string
				if err = json.Unmarshal(example, &a); err == nil {
					err = decode(nil, a.ResultEnvelope, &state)
				}
				if state["state"] != "packing" {
					t.Errorf("%s is decoded to %v", example, state)
				}
			default:
				if !slices.Contains(ofWorkers, name) {
					t.Errorf("schema %s has an example response, but no type of this package is decoded from it", name)
				}
				continue
			}
			decoded++
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if decoded < 3 {
		t.Errorf("%d example responses, want at least 3", decoded)
	}
}

// A constant that no app sends would never match an error.
func TestReasonsAreReasonsOfTheAPI(t *testing.T) {
	raw, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`\bReason\w+ +Reason = "(\w+)"`).FindAllSubmatch(raw, -1)
	if len(declared) < 20 {
		t.Errorf("%d constants found", len(declared))
	}
	known := schemas(t)["Reason"].Enum
	for _, d := range declared {
		// update_failed is the outcome of an update, which its response has in place of a reason
		if r := string(d[1]); !slices.Contains(known, r) && Reason(r) != ReasonUpdateFailed {
			t.Errorf("the API has no reason %q", r)
		}
	}
}
