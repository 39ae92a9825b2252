package httpapi_test

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/httpapi"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func concrete(pattern string) string {
	for name, v := range map[string]string{
		"{workflow}": "order-1", "{run}": "r1", "{name}": "approve", "{worker}": "w", "{session}": "s", "{token}": "t",
		"{namespace}": "blue", "{schedule}": "nightly", "{queue}": "q", "{task}": "01", "{deployment}": "default%2Fq@b",
		"{deployment...}": "default/q@b",
	} {
		pattern = strings.ReplaceAll(pattern, name, v)
	}
	return pattern
}

func flow(pattern string) bool { return strings.HasPrefix(pattern, "/api/workflows") }

// wantPlane checks the control_plane object of an answer as clients do.
func wantPlane(t *testing.T, what string, rt serve.Route, s response) {
	t.Helper()
	p := s.plane()
	if p == nil {
		t.Errorf("%s: status %d without control_plane: %v", what, s.status, s.body)
		return
	}
	note, _ := p["contract"].(map[string]any)
	if p["schema"] != "durable-workflow.v2.control-plane-response" || p["version"] != 1.0 ||
		p["operation"] != rt.Operation || note["version"] != 1.0 ||
		note["schema"] == "" || s.header.Get(httpapi.VersionHeader) != "2" {
		t.Errorf("%s: %v", what, p)
	}
	if strings.Contains(rt.Pattern, "{workflow}") && p["workflow_id"] != "order-1" {
		t.Errorf("%s: workflow_id %v", what, p["workflow_id"])
	}
	if strings.Contains(rt.Pattern, "{run}") && p["run_id"] != "r1" {
		t.Errorf("%s: run_id %v", what, p["run_id"])
	}
	required, _ := note["required_fields"].([]any)
	for _, name := range required {
		if v, _ := p[name.(string)].(string); v == "" {
			t.Errorf("%s: control_plane has no %s", what, name)
		}
	}
	success, _ := note["success_fields"].([]any)
	for _, name := range success {
		if _, there := p[name.(string)]; !there && s.status < 400 {
			t.Errorf("%s: control_plane of a success has no %s", what, name)
		}
	}
	for _, name := range []string{"workflow_id", "run_id", "signal_name"} {
		b, inBody := s.body[name]
		if c, inPlane := p[name]; inBody && inPlane && b != c {
			t.Errorf("%s: %s is %v in the body and %v in control_plane", what, name, b, c)
		}
	}
	for _, legacy := range []string{"query", "signal", "update", "wait_policy"} {
		if _, there := s.body[legacy]; there {
			t.Errorf("%s: the body has the member %s of old", what, legacy)
		}
	}
}

