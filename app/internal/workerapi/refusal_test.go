package workerapi_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// concrete replaces the placeholders of a pattern.
func concrete(pattern string) string {
	for _, name := range []string{"{worker}", "{task}", "{session}"} {
		pattern = strings.ReplaceAll(pattern, name, "x")
	}
	return pattern
}

// sample returns a valid body for each route.
func sample(rt serve.Route) string {
	switch {
	case rt.Method == http.MethodGet:
		return ""
	case strings.HasSuffix(rt.Operation, "session"):
		return `{"worker_id":"w","session_id":"x"}`
	case strings.HasPrefix(rt.Operation, "fail"):
		return `{"failure":{"message":"m"}}`
	case rt.Operation == "complete_tasks", rt.Operation == "record_logs":
		return `{"items":[{"task_id":"t"}]}`
	}
	return `{"worker_id":"w","task_queue":"q","timeout_seconds":0,"commands":[]}`
}

func wantEnvelope(t *testing.T, what string, s response) {
	t.Helper()
	if s.header.Get(workerapi.VersionHeader) != workerapi.Version || s.text("protocol_version") != workerapi.Version {
		t.Errorf(
			"%s: version %q in the header, %q in the body", what, s.header.Get(workerapi.VersionHeader),
			s.text("protocol_version"),
		)
	}
	if c, _ := s.body["server_capabilities"].(map[string]any); c["poll_status"] != true {
		t.Errorf("%s: server_capabilities %v", what, s.body["server_capabilities"])
	}
	if s.status >= 400 && (s.text("reason") == "" || s.text("error") == "" || s.text("message") == "") {
		t.Errorf("%s: status %d without reason, error and message: %v", what, s.status, s.body)
	}
}

func TestEveryRouteAnswersInTheEnvelopeAndChecksInOrder(t *testing.T) {
	f := &fake{}
	s := server(t, f, nil)
	for _, rt := range workerapi.Routes() {
		path, body := concrete(rt.Pattern), sample(rt)
		name := rt.Method + " " + path
		try := func(what string, status int, reason protocol.Reason, body string, set map[string]string) {
			t.Helper()
			before := f.called()
			got := ask(t, s, rt.Method, path, body, set)
			wantEnvelope(t, name+": "+what, got)
			if got.status != status || got.text("reason") != string(reason) {
				t.Errorf("%s: %s: got %d %v, want %d %s", name, what, got.status, got.body["reason"], status, reason)
			}
			if f.called() != before {
				t.Errorf("%s: %s: the broker was called", name, what)
			}
		}
		// In each request, everything that is checked later is invalid as well: the first error counts.
		wrong := map[string]string{"Authorization": "", workerapi.VersionHeader: "9.9", "X-Namespace": "a/b"}
		try("no token", 401, protocol.ReasonUnauthorized, "{", wrong)
		wrong["Authorization"] = "Bearer " + secret
		if !rt.Sojourn {
			try("a future version", 400, protocol.ReasonUnsupportedVersion, "{", wrong)
			wrong[workerapi.VersionHeader] = ""
			try("no version", 400, protocol.ReasonMissingVersion, "{", wrong)
			wrong[workerapi.VersionHeader] = "1.0"
		}
		try("a namespace that is none", 422, protocol.ReasonValidation, "{", wrong)
		if rt.Method == http.MethodGet || rt.Operation == "deregister" {
			continue
		}
		try("no JSON", 400, protocol.ReasonMalformedJSON, "{", nil)
		try("a list", 422, protocol.ReasonValidation, "[]", nil)
		try("a form", 415, protocol.ReasonUnsupportedMediaType, body, map[string]string{"Content-Type": "text/plain"})
	}
}

func TestVersionsOfTheSameMajorUpToOursAreAccepted(t *testing.T) {
	s := server(t, &fake{}, nil)
	for version, want := range map[string]int{
		"1.0": 200, "1.2": 200, "1.19": 200, "1.20": 200, " 1.8 ": 200, "1.21": 400, "2.0": 400, "0.9": 400, "1": 400,
		"1.": 400, "x": 400,
		"1.-1": 400, "1.2.3": 400, "1.99999999999999999999": 400,
	} {
		got := ask(
			t, s, "POST", "/api/worker/heartbeat", `{"worker_id":"w"}`, map[string]string{workerapi.VersionHeader: version},
		)
		if got.status != want {
			t.Errorf("version %q: got %d %v", version, got.status, got.body["reason"])
		}
		if want == 400 &&
			(got.text("supported_version") != "1.20" || got.text("requested_version") != strings.TrimSpace(version) ||
				got.text("remediation") == "") {
			t.Errorf("version %q: %v", version, got.body)
		}
	}
}

