package apptest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/docs"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// sound are minimal valid requests, by operation, with the IDs of populate. The test sends them in this order, each
// after all its invalid variants were refused.
var sound = []struct{ operation, path, body string }{
	{"register", "", `{"task_queue":"q2"}`},
	{"register", "", `{"task_queues":["q3"],"session_settings":{"lease_ms":60000},"max_concurrent_workflow_tasks":1}`},
	{"worker_heartbeat", "", `{"worker_id":"w1","sessions":[{"session_id":"sn1","epoch":1}]}`},
	{"poll_workflow_task", "", `{"worker_id":"w1","timeout_seconds":0}`},
	{"poll_activity_task", "", `{"worker_id":"w1","timeout_seconds":0}`},
	{"poll_query_task", "", `{"worker_id":"w1","timeout_seconds":0}`},
	{"poll_update_validation_task", "", `{"worker_id":"w1","timeout_seconds":0}`},
	{"poll_tasks", "", `{"worker_id":"w1","timeout_seconds":0}`},
	{"claim_workflow_task", "{task}=none", `{"worker_id":"w1"}`},
	{"claim_activity_task", "{task}=none", `{"lease_owner":"w1"}`},
	{"workflow_task_history", "", `{"lease_owner":"w1","workflow_task_attempt":1}`},
	{"heartbeat_workflow_task", "", `{"lease_owner":"w1","workflow_task_attempt":1}`},
	{
		"complete_workflow_task", "",
		`{"lease_owner":"w1","workflow_task_attempt":1,"commands":[{"type":"start_timer","delay_seconds":60}]}`,
	},
	{"activity_task_status", "{task}=ACTIVITY", `{"lease_owner":"w1","activity_attempt_id":"ATTEMPT"}`},
	{"heartbeat_activity_task", "{task}=ACTIVITY", `{"lease_owner":"w1","attempt_id":"ATTEMPT"}`},
	{"fail_activity_task", "{task}=ACTIVITY", `{"lease_owner":"w1","activity_attempt_id":"ATTEMPT","failure":"f"}`},
	{"complete_activity_task", "{task}=ACTIVITY", `{"lease_owner":"w1","activity_attempt_id":"ATTEMPT"}`},
	{
		"complete_tasks", "",
		`{"items":[{"task_id":"none","lease_owner":"w1"}],"next":{"worker_id":"w1","timeout_seconds":0}}`,
	},
	{
		"record_logs", "",
		`{"items":[{"task_id":"none","lease_owner":"w1","activity_attempt_id":"none-1","part":1,"lines":[{"text":"t"}]}]}`,
	},
	{"create_worker_session", "", `{"worker_id":"w1","session_id":"sn2"}`},
	{"heartbeat_worker_session", "{session}=sn2", `{"worker_id":"w1"}`},
	{"release_worker_session", "{session}=sn2", `{"worker_id":"w1"}`},
	{"start", "", `{"workflow_type":"wf"}`},
	{"signal", "{workflow}=open {name}=s", `{}`},
	{"update", "{workflow}=open {name}=u", `{}`},
	{"cancel", "{workflow}=none", `{}`},
	{"terminate_run", "{workflow}=none {run}=none", `{}`},
	{"create_namespace", "", `{"name":"ns2"}`},
	{"update_namespace", "{namespace}=ns2", `{}`},
	{"create_schedule", "", `{"spec":{"intervals":[{"every":"PT1H"}]},"action":{"workflow_type":"wf"}}`},
	{"create_schedule", "", `{"spec":{"intervals":[{"every":"PT1H"}]},"action":{"activity_type":"a","start_to_close_timeout":60}}`},
	{"pause_schedule", "{schedule}=s1", `{}`},
	{"trigger_schedule", "{schedule}=s1", `{}`},
	{"backfill_schedule", "{schedule}=s1", `{"start_time":"2026-01-01T00:00:00Z","end_time":"2026-01-01T00:00:00Z"}`},
	{"create_search_attribute", "", `{"name":"A","type":"int"}`},
	{"drain_task_queue_build_id", "{queue}=q9", `{"build_id":null}`},
	{"set_task_queue_limits", "{queue}=q9", `{"workflow_tasks":{"max_active_leases":1}}`},
	{"set_namespace_limits", "{namespace}=ns2", `{"activity_tasks":{"max_active_leases":1}}`},
	{"create_token", "", `{"roles":["viewer"]}`},
	{"sign_in", "", `{"token":"` + pythonToken + `"}`},
	{"operator_close_session", "{session}=sn1", `{}`},
	{"operator_forget_session", "{session}=sn1", `{}`},
	{"activity_timeout_pass", "", `{}`},
	{"repair_pass", "", `{}`},
}