func TestEveryRouteChecksInOrderAndRefusesInItsEnvelope(t *testing.T) {
	f := &fake{
		run:     protocol.RunView{WorkflowID: "order-1", RunID: "r1"},
		receipt: protocol.CommandReceipt{WorkflowID: "order-1", RunID: "r1"},
	}
	s := fakeServer(t, f, auth.Options{})
	for _, rt := range httpapi.Routes() {
		if rt.Open() {
			continue
		}
		path := concrete(rt.Pattern)
		name := rt.Method + " " + path
		try := func(what string, status int, reason protocol.Reason, body string, set map[string]string) {
			t.Helper()
			before := f.called()
			got := ask(t, s, rt.Method, path, body, set)
			if got.status != status || got.text("reason") != string(reason) || got.text("message") == "" {
				t.Errorf("%s: %s: got %d %v, want %d %s", name, what, got.status, got.body["reason"], status, reason)
			}
			if flow(rt.Pattern) {
				wantPlane(t, name+": "+what, rt, got)
			}
			if got.header.Get(httpapi.VersionHeader) != "2" {
				t.Errorf("%s: %s: the version is not echoed", name, what)
			}
			if f.called() != before {
				t.Errorf("%s: %s: the broker was called", name, what)
			}
		}
		wrong := map[string]string{"Authorization": "", httpapi.VersionHeader: "1", "X-Namespace": "a/b"}
		try("no token", 401, protocol.ReasonUnauthorized, "{", wrong)
		wrong["Authorization"] = "Bearer nonsense"
		try("no token of ours", 401, protocol.ReasonUnauthorized, "{", wrong)
		wrong["Authorization"] = "Bearer " + secret
		if !rt.Sojourn {
			try("another version", 400, protocol.ReasonUnsupportedControl, "{", wrong)
			wrong[httpapi.VersionHeader] = ""
			try("no version", 400, protocol.ReasonMissingControl, "{", wrong)
			wrong[httpapi.VersionHeader] = "2"
		}
		try("a namespace that is none", 422, protocol.ReasonValidation, "{", wrong)
		if rt.Method != http.MethodPost {
			continue
		}
		try("no JSON", 400, protocol.ReasonMalformedJSON, "{", nil)
		try("a list", 422, protocol.ReasonValidation, "[]", nil)
		try("not UTF-8", 400, protocol.ReasonMalformedJSON, "{\"a\":\"\xff\"}", nil)
		try("a form", 415, protocol.ReasonUnsupportedMediaType, "{}", map[string]string{"Content-Type": "text/plain"})
		if rt.Operation == "import" {
			continue // its bodies are large
		}
		try("too large", 413, protocol.ReasonPayloadTooLarge, `{"a":"`+strings.Repeat("x", 3<<20)+`"}`, nil)
	}
}

func TestRolesAreThoseOfTheTable(t *testing.T) {
	kept := map[string]store.Token{}
	for _, r := range auth.Roles {
		sum := sha256.Sum256([]byte("s"))
		kept[string(r)] = store.Token{ID: string(r), Hash: sum[:], Roles: []string{string(r)}}
	}
	s := fakeServer(t, &fake{}, auth.Options{Store: tokens{kept: kept}})
	for _, rt := range httpapi.Routes() {
		for _, role := range auth.Roles {
			got := ask(
				t, s, rt.Method, concrete(rt.Pattern), "", map[string]string{"Authorization": "Bearer sjn_" + string(role) + "_s"},
			)
			allowed := rt.Open() || slices.Contains(auth.Holders(rt.Roles), role)
			if allowed == (got.status == http.StatusForbidden) {
				t.Errorf("%s as %s: got %d", rt.Operation, role, got.status)
			}
			if !allowed && (got.text("role") != string(role) || got.body["allowed_roles"] == nil) {
				t.Errorf("%s as %s: %v", rt.Operation, role, got.body)
			}
		}
	}
}

// The table is checked against the rules, not against itself.
func TestEachRoleHasItsRoutes(t *testing.T) {
	for _, rt := range httpapi.Routes() {
		var want auth.Role
		switch {
		case strings.Contains(rt.Pattern, "/tokens"), rt.Operation == "remove_worker", rt.Operation == "import",
			rt.Method != http.MethodGet &&
				(strings.Contains(rt.Pattern, "/namespaces") || strings.Contains(rt.Pattern, "/system/")):
			want = auth.Admin
		case strings.HasPrefix(rt.Operation, "operator_"), rt.Operation == "list_audit", rt.Operation == "delete_run",
			rt.Method != http.MethodGet &&
				(strings.Contains(rt.Pattern, "/schedules") || strings.Contains(rt.Pattern, "/fleet/") ||
					strings.Contains(rt.Pattern, "/task-queues") || strings.Contains(rt.Pattern, "/pools") ||
					strings.Contains(rt.Pattern, "/deployments") || strings.Contains(rt.Pattern, "/search-attributes")):
			want = auth.Operator
		case rt.Open(), rt.Operation == "cluster_info", rt.Operation == "me":
			continue
		case rt.Method == http.MethodGet, rt.Operation == "query": // a query changes nothing
			want = auth.Viewer
		default:
			want = auth.Writer
		}
		roles := []auth.Role{want}
		if strings.HasSuffix(rt.Operation, "_awakeable") ||
			slices.Contains([]string{"complete_activity", "fail_activity", "heartbeat_activity"}, rt.Operation) {
			roles = append(roles, auth.Completer)
		}
		if !slices.Equal(rt.Roles, roles) {
			t.Errorf("%s %s: roles %v, want %v", rt.Method, rt.Pattern, rt.Roles, roles)
		}
		if (rt.Plane == serve.Own) != rt.Sojourn {
			t.Errorf("%s %s: plane %s, of ours %v", rt.Method, rt.Pattern, rt.Plane, rt.Sojourn)
		}
	}
}

