package httpjson_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// body has members of all kinds: embedded structs, lists, payloads and raw JSON.
type body struct {
	protocol.Target
	Name     string             `json:"name"`
	Count    int64              `json:"count"`
	Small    int8               `json:"small"`
	Rate     float64            `json:"rate"`
	Wait     *bool              `json:"wait"`
	Names    []string           `json:"names"`
	Commands []protocol.Command `json:"commands"`
	Any      json.RawMessage    `json:"any"`
	Failure  *protocol.Failure  `json:"failure"`
	Free     map[string]int     `json:"free"`
}

func TestDecodeErrorContainsThePathOfTheMember(t *testing.T) {
	for _, c := range []struct {
		body, field string
		reason      protocol.Reason
	}{
		{``, "", ""},
		{`  `, "", ""},
		{`{}`, "", ""},
		{`{"unknown":{"deep":[1,2]},"name":"n","count":9007199254740993}`, "", ""},
		{`{"count":null,"names":null,"wait":null,"commands":[{"arguments":null,"priority":null}]}`, "", ""},
		{`{"any":{"$":[1.5,"x"]}}`, "", ""},
		{`{`, "", protocol.ReasonMalformedJSON},
		{`{} {}`, "", protocol.ReasonMalformedJSON},
		{`{"name":"` + "\xff" + `"}`, "", protocol.ReasonMalformedJSON},
		{strings.Repeat("[", 20_000), "", protocol.ReasonMalformedJSON},
		{`[]`, "body", protocol.ReasonValidation},
		{`"x"`, "body", protocol.ReasonValidation},
		{`{"name":1}`, "name", protocol.ReasonValidation},
		{`{"workflow_id":{}}`, "workflow_id", protocol.ReasonValidation},
		{`{"count":"1"}`, "count", protocol.ReasonValidation},
		{`{"count":1.5}`, "count", protocol.ReasonValidation},
		{`{"count":1e40}`, "count", protocol.ReasonValidation},
		{`{"small":300}`, "small", protocol.ReasonValidation},
		{`{"rate":"fast"}`, "rate", protocol.ReasonValidation},
		{`{"wait":"yes"}`, "wait", protocol.ReasonValidation},
		{`{"names":"a"}`, "names", protocol.ReasonValidation},
		{`{"names":["a",2]}`, "names.1", protocol.ReasonValidation},
		{`{"free":{"activity":"two"}}`, "free.activity", protocol.ReasonValidation},
		{`{"commands":[{},{"type":7}]}`, "commands.1.type", protocol.ReasonValidation},
		{
			`{"commands":[{"retry_policy":{"max_attempts":"3"}}]}`, "commands.0.retry_policy.max_attempts",
			protocol.ReasonValidation,
		},
		{
			`{"commands":[{"worker_session":{"session_id":1}}]}`, "commands.0.worker_session.session_id",
			protocol.ReasonValidation,
		},
		{`{"commands":[{"arguments":[1]}]}`, "commands.0.arguments", protocol.ReasonValidation},
		{
			`{"commands":[{},{},{"arguments":{"codec":"json","blob":"eA=="}}]}`, "commands.2.arguments",
			protocol.ReasonUnsupportedCodec,
		},
		{`{"name":"a\u0000b"}`, "name", protocol.ReasonValidation},
		{`{"names":["ok","\u0000"]}`, "names.1", protocol.ReasonValidation},
		{`{"commands":[{"activity_type":"\u0000"}]}`, "commands.0.activity_type", protocol.ReasonValidation},
	} {
		var v body
		err := httpjson.Decode([]byte(c.body), &v)
		if got := protocol.ReasonOf(err); got != c.reason {
			t.Errorf("%.80s: got %v, want reason %q", c.body, err, c.reason)
			continue
		}
		e, _ := err.(*protocol.Error)
		switch {
		case c.reason == protocol.ReasonValidation:
			if got := slices.Collect(maps.Keys(e.Fields)); !slices.Equal(got, []string{c.field}) {
				t.Errorf("%.80s: got fields %q, want %q", c.body, got, c.field)
			}
		case c.reason == protocol.ReasonUnsupportedCodec && e.Details["field"] != c.field:
			t.Errorf("%.80s: got details %v, want field %q", c.body, e.Details, c.field)
		}
	}
}

