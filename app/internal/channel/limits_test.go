package channel_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// beyond returns values, as JSON, that the tags of a member forbid, and values of other types.
func beyond(f reflect.StructField) (limits, types []string) {
	number := func(key string) (n int64, there bool) {
		text, there := f.Tag.Lookup(key)
		n, _ = strconv.ParseInt(text, 10, 64)
		return n, there
	}
	if n, there := number("maximum"); there {
		limits, types = append(limits, fmt.Sprint(n+1)), append(types, "1e30", "9223372036854775808", "0.5")
	}
	if n, there := number("minimum"); there {
		limits = append(limits, fmt.Sprint(n-1))
	}
	if n, there := number("maxLength"); there {
		limits = append(limits, strconv.Quote(strings.Repeat("x", int(n)+1)))
	}
	if n, there := number("maxItems"); there {
		limits = append(limits, "["+strings.TrimSuffix(strings.Repeat(`"x",`, int(n)+1), ",")+"]")
	}
	if n, there := number("each"); there {
		limits = append(limits, `["`+strings.Repeat("x", int(n)+1)+`"]`)
	}
	if _, there := f.Tag.Lookup("enum"); there {
		limits = append(limits, `"novel"`)
	}
	if len(limits) > 0 {
		types = append(types, `{"a":1}`, strings.Repeat("[", 600)+strings.Repeat("]", 600))
	}
	return limits, types
}

// refusals returns the errors that a worker gets over HTTP and over its socket.
func (p *peer) refusals(a *apptest.App, path, method, body string) (over string, socket *rpc.Error) {
	p.t.Helper()
	status, raw := p.post(a, path, body)
	var socketText struct{ Reason, Error string }
	if err := json.Unmarshal(raw, &socketText); err != nil {
		p.t.Fatal(err)
	}
	if err := p.Call(within(p.t), method, json.RawMessage(body), nil); !errors.As(err, &socket) {
		p.t.Errorf("%s %.100s: over the socket %v", method, body, err)
		socket = &rpc.Error{}
	}
	return fmt.Sprint(status, " ", socketText.Reason, ": ", socketText.Error), socket
}

// post sends a request of the worker protocol over HTTP.
func (p *peer) post(a *apptest.App, path, body string) (status int, raw []byte) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(within(p.t), http.MethodPost, a.URL()+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(protocol.HeaderWorkerVersion, protocol.WorkerVersion)
	s, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer s.Body.Close()
	if raw, err = io.ReadAll(s.Body); err != nil {
		p.t.Fatal(err)
	}
	return s.StatusCode, raw
}

// If a JSON object repeats a member, the last value counts on both transports, and no part of the first value enters
// the decision.
func TestLastOfRepeatedMembersCounts(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	s := scheduler(t, a)
	const first, last = `"commands":[{"type":"schedule_activity","activity_type":"first","priority":3}]`,
		`"commands":[{"type":"schedule_activity","activity_type":"first","activity_type":"last"}]`
	for _, door := range []string{"HTTP", "a socket"} {
		started, err := a.Broker().Start(within(t), protocol.StartRequest{WorkflowType: "one"})
		if err != nil {
			t.Fatal(err)
		}
		j := s.job(nil)
		if door == "HTTP" {
			if status, raw := s.post(a, "/api/worker/workflow-tasks/"+j.ID+"/complete",
				`{"lease_owner":"nobody","lease_owner":"scheduler","workflow_task_attempt":1,`+first+`,`+last+`}`); status != 200 {
				t.Fatalf("%d %s", status, raw)
			}
		} else {
			s.ok(j, json.RawMessage(`{`+first+`,`+last+`}`))
		}
		if e := has[*history.ActivityScheduled](t, a, started.RunID); e.ActivityType != "last" || e.Priority == 3 {
			t.Errorf("over %s: %+v", door, e)
		}
	}
}

