package apptest_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/httpapi"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
	"github.com/sojourn-run/sojourn/app/server"
)

// metered is a body that counts the bytes read.
type metered struct {
	io.Reader
	read int
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.read += n
	return n, err
}

// Without a valid token the app reads no body, on any route and any path, except the body of a sign-in, up to 4 KiB.
func TestNoBodyIsReadWithoutAValidToken(t *testing.T) {
	p := apptest.OpenServer(t, "", server.Options{Release: "1", Token: admin, Dashboard: http.NotFoundHandler()})
	principal, err := p.Auth().Authenticate(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	viewer, err := p.Auth().Create(t.Context(), principal, auth.TokenRequest{Roles: []auth.Role{auth.Viewer}})
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20
	read := func(method, path, token string, length int64) (n, status int) {
		body := &metered{Reader: bytes.NewReader(bytes.Repeat([]byte{' '}, size))}
		r := httptest.NewRequestWithContext(t.Context(), method, path, body)
		r.ContentLength = length
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(httpapi.VersionHeader, httpapi.Version)
		r.Header.Set(workerapi.VersionHeader, workerapi.Version)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, r)
		return body.read, w.Code
	}
	for _, length := range []int64{size, -1} {
		for _, token := range []string{"", "wrong", "sjn_aaaa_wrong"} {
			for _, rt := range everyRoute() {
				most := 0
				if rt.Operation == "sign_in" {
					most = 4<<10 + 1 // the byte that is too many
				}
				if n, status := read(rt.Method, pathOf(rt.Pattern, nil), token, length); n > most {
					t.Errorf("%s %s with token %q: %d bytes read, status %d", rt.Method, rt.Pattern, token, n, status)
				}
			}
			for _, path := range []string{
				"/", "/nowhere", "/api", "/api/nowhere", "/api/worker/nowhere", "/api/socket.io/?EIO=4&transport=polling",
				"/api/socket.io/?EIO=4&transport=polling&sid=nobody",
			} {
				if n, status := read("POST", path, token, length); n > 0 {
					t.Errorf("%s with token %q: %d bytes read, status %d", path, token, n, status)
				}
			}
		}
		// With a valid token of another role the app reads no more of the body than without a token.
		for _, rt := range everyRoute() {
			n, status := read(rt.Method, pathOf(rt.Pattern, nil), viewer.Token, length)
			if status == http.StatusForbidden && n > 0 {
				t.Errorf("%s %s, which a viewer may not call: %d bytes read", rt.Method, rt.Pattern, n)
			}
		}
	}
	if n, status := read("POST", "/api/workflows", admin, -1); n == 0 {
		t.Errorf("the test reads nothing of a valid start either: status %d", status)
	}
}