func TestNULIsRemovedFromFailureReports(t *testing.T) {
	var v body
	if err := httpjson.Decode([]byte(`{"failure":{"message":"out\u0000put","stack_trace":"a\u0000"}}`), &v); err != nil {
		t.Fatal(err)
	}
	if v.Failure.Message != "output" || v.Failure.StackTrace != "a" {
		t.Errorf("got %+v", v.Failure)
	}
}

// endless is a body without a Content-Length.
type endless struct{ io.Reader }

func TestBodyMustBeJSONAndWithinTheLimit(t *testing.T) {
	const limit = 1000
	long := `{"name":"` + strings.Repeat("x", limit) + `"}`
	for _, c := range []struct {
		name, kind, encoding, body string
		chunked                    bool
		want                       protocol.Reason
	}{
		{"JSON", "application/json", "", `{"name":"n"}`, false, ""},
		{"with a charset", "application/json; charset=utf-8", "", `{}`, false, ""},
		{"a suffix", "application/problem+json", "", `{}`, false, ""},
		{"no body needs no type", "", "", ``, false, ""},
		{"chunked", "application/json", "identity", `{}`, true, ""},
		{"nothing, chunked", "", "", ``, true, ""},
		{"a form", "application/x-www-form-urlencoded", "", `{}`, false, protocol.ReasonUnsupportedMediaType},
		{"no type", "", "", `{}`, false, protocol.ReasonUnsupportedMediaType},
		{"no type, chunked", "", "", `{}`, true, protocol.ReasonUnsupportedMediaType},
		{"nonsense", "///", "", `{}`, false, protocol.ReasonUnsupportedMediaType},
		{"compressed", "application/json", "gzip", `{}`, false, protocol.ReasonUnsupportedMediaType},
		{"too large", "application/json", "", long, false, protocol.ReasonPayloadTooLarge},
		{"too large, chunked", "application/json", "", long, true, protocol.ReasonPayloadTooLarge},
	} {
		var from io.Reader = strings.NewReader(c.body)
		if c.chunked {
			from = endless{from}
		}
		r := httptest.NewRequest(http.MethodPost, "/", from)
		r.Header.Set("Content-Type", c.kind)
		r.Header.Set("Content-Encoding", c.encoding)
		var v body
		err := read(httptest.NewRecorder(), r, limit, &v)
		if got := protocol.ReasonOf(err); got != c.want {
			t.Errorf("%s: got %v, want reason %q", c.name, err, c.want)
		}
	}
}