func TestATokenOfOneNamespaceWorksOnlyThere(t *testing.T) {
	sum := sha256.Sum256([]byte("s"))
	f := &fake{}
	s := fakeServer(t, f, auth.Options{Store: tokens{kept: map[string]store.Token{
		"b": {ID: "b", Hash: sum[:], Roles: []string{"admin"}, Namespaces: []string{"blue"}},
	}}})
	for namespace, want := range map[string]int{"blue": 200, "": 403, "red": 403} {
		set := map[string]string{"Authorization": "Bearer sjn_b_s", "X-Namespace": namespace}
		if got := ask(t, s, "GET", "/api/workflows/x", "", set); got.status != want {
			t.Errorf("namespace %q: got %d", namespace, got.status)
		}
	}
	if got := last[protocol.Target](t, f); got.Namespace != "blue" || f.called() != 1 {
		t.Errorf("got %+v after %d calls", got, f.called())
	}
	set := map[string]string{"Authorization": "Bearer sjn_b_s", "X-Namespace": "blue"}
	if got := ask(t, s, "POST", "/api/workflows", `{"workflow_type":"w","namespace":"red"}`, set); got.status != 422 ||
		f.called() != 1 {
		t.Errorf("another namespace in the body: got %d", got.status)
	}
	// The routes of identity and access also work without a namespace: a page calls them before it knows one.
	for _, path := range []string{"/api/sojourn/me", "/api/namespaces", "/api/cluster/info"} {
		for namespace, want := range map[string]int{"": 200, "blue": 200, "red": 403} {
			set := map[string]string{"Authorization": "Bearer sjn_b_s", "X-Namespace": namespace}
			if got := ask(t, s, "GET", path, "", set); got.status != want {
				t.Errorf("%s in namespace %q: got %d", path, namespace, got.status)
			}
		}
	}
}

// Namespace routes act on the namespace in their path, whatever namespace the request names: access is checked for the
// path.
func TestATokenReachesNoOtherNamespaceByAPath(t *testing.T) {
	sum := sha256.Sum256([]byte("s"))
	f := &fake{}
	s := fakeServer(t, f, auth.Options{Store: tokens{kept: map[string]store.Token{
		"b": {ID: "b", Hash: sum[:], Roles: []string{"admin"}, Namespaces: []string{"blue"}},
	}}})
	set := map[string]string{"Authorization": "Bearer sjn_b_s", "X-Namespace": "blue"}
	tried := 0
	for _, rt := range httpapi.Routes() {
		if !strings.HasPrefix(rt.Pattern, "/api/namespaces") || rt.Operation == "list_namespaces" {
			continue
		}
		tried++
		before := f.called()
		got := ask(
			t, s, rt.Method, strings.Replace(rt.Pattern, "{namespace}", "red", 1), `{"name":"red","retention_days":1}`, set,
		)
		if got.status != 403 || got.text("reason") != "forbidden" || f.called() != before {
			t.Errorf("%s: got %d %v after %d calls", rt.Operation, got.status, got.body, f.called()-before)
		}
		if got := ask(
			t, s, rt.Method, strings.Replace(rt.Pattern, "{namespace}", "blue", 1), `{"name":"blue","retention_days":1}`, set,
		); got.status >= 400 {
			t.Errorf("%s of its own: got %d %v", rt.Operation, got.status, got.body)
		}
	}
	if tried < 4 {
		t.Errorf("only %d routes speak of a namespace in their path or body", tried)
	}
}