type operation struct {
	method, path string
	body         map[string]any // the schema
}

type description struct {
	doc        map[string]any
	operations map[string]operation
}

func described(t *testing.T) description {
	t.Helper()
	d := description{operations: map[string]operation{}}
	if err := json.Unmarshal(docs.OpenAPI, &d.doc); err != nil {
		t.Fatal(err)
	}
	for path, item := range d.doc["paths"].(map[string]any) {
		for method, v := range item.(map[string]any) {
			op := v.(map[string]any)
			o := operation{strings.ToUpper(method), path, nil}
			if b, ok := op["requestBody"].(map[string]any); ok {
				o.body = b["content"].(map[string]any)["application/json"].(map[string]any)["schema"].(map[string]any)
			}
			d.operations[op["operationId"].(string)] = o
		}
	}
	return d
}

func (d description) schema(s any) map[string]any {
	m, _ := s.(map[string]any)
	for _, branch := range append(listOf(m["anyOf"]), m["allOf"]) { // null, or a schema by its name
		if r, ok := branch.(map[string]any); ok && r["$ref"] != nil {
			m = r
		}
	}
	if r, ok := m["$ref"].(string); ok {
		return d.doc["components"].(map[string]any)["schemas"].(map[string]any)[strings.TrimPrefix(
			r, "#/components/schemas/",
		)].(map[string]any)
	}
	return m
}

func listOf(v any) []any { l, _ := v.([]any); return l }

// wrong is a body with one change that the description forbids.
type wrong struct {
	about   string
	missing bool // a missing member; the refusal may be about the object that it names
	body    any
}

// wrongs returns all invalid variants of a valid value. put returns the whole body with another value in its place.
func (d description) wrongs(at string, s map[string]any, value any, replace func(any) any) []wrong {
	var all []wrong
	add := func(field, about string, missing bool, v any) {
		all = append(all, wrong{field + " " + about, missing, replace(v)})
	}
	switch value := value.(type) {
	case []any:
		if len(value) > 0 {
			all = append(all, d.wrongs(at+".0", d.schema(s["items"]), value[0], func(v any) any { return replace([]any{v}) })...)
		}
	case map[string]any:
		if kinds, ok := s["discriminator"].(map[string]any); ok {
			s = d.schema(map[string]any{"$ref": kinds["mapping"].(map[string]any)[value["type"].(string)]})
		}
		field := func(name string) string { return strings.TrimPrefix(at+"."+name, ".") }
		for _, name := range listOf(s["required"]) {
			less := maps.Clone(value)
			delete(less, name.(string))
			add(field(name.(string)), "left out", true, less)
		}
		for _, group := range append(listOf(s["allOf"]), map[string]any{"anyOf": s["anyOf"]}) {
			less, names := maps.Clone(value), []string{}
			for _, one := range listOf(group.(map[string]any)["anyOf"]) {
				for _, name := range listOf(one.(map[string]any)["required"]) {
					names = append(names, name.(string))
					delete(less, name.(string))
				}
			}
			if len(names) > 0 {
				add("", "without any of "+strings.Join(names, ", "), true, less)
			}
		}
		members, _ := s["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			m := members[name].(map[string]any)
			other := func(v any) any {
				more := maps.Clone(value)
				more[name] = v
				return more
			}
			for about, v := range violations(m) {
				add(field(name), about, false, other(v))
			}
			if items, ok := m["items"].(map[string]any); ok {
				for about, v := range violations(items) {
					add(field(name), "with an item "+about, false, other([]any{v}))
				}
			}
			if inner, there := value[name]; there && name != "next" {
				all = append(all, d.wrongs(field(name), d.schema2(m), inner, func(v any) any { return replace(other(v)) })...)
			}
		}
	}
	return all
}

