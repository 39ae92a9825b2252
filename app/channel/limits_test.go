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
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/rpc"
)

// beyond are values, as JSON, that the tags of a member forbid, and some that are none of its type.
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

// refusals are what a worker is told over HTTP and over its socket.
func (p *peer) refusals(a *apptest.App, path, method, body string) (over string, socket *rpc.Error) {
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
	raw, err := io.ReadAll(s.Body)
	var said struct{ Reason, Error string }
	if err = errors.Join(err, json.Unmarshal(raw, &said)); err != nil {
		p.t.Fatal(err)
	}
	if err := p.Call(within(p.t), method, json.RawMessage(body), nil); !errors.As(err, &socket) {
		p.t.Errorf("%s %.100s: over the socket %v", method, body, err)
		socket = &rpc.Error{}
	}
	return fmt.Sprint(s.StatusCode, " ", said.Reason, ": ", said.Error), socket
}

// What a member may be is one thing at both doors, and refused in the same words. What is none of its type is refused
// at both. A string that not every database can keep is refused before one is asked.
func TestLimitsAreThoseOfHTTP(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		w := join(t, a, "w", "test")
		call[protocol.RegisterAnswer](w, protocol.MethodRegister, protocol.RegisterRequest{
			ActivityTypes: []string{"work"}, Capabilities: []string{"worker_sessions"},
		})
		call[protocol.SessionAnswer](w, protocol.MethodCreateSession, map[string]any{"session_id": "held"})
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
				if name == "worker_id" { // the connection says who it is
					continue
				}
				body := func(v string) string { return "{" + c.base + `,"` + name + `":` + v + "}" }
				for _, v := range limits {
					asked++
					over, socket := w.refusals(a, "/api/worker/"+c.path, c.method, body(v))
					if said := fmt.Sprint(socket.Status, " ", socket.Code, ": ", socket.Message); said != over {
						t.Errorf("%s of %s as %.40s:\nover HTTP     %s\nover a socket %s", name, c.method, v, over, said)
					}
				}
				for _, v := range types {
					asked++
					over, socket := w.refusals(a, "/api/worker/"+c.path, c.method, body(v))
					if !strings.HasPrefix(over, "422 ") || socket.Code != rpc.CodeMalformedPayload {
						t.Errorf("%s of %s as %.40s: %s, %v", name, c.method, v, over, socket)
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
			if e := w.refusal("validation_failed", method, json.RawMessage(body)); !strings.Contains(e.Message, "NUL") {
				t.Errorf("%s: %v", method, e)
			}
		}
		if diff := before.Diff(a.Dump()); diff != "" {
			t.Errorf("that changed something:\n%s", diff)
		}
	})
}

// What a failing program printed may hold what no database can keep: its report is taken without it.
func TestAReportLosesWhatCannotBeKept(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		s := scheduler(t, a)
		w := join(t, a, "w", "test")
		for _, said := range []string{
			`"errorMessage":"no\u0000t"`, `"response":{"failure":{"message":"no\u0000t"}}`,
			`"errorMessage":"not","lines":[{"part":1,"lines":[{"text":"a\u0000b"}]}]`,
		} {
			run := schedule(t, a, s, 1)
			j := w.job(nil)
			body := fmt.Sprintf(`{"jobId":%q,"token":%q,"status":"USER_FAILURE",%s}`, j.ID, j.Token, said)
			call[any](w, protocol.MethodCompleteJob, json.RawMessage(body))
			if e := has[*history.ActivityFailed](t, a, run); e.Message != "not" {
				t.Errorf("%s is kept as %q", said, e.Message)
			}
			s.ok(s.job(nil), map[string]any{"commands": []protocol.Command{{Type: protocol.CompleteWorkflow}}})
		}
	})
}
