package apptest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/internal/httpapi"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
)

// client calls an app with the headers of a valid request, which header overrides.
type client struct {
	t      testing.TB
	url    string
	header map[string]string // overrides; empty: the header is omitted
}

// with returns the client with one header changed.
func (c client) with(name, value string) client {
	h := map[string]string{name: value}
	for k, v := range c.header {
		if k != name {
			h[k] = v
		}
	}
	c.header = h
	return c
}

// as returns the client with a token.
func (c client) as(token string) client { return c.with("Authorization", "Bearer "+token) }

// call sends a request below /api, or to an absolute path.
func (c client) call(method, path, body string) response {
	c.t.Helper()
	if strings.HasPrefix(path, "/") && path != "/metrics" && !strings.HasPrefix(path, "/api/") {
		path = "/api" + path
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(path, "/api/worker/") {
		r.Header.Set(workerapi.VersionHeader, workerapi.Version)
	} else {
		r.Header.Set(httpapi.VersionHeader, httpapi.Version)
	}
	for name, value := range c.header {
		if r.Header.Set(name, value); value == "" {
			r.Header.Del(name)
		}
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	s := response{status: res.StatusCode, raw: string(raw), header: res.Header}
	_ = json.Unmarshal(raw, &s.body) // some responses are not JSON
	return s
}

// want is call for a request that must return the given status.
func (c client) want(status int, method, path, body string) response {
	c.t.Helper()
	s := c.call(method, path, body)
	if s.status != status {
		c.t.Fatalf("%s %s %.200s: got %d %.600s, want %d", method, path, body, s.status, s.raw, status)
	}
	return s
}