func TestUnknownRoutesRespondInJSON(t *testing.T) {
	s := fakeServer(t, &fake{}, auth.Options{})
	for _, c := range []struct {
		method, path string
		want         int
		reason       protocol.Reason
		plane        bool
	}{
		{"GET", "/api", 404, protocol.ReasonNotFound, false},
		{"GET", "/api/nothing", 404, protocol.ReasonNotFound, false},
		{"GET", "/api/workflows/", 404, protocol.ReasonNotFound, true},
		{"GET", "/api/workflows/x/nothing", 404, protocol.ReasonNotFound, true},
		{"PUT", "/api/workflows/x", 405, protocol.ReasonMethodNotAllowed, true},
		{"GET", "/api//workflows", 404, protocol.ReasonNotFound, false},
		{"DELETE", "/api/tokens", 405, protocol.ReasonMethodNotAllowed, false},
		{"POST", "/healthz", 405, protocol.ReasonMethodNotAllowed, false},
		{"POST", "/api/workflows/x/signal/a%00b", 422, protocol.ReasonValidation, true},
		{"GET", "/api/workers/%FF", 422, protocol.ReasonValidation, false},
		{"GET", "/api/workflows?page_size=0", 422, protocol.ReasonValidation, true},
		{"GET", "/api/workflows?page_size=x", 422, protocol.ReasonValidation, true},
		{"GET", "/api/workflows?query=%00", 422, protocol.ReasonValidation, true},
		{"GET", "/api/audit?limit=1001", 422, protocol.ReasonValidation, false},
		{"GET", "/api/workflows/x/runs/r/history?wait_new_event=maybe", 422, protocol.ReasonValidation, true},
	} {
		got := ask(t, s, c.method, c.path, "", nil)
		if got.status != c.want || got.text("reason") != string(c.reason) || got.text("message") == "" ||
			(got.plane() != nil) != c.plane {
			t.Errorf("%s %s: got %d %s", c.method, c.path, got.status, got.raw)
		}
		if (c.want == 405) != (got.header.Get("Allow") != "") {
			t.Errorf("%s %s: Allow %q", c.method, c.path, got.header.Get("Allow"))
		}
	}
}

func TestErrorsOfTheBrokerKeepTheirReason(t *testing.T) {
	for _, c := range []struct {
		err     error
		status  int
		reason  protocol.Reason
		outcome string
	}{
		{
			protocol.Refuse(protocol.ReasonInstanceNotFound, "none"), 404, protocol.ReasonInstanceNotFound,
			"rejected_not_started",
		},
		{protocol.Refuse(protocol.ReasonRunNotActive, "closed"), 409, protocol.ReasonRunNotActive, "rejected_not_active"},
		{protocol.Refuse(protocol.ReasonHistoricalRun, "old"), 409, protocol.ReasonHistoricalRun, "rejected_not_current"},
		{
			protocol.Refuse(protocol.ReasonAlreadyStarted, "taken").With("outcome", "said"), 409, protocol.ReasonAlreadyStarted,
			"said",
		},
		{protocol.Invalid("input", "is wrong"), 422, protocol.ReasonValidation, "rejected_invalid_arguments"},
		{store.ErrUnavailable, 503, protocol.ReasonStoreUnavailable, "unknown"},
		{errors.New("open /var/secret: denied"), 500, protocol.ReasonInternal, ""},
	} {
		s := fakeServer(t, &fake{err: c.err}, auth.Options{})
		got := ask(t, s, "POST", "/api/workflows/order-1/signal/approve", `{}`, nil)
		p := got.plane()
		if got.status != c.status || got.text("reason") != string(c.reason) || p["reason"] != string(c.reason) ||
			got.text("outcome") != c.outcome {
			t.Errorf("%v: got %d %s", c.err, got.status, got.raw)
		}
		if p["operation"] != "signal" || p["operation_name"] != "approve" || p["operation_name_field"] != "signal_name" ||
			p["workflow_id"] != "order-1" ||
			c.status != 503 && (p["rejection_reason"] != string(c.reason) || p["command_status"] != "rejected") ||
			c.status == 503 && (p["rejection_reason"] != nil || p["command_status"] != "unknown" || p["outcome"] != "unknown") ||
			got.text("signal_name") != "approve" {
			t.Errorf("%v: control_plane %v", c.err, p)
		}
		if strings.Contains(string(got.raw), "secret") {
			t.Errorf("an internal error was told to the caller: %s", got.raw)
		}
	}
}