// The limits of members and their errors are the same on both transports, including wrong types. A string that some
// databases cannot store is rejected before the store is called.
func TestLimitsAreThoseOfHTTP(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		w := join(t, a, "w", "test")
		call[protocol.RegisterResponse](w, protocol.MethodRegister, protocol.RegisterRequest{
			ActivityTypes: []string{"work"}, Capabilities: []string{"worker_sessions"},
		})
		call[protocol.SessionResponse](w, protocol.MethodCreateSession, map[string]any{"session_id": "held"})
		before, asked := a.Dump(), 0
		for _, c := range []struct {
			method, path, base string
			of                 any
		}{
			{protocol.MethodRegister, "register", `"worker_id":"w","task_queue":"q"`, protocol.RegisterRequest{}},
			{protocol.MethodHeartbeat, "heartbeat", `"worker_id":"w"`, protocol.WorkerHeartbeat{}},
			{protocol.MethodCreateSession, "sessions", `"worker_id":"w","session_id":"s"`, protocol.SessionCreate{}},
			{
				protocol.MethodHeartbeatSession, "sessions/held/heartbeat", `"worker_id":"w","session_id":"held"`,
				protocol.SessionVerb{},
			},
		} {
			for _, f := range reflect.VisibleFields(reflect.TypeOf(c.of)) {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				limits, types := beyond(f)
				if name == "worker_id" { // the connection determines the worker ID
					continue
				}
				body := func(v string) string { return "{" + c.base + `,"` + name + `":` + v + "}" }
				for _, v := range append(limits, types...) {
					asked++
					over, socket := w.refusals(a, "/api/worker/"+c.path, c.method, body(v))
					socketText := fmt.Sprint(socket.Status, " ", socket.Code, ": ", socket.Message)
					if socketText != over || !strings.HasPrefix(over, "422 ") {
						t.Errorf("%s of %s as %.40s:\nover HTTP     %s\nover a socket %s", name, c.method, v, over, socketText)
					}
				}
			}
		}
		if asked < 60 {
			t.Errorf("only %d requests were wrong", asked)
		}
		for method, body := range map[string]string{
			protocol.MethodRegister:         `{"supported_activity_types":["a\u0000b"]}`,
			protocol.MethodCreateSession:    `{"session_id":"a\u0000b"}`,
			protocol.MethodHeartbeatSession: `{"session_id":"a\u0000b"}`,
			protocol.MethodPoll:             `{"queues":["a\u0000b"]}`,
			protocol.MethodCompleteJob:      `{"jobId":"j-1","token":"a1.w","status":"OK","response":{"commands":[{"type":"a\u0000"}]}}`,
		} {
			reason := "validation_failed"
			if method == protocol.MethodCreateSession {
				reason = "invalid_worker_session"
			}
			if e := w.refusal(reason, method, json.RawMessage(body)); !strings.Contains(e.Message, "NUL") {
				t.Errorf("%s: %v", method, e)
			}
		}
		if diff := before.Diff(a.Dump()); diff != "" {
			t.Errorf("that changed something:\n%s", diff)
		}
	})
}

// The output of a failing program may contain bytes that no database can store: the report is stored without them.
func TestAReportLosesWhatCannotBeKept(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		s := scheduler(t, a)
		w := join(t, a, "w", "test")
		for _, socketText := range []string{
			`"errorMessage":"no\u0000t"`, `"response":{"failure":{"message":"no\u0000t"}}`,
			`"errorMessage":"not","lines":[{"part":1,"lines":[{"text":"a\u0000b"}]}]`,
		} {
			run := schedule(t, a, s, 1)
			j := w.job(nil)
			body := fmt.Sprintf(`{"jobId":%q,"token":%q,"status":"USER_FAILURE",%s}`, j.ID, j.Token, socketText)
			call[any](w, protocol.MethodCompleteJob, json.RawMessage(body))
			if e := has[*history.ActivityFailed](t, a, run); e.Message != "not" {
				t.Errorf("%s is kept as %q", socketText, e.Message)
			}
			s.ok(s.job(nil), map[string]any{"commands": []protocol.Command{{Type: protocol.CompleteWorkflow}}})
		}
	})
}