func TestRolesAreThoseOfTheTable(t *testing.T) {
	kept := map[string]store.Token{}
	for _, r := range auth.Roles {
		sum := sha256.Sum256([]byte("s"))
		kept[string(r)] = store.Token{ID: string(r), Hash: sum[:], Roles: []string{string(r)}}
	}
	s := server(t, &fake{}, kept)
	for _, rt := range workerapi.Routes() {
		for _, role := range auth.Roles {
			got := ask(
				t, s, rt.Method, concrete(rt.Pattern), sample(rt),
				map[string]string{"Authorization": "Bearer sjn_" + string(role) + "_s"},
			)
			allowed := slices.Contains(auth.Holders(rt.Roles), role)
			if allowed == (got.status == http.StatusForbidden) {
				t.Errorf("%s as %s: got %d", rt.Operation, role, got.status)
			}
			if !allowed && (got.text("role") != string(role) || got.body["allowed_roles"] == nil) {
				t.Errorf("%s as %s: %v", rt.Operation, role, got.body)
			}
		}
	}
}

func TestATokenOfSomeQueuesAndNamespacesWorksOnlyThere(t *testing.T) {
	sum := sha256.Sum256([]byte("s"))
	s := server(t, &fake{}, map[string]store.Token{
		"q": {ID: "q", Hash: sum[:], Roles: []string{"worker"}, Queues: []string{"q1"}, Namespaces: []string{"blue"}},
	})
	set := func(namespace string) map[string]string {
		return map[string]string{"Authorization": "Bearer sjn_q_s", "X-Namespace": namespace}
	}
	for _, c := range []struct {
		path, namespace, body string
		want                  int
	}{
		{"/register", "blue", `{"worker_id":"w","task_queue":"q1"}`, 201},
		{"/register", "red", `{"worker_id":"w","task_queue":"q1"}`, 403},
		{"/register", "", `{"worker_id":"w","task_queue":"q1"}`, 403},
		{"/register", "blue", `{"worker_id":"w","task_queue":"q2"}`, 403},
		{"/register", "blue", `{"worker_id":"w","task_queue":"q1","task_queues":["q2"]}`, 403},
		{"/register", "blue", `{"worker_id":"w","task_queue":"q1","namespace":"red"}`, 422},
		{"/workflow-tasks/poll", "blue", `{"worker_id":"w","task_queue":"q1"}`, 200},
		{"/workflow-tasks/poll", "blue", `{"worker_id":"w"}`, 403},
		{"/tasks/poll", "blue", `{"worker_id":"w","queues":["q1","q2"]}`, 403},
		{"/sessions", "blue", `{"worker_id":"w","session_id":"s","queue":"q2"}`, 403},
	} {
		if got := ask(t, s, "POST", "/api/worker"+c.path, c.body, set(c.namespace)); got.status != c.want {
			t.Errorf("%s %s in %q: got %d %v, want %d", c.path, c.body, c.namespace, got.status, got.body["error"], c.want)
		}
	}
}

func TestUnknownRoutesRespondInJSON(t *testing.T) {
	s := server(t, &fake{}, nil)
	got := ask(t, s, "GET", "/api/worker/nothing", "", map[string]string{"Content-Type": ""})
	wantEnvelope(t, "unknown", got)
	if got.status != 404 || got.text("reason") != string(protocol.ReasonNotFound) {
		t.Errorf("unknown route: %d %v", got.status, got.body)
	}
	got = ask(t, s, "GET", "/api/worker/register", "", nil)
	wantEnvelope(t, "wrong method", got)
	if got.status != 405 || got.text("reason") != string(protocol.ReasonMethodNotAllowed) ||
		got.header.Get("Allow") != "POST" {
		t.Errorf("wrong method: %d %v %q", got.status, got.body, got.header.Get("Allow"))
	}
	for _, id := range []string{"%FF", "a%00b", strings.Repeat("x", 5000)} {
		got := ask(t, s, "POST", "/api/worker/activity-tasks/"+id+"/complete", `{}`, nil)
		if got.status != 422 {
			t.Errorf("task id %.20s: got %d", id, got.status)
		}
	}
}

