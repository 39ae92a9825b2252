package codec_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/codec"
	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/shared/payload"
)

const dashboard = "https://sojourn.example.com"

func endpoint(t *testing.T, list ...codec.Codec) *httptest.Server {
	t.Helper()
	h, err := codec.Endpoint(codec.EndpointOptions{
		Codecs: list, Origins: []string{dashboard}, Authorize: func(r *http.Request) error {
			if r.Header.Get("Authorization") != "Bearer viewer" {
				return errors.New("unknown viewer")
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

type request struct {
	method, body, token, origin, kind string
}

func send(t *testing.T, s *httptest.Server, in request) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), in.method, s.URL, strings.NewReader(in.body))
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]string{"Authorization": in.token, "Origin": in.origin, "Content-Type": in.kind} {
		if v != "" {
			r.Header.Set(name, v)
		}
	}
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

func TestAnEndpointDecodesPayloadsForAnAuthorizedViewer(t *testing.T) {
	secret := encrypt(t, key("a"))
	s := endpoint(t, codec.Compress(0), secret)
	p, err := codecs.Chain{codec.Compress(1), secret}.EncodeArgs(args(t, strings.Repeat("letter ", 100), 7, []byte{1}))
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := codecs.Chain{encrypt(t, key("b"))}.EncodeValue(args(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(map[string]any{"payloads": []any{sealed(t, p), sealed(t, unknown), map[string]any{}}})
	if err != nil {
		t.Fatal(err)
	}
	const plain = "application/json"
	res, text := send(t, s, request{"POST", string(body), "Bearer viewer", dashboard, plain})
	want := `{"values":[{"value":["` + strings.Repeat("letter ", 100) + `",7,{"$type":"bytes","base64":"AQ=="}]},` +
		`{"error":"payload is encrypted with key \"b\"; configure the codec"},{"error":"the payload names no codec"}]}`
	if res.StatusCode != http.StatusOK || strings.TrimSpace(text) != want {
		t.Errorf("%d: %s\nwant %s", res.StatusCode, text, want)
	}
	if got := res.Header.Get("Access-Control-Allow-Origin"); got != dashboard {
		t.Errorf("allows the origin %q", got)
	}
	if res.Header.Get("Access-Control-Allow-Credentials") != "" || res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", res.Header)
	}
	for name, c := range map[string]struct {
		in   request
		want int
	}{
		"no token":          {request{"POST", string(body), "", "", plain}, 401},
		"wrong token":       {request{"POST", string(body), "Bearer other", dashboard, plain}, 401},
		"another origin":    {request{"POST", string(body), "Bearer viewer", "https://evil.example", plain}, 403},
		"command line":      {request{"POST", string(body), "Bearer viewer", "", plain}, 200},
		"form":              {request{"POST", string(body), "Bearer viewer", dashboard, "text/plain"}, 415},
		"no type":           {request{"POST", string(body), "Bearer viewer", dashboard, ""}, 415},
		"read":              {request{"GET", "", "Bearer viewer", dashboard, ""}, 405},
		"no JSON":           {request{"POST", "x", "Bearer viewer", dashboard, plain}, 400},
		"too large":         {request{"POST", strings.Repeat(" ", 9<<20), "Bearer viewer", dashboard, plain}, 413},
		"too many":          {request{"POST", many(1001), "Bearer viewer", dashboard, plain}, 400},
		"preflight":         {request{"OPTIONS", "", "", dashboard, ""}, 204},
		"another preflight": {request{"OPTIONS", "", "", "https://evil.example", ""}, 403},
	} {
		if res, text := send(t, s, c.in); res.StatusCode != c.want {
			t.Errorf("%s: %d %s", name, res.StatusCode, text)
		}
	}
}

func many(n int) string { return `{"payloads":[{}` + strings.Repeat(`,{}`, n-1) + `]}` }

func TestAnEndpointNeedsCodecsAndAuthorization(t *testing.T) {
	allow := func(*http.Request) error { return nil }
	list := []codec.Codec{codec.Compress(0)}
	for name, o := range map[string]codec.EndpointOptions{
		"no codecs": {Authorize: allow}, "no authorization": {Codecs: list},
		"an origin with a path": {Codecs: list, Authorize: allow, Origins: []string{"https://a.example/"}},
		"every origin":          {Codecs: list, Authorize: allow, Origins: []string{"*"}},
	} {
		if _, err := codec.Endpoint(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A small payload can decompress to 12 MiB. Without a limit, 1000 payloads of a few kilobytes would need the memory of
// the endpoint's process.
func TestTheValuesOfARequestAreBounded(t *testing.T) {
	c := codec.Compress(0)
	s := endpoint(t, c)
	p, err := payload.EncodeUpTo(payload.MaxDecodedBytes, strings.Repeat("a", 10<<20))
	if err == nil {
		p, err = codecs.Chain{c}.EncodeValue(p)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Blob) > 8<<10 {
		t.Fatalf("the payload has %d bytes", len(p.Blob))
	}
	body, err := json.Marshal(map[string]any{"payloads": slices.Repeat([]any{sealed(t, p)}, 20)})
	if err != nil {
		t.Fatal(err)
	}
	res, text := send(t, s, request{"POST", string(body), "Bearer viewer", dashboard, "application/json"})
	var out struct {
		Values []struct{ Value, Error string }
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil || len(out.Values) != 20 {
		t.Fatalf("%d, %d values, %v", res.StatusCode, len(out.Values), err)
	}
	for i, v := range out.Values {
		if i < 3 && len(v.Value) != 10<<20 || i >= 3 && v.Error != "the values of the request have more than 32 MiB" {
			t.Errorf("value %d: %d bytes, error %q", i, len(v.Value), v.Error)
		}
	}
}