func TestPanicIsAnInternalErrorOfOneRequest(t *testing.T) {
	s := fakeServer(t, &fake{blow: true}, auth.Options{})
	for range 2 {
		got := ask(t, s, "GET", "/api/workflows/x", "", nil)
		if got.status != 500 || got.text("reason") != string(protocol.ReasonInternal) || got.plane() == nil {
			t.Errorf("got %d %s", got.status, got.raw)
		}
	}
}

// Every write of the control plane that the store could not confirm reports an unknown outcome, and a start names its
// workflow ID.
func TestWriteWithAnUnknownOutcomeIsNotRejected(t *testing.T) {
	s := fakeServer(t, &fake{err: store.ErrUnavailable}, auth.Options{})
	for _, rt := range httpapi.Routes() {
		if rt.Open() || strings.HasPrefix(rt.Pattern, "/api/worker/") || rt.Operation == "import" {
			// import needs a complete export as its body
			continue
		}
		body := ""
		if rt.Method != http.MethodGet {
			body = control
		}
		if rt.Operation == "create_token" { // which knows its members
			body = `{"name":"n","roles":["viewer"]}`
		}
		if rt.Operation == "set_session_pool" {
			body = `{"definition":"d","task_queue":"q","size":1}`
		}
		if rt.Operation == "create_batch_job" { // whose action is a text
			body = `{"query":"WorkflowType = 'x'","action":"cancel"}`
		}
		got := ask(t, s, rt.Method, concrete(rt.Pattern), body, nil)
		if got.status != 503 {
			if got.status >= 500 || rt.Method != http.MethodGet && got.status < 400 {
				t.Errorf("%s: got %d %s", rt.Operation, got.status, got.raw)
			}
			if got.status == 422 && rt.Method != http.MethodGet {
				t.Errorf("%s: the test has no body for it: %s", rt.Operation, got.raw)
			}
			continue
		}
		write := rt.Method != http.MethodGet
		if got.text("reason") != "store_unavailable" ||
			write != (got.text("outcome") == "unknown" && got.text("command_status") == "unknown") ||
			strings.Contains(string(got.raw), "rejected") {
			t.Errorf("%s: got %s", rt.Operation, got.raw)
		}
		if flow(rt.Pattern) && write && (got.plane()["command_status"] != "unknown" || got.plane()["outcome"] != "unknown") {
			t.Errorf("%s: control_plane %v", rt.Operation, got.plane())
		}
	}
	for member, want := range map[string]string{`"workflow_id":"order-7",`: "order-7", "": ""} {
		got := ask(t, s, "POST", "/api/workflows", `{`+member+`"workflow_type":"order"}`, nil)
		if id := got.text("workflow_id"); got.status != 503 || id == "" || want != "" && id != want ||
			got.plane()["workflow_id"] != id {
			t.Errorf("a start of %q: got %d %s", member, got.status, got.raw)
		}
	}
}

// control is a valid body for the writes of the control plane.
const control = `{"workflow_type":"order","name":"blue","type":"keyword","schedule_id":"nightly","spec":{"cron_expressions":["0 0 * * *"]},` +
	`"action":{"workflow_type":"order"},"start_time":"2030-01-01T00:00:00Z","end_time":"2030-01-02T00:00:00Z","build_id":"b","roles":["viewer"]}`