// schema2 is schema, but does not resolve the schema of a list.
func (d description) schema2(m map[string]any) map[string]any {
	if m["items"] != nil {
		return m
	}
	return d.schema(m)
}

// violations returns values that the limits of a member forbid.
func violations(s map[string]any) map[string]any {
	all := map[string]any{}
	if n, ok := s["minimum"].(float64); ok {
		all["too small"] = n - 1
	}
	if n, ok := s["maximum"].(float64); ok {
		all["too large"] = n + 1
	}
	if n, ok := s["maxLength"].(float64); ok {
		all["too long"] = strings.Repeat("x", int(n)+1)
	}
	if s["pattern"] != nil {
		all["of other letters"] = "/ \x7f/"
	}
	if s["enum"] != nil {
		all["none of the list"] = "novel"
	}
	if s["format"] == "date-time" {
		all["no time"] = "yesterday"
	}
	if n, ok := s["maxItems"].(float64); ok {
		all["with too many"] = slices.Repeat([]any{"x"}, int(n)+1)
		if items, _ := s["items"].(map[string]any); items["type"] == "integer" {
			all["with too many"] = slices.Repeat([]any{1}, int(n)+1)
		} else if items["type"] != "string" {
			all["with too many"] = slices.Repeat([]any{map[string]any{}}, int(n)+1)
		}
	}
	if n, _ := s["minItems"].(float64); n > 0 {
		all["empty"] = []any{}
	}
	return all
}

// The server enforces the API description and nothing more: it refuses a request with a missing or invalid member, and
// does not refuse the form of a request that has exactly the required members.
func TestServerRequiresTheMembersThatItsDescriptionRequires(t *testing.T) {
	a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) { o.NoAuth, o.Token = false, pythonToken }})
	c := client{t: t, url: a.URL()}.as(pythonToken)
	known := populate(t, c)
	activity, attempt := known["task"][0], known["activity_attempt_id"][0]
	task := leased(c, "limits")
	d := described(t)
	asked := 0
	for _, s := range sound {
		o, there := d.operations[s.operation]
		if !there {
			t.Errorf("no operation is called %s", s.operation)
			continue
		}
		path := strings.NewReplacer("ACTIVITY", activity).Replace(s.path)
		for pair := range strings.FieldsSeq(path) {
			name, value, _ := strings.Cut(pair, "=")
			o.path = strings.ReplaceAll(o.path, name, value)
		}
		o.path = strings.ReplaceAll(o.path, "{task}", task)
		asked += holdTo(t, c, d, o, s.operation, strings.ReplaceAll(s.body, "ATTEMPT", attempt))
	}
	if asked < 200 {
		t.Errorf("only %d wrong requests were made of the description", asked)
	}
}

// leased returns a workflow task that worker w1 holds.
func leased(c client, workflow string) (task string) {
	c.t.Helper()
	c.want(201, "POST", "/workflows", fmt.Sprintf(`{"workflow_id":%q,"workflow_type":"wf","task_queue":"q"}`, workflow))
	s := c.want(200, "POST", "/worker/workflow-tasks/poll", `{"worker_id":"w1","task_queue":"q","timeout_seconds":20}`)
	work, _ := s.body["task"].(map[string]any)
	task, _ = work["task_id"].(string)
	return task
}

// holdTo sends all invalid variants of a valid request, then the valid one, and returns the number of invalid variants.
func holdTo(t *testing.T, c client, d description, o operation, name, body string) int {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	list := d.wrongs("", o.body, v, func(v any) any { return v })
	for _, w := range list {
		raw, err := json.Marshal(w.body)
		if err != nil {
			t.Fatal(err)
		}
		s := c.call(o.method, o.path, string(raw))
		// a batch checks each item separately
		if items := listOf(s.body["items"]); s.status == http.StatusOK && len(items) == 1 {
			one, _ := items[0].(map[string]any)
			if one["error"] != nil || one["reason"] == "validation_failed" {
				continue
			}
		}
		if s.status == http.StatusOK && s.body["can_continue"] == false { // so a heartbeat is refused
			continue
		}
		if s.status < 400 || s.status >= 500 || !w.missing && s.status != 422 && s.status != 400 {
			t.Errorf("%s with %s: got %d %.300s", name, w.about, s.status, s.raw)
		}
	}
	if s := c.call(o.method, o.path, body); slices.Contains([]int{400, 412, 415, 422}, s.status) || s.status >= 500 {
		t.Errorf("%s with all that is needed is refused: %d %.300s", name, s.status, s.raw)
	}
	return len(list)
}

