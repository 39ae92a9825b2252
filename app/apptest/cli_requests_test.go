package apptest_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/internal/httpapi"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
)

//go:embed testdata/cli_requests.json
var cliRequests []byte

// recorded is a request of the contract's command-line client, and what the client needs of the response.
type recorded struct {
	Operation, Method, Path string
	Body                    json.RawMessage
	Status                  int
	Members                 []string          // members that the response must have
	Save                    map[string]string // placeholder in later requests: member of this response, such as a.b
}

// W9: every request of the command-line client, in one sequence. The test client sends both version headers, worker
// protocol 1.0, with every request, and rejects a response without the version of its API.
func TestTheRequestsOfTheCommandLineClient(t *testing.T) {
	var list []recorded
	if err := json.Unmarshal(cliRequests, &list); err != nil {
		t.Fatal(err)
	}
	if len(list) < 60 {
		t.Fatalf("only %d requests", len(list))
	}
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		saved := map[string]string{}
		for _, r := range list {
			body := string(r.Body)
			for name, v := range saved {
				r.Path, body = strings.ReplaceAll(r.Path, "{"+name+"}", v), strings.ReplaceAll(body, "{"+name+"}", v)
			}
			got, header := send(t, a, r.Method, r.Path, body)
			if got.status != r.Status {
				t.Fatalf("%s: %s %s: got %d, want %d: %s", r.Operation, r.Method, r.Path, got.status, r.Status, got.brief())
			}
			for _, m := range r.Members {
				if _, ok := got.body[m]; !ok {
					t.Errorf("%s: the answer has no %s: %s", r.Operation, m, got.brief())
				}
			}
			if strings.HasPrefix(r.Path, "/worker/") {
				if v := header.Get(workerapi.VersionHeader); v == "" || v != got.text("protocol_version") {
					t.Errorf("%s: version %q in the header, %q in the body", r.Operation, v, got.text("protocol_version"))
				}
			} else if header.Get(httpapi.VersionHeader) != "2" {
				t.Errorf("%s: version %q in the header", r.Operation, header.Get(httpapi.VersionHeader))
			}
			for name, member := range r.Save {
				saved[name] = fmt.Sprint(at(got.body, member))
			}
		}
	})
}

// at returns a member of a response by a path like a.b.
func at(body map[string]any, member string) any {
	var v any = body
	for name := range strings.SplitSeq(member, ".") {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func send(t *testing.T, a *apptest.App, method, path, body string) (response, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, a.URL()+"/api"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json", "X-Namespace": "default",
		workerapi.VersionHeader: "1.0", httpapi.VersionHeader: "2",
	} {
		r.Header.Set(name, v)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	s := response{status: res.StatusCode, raw: string(raw)}
	if err := json.Unmarshal(raw, &s.body); err != nil {
		t.Fatalf("%s %s: %v in %.200q", method, path, err, raw)
	}
	return s, res.Header
}

// A run whose code does not match its history is quarantined and listed. A repair pass continues it.
func TestAStuckRunIsListedAndRepaired(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		w := register(c, "w", "")
		run := c.start("stuck-1")
		task := w.poll("workflow")
		c.want(
			200, "POST", flowPath(task, "fail"),
			w.flowBody(task, `,"failure":{"message":"replay failed: the code changed","type":"NonDeterminism"}`),
		)
		w.empty("workflow")
		s := c.want(200, "GET", "/api/system/repair", "")
		list, _ := s.body["candidates"].([]any)
		if len(list) != 1 || list[0].(map[string]any)["run_id"] != run || list[0].(map[string]any)["problem"] == "" {
			t.Fatalf("the stuck run is not listed: %s", s.brief())
		}
		s = c.want(200, "POST", "/api/system/repair/pass", `{"run_ids":["`+run+`","nobody's"]}`)
		if s.body["repaired"] != 1.0 || s.body["skipped"] != 1.0 || s.body["processed"] != 2.0 {
			t.Errorf("the pass: %s", s.brief())
		}
		w.decide(w.poll("workflow"), finish)
		if s = c.want(200, "POST", "/api/system/repair/pass", `{}`); s.body["processed"] != 0.0 {
			t.Errorf("a pass with nothing to do: %s", s.brief())
		}
		if s = c.want(200, "GET", "/api/system/activity-timeouts", ""); s.body["expired_count"] != 0.0 {
			t.Errorf("timeouts: %s", s.brief())
		}
	})
}