func TestAnIDInAPathArrivesAsItWasMeant(t *testing.T) {
	f := &fake{}
	s := server(t, f, nil)
	for _, id := range []string{"a/b", "ä ö", "..", "a%b", "a+b", "."} {
		ask(t, s, "DELETE", "/api/worker/registrations/"+strings.ReplaceAll(url.PathEscape(id), ".", "%2E"), "", nil)
		if got := last[protocol.DeregisterRequest](t, f); got.WorkerID != id {
			t.Errorf("id %q arrived as %q", id, got.WorkerID)
		}
	}
}

func TestTooLargeBodyIsRejected(t *testing.T) {
	f := &fake{}
	s := server(t, f, nil)
	large := `{"worker_id":"` + strings.Repeat("x", 3<<20) + `"}`
	got := ask(t, s, "POST", "/api/worker/heartbeat", large, nil)
	wantEnvelope(t, "too large", got)
	if got.status != 413 || got.body["limit"] != float64(2<<20) {
		t.Errorf("got %d %v", got.status, got.body)
	}
	if got := ask(
		t, s, "POST", "/api/worker/tasks/complete", `{"items":[{"task_id":"`+strings.Repeat("x", 3<<20)+`"}]}`, nil,
	); got.status != 200 {
		t.Errorf("a batch of 3 MiB: got %d %v", got.status, got.body["error"])
	}
	if got := ask(t, s, "POST", "/api/worker/heartbeat", `{"worker_id":"w"}`, nil); got.status != 200 {
		t.Errorf("afterwards: got %d", got.status)
	}
}

func TestErrorsOfTheBrokerKeepTheirReasonAndStatus(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		reason protocol.Reason
	}{
		{protocol.Refuse(protocol.ReasonLeaseExpired, "gone").With("lease_owner", "other"), 409, protocol.ReasonLeaseExpired},
		{protocol.Refuse(protocol.ReasonTaskNotFound, "none"), 404, protocol.ReasonTaskNotFound},
		{protocol.Invalid("commands.3.activity_type", "is missing"), 422, protocol.ReasonValidation},
		{store.ErrUnavailable, 503, protocol.ReasonBackendUnavailable},
		{store.ErrClosed, 503, protocol.ReasonBackendUnavailable},
		{context.DeadlineExceeded, 503, protocol.ReasonBackendUnavailable},
		{errors.New("disk on fire: /var/secret"), 500, protocol.ReasonInternal},
	} {
		f := &fake{complete: protocol.CompleteResponse{Err: c.err}}
		s := server(t, f, nil)
		got := ask(
			t, s, "POST", "/api/worker/workflow-tasks/r-1-workflow/complete",
			`{"lease_owner":"w","workflow_task_attempt":2,"commands":[]}`, nil,
		)
		wantEnvelope(t, c.err.Error(), got)
		if got.status != c.status || got.text("reason") != string(c.reason) {
			t.Errorf("%v: got %d %v", c.err, got.status, got.body["reason"])
		}
		if (got.body["recorded"] == false) != (c.status != 503) || got.text("task_id") != "r-1-workflow" ||
			got.body["workflow_task_attempt"] != 2.0 {
			t.Errorf("%v: which task it was is not said: %v", c.err, got.body)
		}
		if strings.Contains(got.text("error"), "secret") {
			t.Errorf("an internal error was told to the caller: %v", got.body)
		}
		if c.status == 503 && got.header.Get("Retry-After") == "" {
			t.Errorf("%v: no Retry-After", c.err)
		}
	}
}

func TestPanicIsAnInternalErrorOfOneRequest(t *testing.T) {
	f := &fake{poll: func(context.Context, protocol.PollRequest) (protocol.PollResponse, error) { panic("a bug") }}
	s := server(t, f, nil)
	for range 2 {
		got := ask(t, s, "POST", "/api/worker/activity-tasks/poll", `{"worker_id":"w"}`, nil)
		wantEnvelope(t, "panic", got)
		if got.status != 500 || got.text("reason") != string(protocol.ReasonInternal) {
			t.Errorf("got %d %v", got.status, got.body["reason"])
		}
	}
}