// commandValues returns a valid value for each member that some command requires.
func commandValues(entries payload.Payload) map[string]any {
	return map[string]any{
		"activity_type": "act", "delay_seconds": 60, "version": 1, "min_supported": 1, "max_supported": 1,
		"signal_name": "s", "workflow_id": "open", "target": 1, "change_id": "c", "message": "m", "workflow_type": "wf",
		"update_id": "none", "attributes": map[string]any{"A": 1}, "selection_group_id": "g", "member_base_sequence": 1,
		"member_size": 1,
		"session_id":  "sn", "entries": entries, "result": entries, "exception_type": "E",
		"outcome": "completed",
	}
}

// Each command is sent in a completion that is refused for one reason, or accepted.
func TestServerRequiresTheMembersOfEachCommand(t *testing.T) {
	a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) { o.NoAuth, o.Token = false, pythonToken }})
	c := client{t: t, url: a.URL()}.as(pythonToken)
	populate(t, c)
	entries, err := payload.FromJSON([]byte(`{"k":1}`))
	if err != nil {
		t.Fatal(err)
	}
	d := described(t)
	values := commandValues(entries)
	kinds := d.schema(map[string]any{"$ref": "#/components/schemas/CommandRequest"})["discriminator"]
	mapping := kinds.(map[string]any)["mapping"].(map[string]any)
	for _, command := range slices.Sorted(maps.Keys(mapping)) {
		t.Run(command, func(t *testing.T) {
			c := client{t: t, url: a.URL()}.as(pythonToken)
			s := d.schema(map[string]any{"$ref": mapping[command]})
			body := map[string]any{"type": command}
			names := listOf(s["required"])
			if s["anyOf"] != nil {
				names = append(names, "message")
			}
			for _, name := range names {
				if name != "type" {
					body[name.(string)] = values[name.(string)]
				}
			}
			if members := s["properties"].(map[string]any); members["retry_policy"] != nil {
				body["retry_policy"] = map[string]any{}
			}
			raw, err := json.Marshal(map[string]any{"lease_owner": "w1", "workflow_task_attempt": 1, "commands": []any{body}})
			if err != nil {
				t.Fatal(err)
			}
			o := d.operations["complete_workflow_task"]
			o.path = strings.ReplaceAll(o.path, "{task}", leased(c, command))
			if n := holdTo(t, c, d, o, command, string(raw)); n < 4 {
				t.Errorf("only %d wrong requests", n)
			}
		})
	}
}