func TestLargeResponsesAreCompressedIfAccepted(t *testing.T) {
	large := []byte(`{"text":"` + strings.Repeat("abc ", 4000) + `"}`)
	medium := []byte(`{"text":"` + strings.Repeat("abc ", 3000) + `"}`)
	for _, c := range []struct {
		accept string
		body   []byte
		want   bool
	}{
		{"gzip", large, true},
		{"deflate, gzip;q=0.5, br", large, true},
		{"GZIP", large, true},
		{"", large, false},
		{"gzip;q=0", large, false},
		{"br", large, false},
		{"gzip", medium, false},
		{"gzip", []byte(`{}`), false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", c.accept)
		w := httptest.NewRecorder()
		if err := httpjson.Write(w, r, http.StatusOK, c.body); err != nil {
			t.Fatal(err)
		}
		got := w.Body.Bytes()
		if packed := w.Header().Get("Content-Encoding") == "gzip"; packed != c.want {
			t.Errorf("%q, %d bytes: compressed %v", c.accept, len(c.body), packed)
		} else if packed {
			z, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			if got, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, c.body) {
			t.Errorf("%q: received the body %.60s", c.accept, got)
		}
	}
}

func TestAppendAddsMembersToAnyObject(t *testing.T) {
	m := httpjson.Member("b", []byte(`2`))
	for in, want := range map[string]string{
		`{}`: `{"b":2}`, `{"a":1}`: `{"a":1,"b":2}`, "{ \n}": `{"b":2}`, `{"a":{}}` + "\n": `{"a":{},"b":2}`,
	} {
		got := httpjson.Append([]byte(in), m)
		var a, b map[string]any
		if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(want), &b) != nil ||
			!maps.EqualFunc(a, b, func(x, y any) bool {
				p, _ := json.Marshal(x)
				q, _ := json.Marshal(y)
				return bytes.Equal(p, q)
			}) {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
	shared := []byte(`{"a":1}   room behind the object`)[:7]
	first := string(httpjson.Append(shared, m))
	if httpjson.Append(shared, httpjson.Member("c", []byte(`3`))); first != `{"a":1,"b":2}` ||
		string(shared) != `{"a":1}` {
		t.Errorf("Append overwrote the shared object: %s, %s", first, shared)
	}
}

func TestDetailsDoNotReplaceReasonAndMessage(t *testing.T) {
	e := protocol.Invalid("a", "is wrong").With("reason", "other").With("message", "other").With("limit", 3)
	m := httpjson.Members(e)
	if m["reason"] != protocol.ReasonValidation || m["message"] != e.Message || m["limit"] != 3 || m["errors"] == nil ||
		m["validation_errors"] == nil {
		t.Errorf("got %v", m)
	}
}

func TestUnknownRoutesAndMethodsHaveDifferentStatus(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/things/{id}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("DELETE /api/things/{id}", func(http.ResponseWriter, *http.Request) {})
	for _, c := range []struct {
		method, path string
		want         int
		allow        string
	}{
		{"GET", "/api/things/1", 0, ""},
		{"HEAD", "/api/things/1", 0, ""},
		{"GET", "/api/things/a%2Fb", 0, ""},
		{"GET", "/api/things/%2e%2e", 0, ""},
		{"POST", "/api/things/1", 405, "DELETE, GET, HEAD"},
		{"GET", "/api/things", 404, ""},
		{"GET", "/api/things/1/", 404, ""},
		{"GET", "/api//things/1", 404, ""},
		{"GET", "/api/x/../things/1", 404, ""},
	} {
		status, allow := httpjson.Unrouted(mux, httptest.NewRequest(c.method, c.path, nil))
		if status != c.want || allow != c.allow {
			t.Errorf("%s %s: got %d %q, want %d %q", c.method, c.path, status, allow, c.want, c.allow)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"commands":[{"type":"start_timer","delay_seconds":1,"arguments":{"codec":"avro","blob":"wwE="}}]}`, `{"names":[1]}`,
		`{"name":"\u0000"}`,
		`{"failure":{"message":"\u0000"}}`, `[`, `{"any":[[[]]]}`, `{"wait":{},"count":-1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var v body
		err := httpjson.Decode(raw, &v)
		if err != nil {
			e, ok := err.(*protocol.Error)
			if !ok {
				t.Fatalf("untyped error %v", err)
			}
			if s := e.Reason.Status(); s < 400 || s >= 500 {
				t.Fatalf("status %d for %v", s, err)
			}
			return
		}
		if strings.ContainsRune(v.Name, 0) || strings.ContainsRune(v.WorkflowID, 0) {
			t.Fatalf("the decoded value contains a NUL: %q", raw)
		}
	})
}

// read reads a request as the servers do.
func read(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	raw, err := httpjson.Body(w, r, limit)
	if err != nil {
		return err
	}
	return httpjson.Decode(raw, v)
}

func TestATextIsAppendedAsEncoded(t *testing.T) {
	for _, text := range []string{"", "order-1", `a"b\c`, "<&>", "é😀", "a\x00\n\x7f", "\u2028", "\xff"} {
		want, err := httpjson.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := httpjson.AppendText([]byte("x"), text); err != nil || string(got) != "x"+string(want) {
			t.Errorf("%q: got %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestAnObjectIsReopenedForFurtherMembers(t *testing.T) {
	for in, want := range map[string]string{
		`{}`: `{"b":2}`, `{"a":1}`: `{"a":1,"b":2}`, "{ \n}": `{"b":2}`, `{"a":{}}` + "\n": `{"a":{},"b":2}`,
	} {
		if got := append(httpjson.Reopen([]byte(in)), `"b":2}`...); string(got) != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}
