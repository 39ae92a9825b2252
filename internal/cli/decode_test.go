package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/sojourn-run/sojourn/codec"
	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// The command line sends a codec endpoint only payloads and the viewer's token for it.
func TestDescribeShowsValuesDecodedByTheCodecEndpoint(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	secret, err := codec.Encrypt(codec.Key{ID: "k1", Secret: bytes.Repeat([]byte{1}, codec.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := payload.EncodeArgs("Ada")
	if err == nil {
		p, err = codecs.Chain{secret}.EncodeArgs(p)
	}
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	s.try(0, "", "workflow", "start", "tour.greeting", "--id", "sealed", "--input", string(envelope))
	s.try(0, `"key_id":"k1"`, "workflow", "describe", "sealed")
	decodes, err := codec.Endpoint(codec.EndpointOptions{
		Codecs: []codec.Codec{secret}, Authorize: func(r *http.Request) error {
			if r.Header.Get("Authorization") != "Bearer viewer" {
				return errors.New("unknown viewer")
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []http.Header
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.Header.Clone())
		mu.Unlock()
		decodes.ServeHTTP(w, r)
	}))
	defer endpoint.Close()
	s.try(1, "codec_endpoint", "namespaces", "update", "default", "--codec-endpoint", "http://codec.example.com/decode")
	s.try(0, "updated default", "namespaces", "update", "default", "--codec-endpoint", endpoint.URL+"/decode")
	s.try(0, endpoint.URL+"/decode", "namespaces", "describe", "default")
	s.try(0, `"key_id":"k1"`, "workflow", "describe", "sealed") // without the viewer's token
	s.env["SOJOURN_TOKEN"], s.env["SOJOURN_CODEC_TOKEN"] = "token-of-sojourn-0123456789", "viewer"
	// An administrator of the app, who may change the endpoint, does not receive the viewer's token.
	s.env["SOJOURN_CODEC_ENDPOINT"] = "https://codec.example.com/decode"
	s.try(0, `"key_id":"k1"`, "workflow", "describe", "sealed")
	s.env["SOJOURN_CODEC_ENDPOINT"] = endpoint.URL + "/decode"
	s.try(0, `["Ada"]`, "workflow", "describe", "sealed")
	if out := s.try(0, `"key_id"`, "workflow", "describe", "sealed", "--json"); strings.Contains(out, "Ada") {
		t.Errorf("--json prints a decoded value: %s", out)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 2 {
		t.Errorf("%d requests to the endpoint, want 2", len(seen))
	}
	for _, h := range seen {
		for name, values := range h {
			if strings.Contains(strings.Join(values, " "), "token-of-sojourn") || name == "Cookie" ||
				strings.HasPrefix(name, "X-") {
				t.Errorf("the endpoint received %s: %s", name, values)
			}
		}
	}
}