// The test sends each member of each command with extreme texts and numbers. On both databases the app accepts the
// completion or rejects it with a 4xx status other than 409, never with 5xx. Error texts are always accepted.
func TestNoValueInACommandCausesAServerError(t *testing.T) {
	entries, err := payload.FromJSON([]byte(`{"k":1}`))
	if err != nil {
		t.Fatal(err)
	}
	const here = "@here@"
	texts := map[string]string{
		"NUL": `a\u0000b`, "invalid UTF-8": "a\xffb", "300 bytes": strings.Repeat("x", 300), "blank": "  ",
		"maximum": strings.Repeat("x", protocol.MaxName), "20 KB": strings.Repeat("x", 20_000),
	}
	most := protocol.MaxSeconds
	numbers := []string{"-1", "0", fmt.Sprint(most), fmt.Sprint(most + 1), fmt.Sprint(1 << 62)}
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := client{t: t, url: a.URL()}
		c.want(201, "POST", "/worker/register", `{"worker_id":"w1","task_queue":"q","supported_workflow_types":["wf"]}`)
		var task string
		var attempt any
		asked := 0
		try := func(about, command string, value string, taken bool) {
			for n := 0; task == ""; n++ {
				c.want(201, "POST", "/workflows", fmt.Sprintf(
					`{"workflow_type":"wf","task_queue":"q","workflow_id":"w%d-%d"}`, asked, n,
				))
				s := c.want(
					200, "POST", "/worker/workflow-tasks/poll", `{"worker_id":"w1","task_queue":"q","timeout_seconds":20}`,
				)
				work, _ := s.body["task"].(map[string]any)
				task, _ = work["task_id"].(string)
				attempt = work["workflow_task_attempt"]
			}
			body := fmt.Sprintf(`{"lease_owner":"w1","workflow_task_attempt":%v,"commands":[%s]}`, attempt, command)
			body = strings.ReplaceAll(body, `"`+here+`"`, value)
			s := c.call("POST", "/worker/workflow-tasks/"+task+"/complete", body)
			if asked++; s.status >= 500 || s.status == 409 || taken && s.status != 200 {
				t.Errorf("%s: %d %.300s", about, s.status, s.raw)
			}
			if s.status != 400 && s.status != 422 {
				task = ""
			}
		}
		of := map[string]map[string]bool{} // members by command; true: required
		members := map[string]reflect.StructField{}
		for _, f := range reflect.VisibleFields(reflect.TypeFor[protocol.Command]()) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			members[name] = f
			for command := range strings.FieldsSeq(f.Tag.Get("of")) {
				typ := strings.TrimRight(command, "!|")
				if of[typ] == nil {
					of[typ] = map[string]bool{}
				}
				if name != "" {
					of[typ][name] = command != typ
				}
			}
		}
		values := commandValues(entries)
		for _, typ := range slices.Sorted(maps.Keys(of)) {
			if strings.HasSuffix(typ, "_update") || typ == "cancel_selection_operation" {
				continue // their targets do not exist here; other commands have the same members
			}
			for _, name := range slices.Sorted(maps.Keys(of[typ])) {
				f := members[name]
				with := func(v any) string {
					command := map[string]any{"type": typ, name: v}
					for other, needed := range of[typ] {
						if needed && other != name && values[other] != nil {
							command[other] = values[other]
						}
					}
					raw, err := json.Marshal(command)
					if err != nil {
						t.Fatal(err)
					}
					return string(raw)
				}
				var command string
				kind := f.Type.Kind()
				switch {
				case name == "worker_session":
					for _, o := range reflect.VisibleFields(reflect.TypeFor[protocol.SessionOptions]()) {
						inner, _, _ := strings.Cut(o.Tag.Get("json"), ",")
						session := map[string]any{"session_id": "s", inner: here}
						if o.Type.Kind() == reflect.Slice {
							session[inner] = []any{here}
						}
						for about, text := range texts {
							try(typ+" worker_session."+inner+" "+about, with(session), `"`+text+`"`, false)
						}
						for _, n := range numbers {
							try(typ+" worker_session."+inner+" "+n, with(session), n, false)
						}
					}
					continue
				case name == "retry_policy":
					for about, text := range texts {
						policy := map[string]any{"max_attempts": 2, "non_retryable_error_types": []any{here}}
						try(typ+" retry_policy "+about, with(policy), `"`+text+`"`, false)
					}
					for _, n := range numbers {
						try(typ+" max_attempts "+n, with(map[string]any{"max_attempts": here}), n, false)
						try(typ+" backoff "+n, with(map[string]any{"max_attempts": 2, "backoff_seconds": []any{here}}), n, false)
					}
					continue
				case kind == reflect.Slice && f.Type.Elem().Kind() == reflect.String:
					command = with([]any{here})
				case kind == reflect.Bool, kind == reflect.Struct, kind == reflect.Slice && name != "exception":
					continue
				default:
					command = with(here)
				}
				for about, text := range texts {
					clean := f.Tag.Get("clean") != "" && about != "invalid UTF-8" && typ == "fail_workflow"
					try(typ+" "+name+" "+about, command, `"`+text+`"`, clean)
				}
				for _, n := range numbers {
					try(typ+" "+name+" "+n, command, n, false)
				}
			}
		}
		if asked < 700 {
			t.Errorf("only %d requests were made", asked)
		}
	})
}
