package web

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

var script = strings.Repeat("console.log('stay');\n", 200)

func built() http.Handler {
	return serve(fstest.MapFS{
		".gitkeep":             {Data: []byte("kept")},
		"index.html":           {Data: []byte("<!doctype html><title>page</title>")},
		"favicon.svg":          {Data: []byte("<svg/>")},
		"assets/main-8f3a1.js": {Data: []byte(script)},
	}, nil)
}

func get(t *testing.T, h http.Handler, method, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRoutesOfThePageAreAnsweredWithTheIndex(t *testing.T) {
	h := built()
	for _, path := range []string{"/", "/runs/01J9.x", "/sessions/a.b.c", "/workers", "/index.html"} {
		res := get(t, h, "GET", path)
		if body := text(t, res.Body); res.StatusCode != 200 || !strings.Contains(body, "<title>page</title>") {
			t.Errorf("GET %s: %d %q, want the index", path, res.StatusCode, body)
		}
		if got := res.Header.Get("Cache-Control"); got != "no-cache" {
			t.Errorf("GET %s: Cache-Control %q, want no-cache", path, got)
		}
		if got := res.Header.Get("Content-Security-Policy"); !strings.Contains(got, "script-src 'self'") {
			t.Errorf("GET %s: Content-Security-Policy %q", path, got)
		}
	}
}

func TestAFileThatDoesNotExistIsNotTheIndex(t *testing.T) {
	for _, path := range []string{"/assets/old-1234.js", "/robots.txt", "/.gitkeep", "/assets/../.gitkeep"} {
		if res := get(t, built(), "GET", path); res.StatusCode != 404 {
			t.Errorf("GET %s: %d, want 404", path, res.StatusCode)
		}
	}
}

func TestHashedAssetsAreKeptForeverAndCompressed(t *testing.T) {
	res := get(t, built(), "GET", "/assets/main-8f3a1.js", "Accept-Encoding", "br, gzip;q=0.8")
	if got := res.Header.Get("Cache-Control"); !strings.Contains(got, "immutable") {
		t.Errorf("Cache-Control %q, want immutable", got)
	}
	if got := res.Header.Get("Content-Type"); got != "text/javascript; charset=utf-8" {
		t.Errorf("Content-Type %q", got)
	}
	if got := res.Header.Get("Content-Encoding"); got != "gzip" {
		t.Fatalf("Content-Encoding %q, want gzip", got)
	}
	z, err := gzip.NewReader(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := text(t, z); got != script {
		t.Errorf("unpacked body differs: %d bytes, want %d", len(got), len(script))
	}
	if plain := get(t, built(), "GET", "/assets/main-8f3a1.js", "Accept-Encoding", "gzip;q=0"); text(
		t, plain.Body,
	) != script {
		t.Error("a caller that refuses gzip got something else than the plain body")
	}
}

func TestUnchangedBodyIsNotModified(t *testing.T) {
	h := built()
	etag := get(t, h, "GET", "/").Header.Get("Etag")
	if etag == "" {
		t.Fatal("no Etag")
	}
	if res := get(t, h, "GET", "/", "If-None-Match", etag); res.StatusCode != 304 {
		t.Errorf("with its Etag: %d, want 304", res.StatusCode)
	}
	if res := get(t, h, "GET", "/", "If-None-Match", `"another"`); res.StatusCode != 200 {
		t.Errorf("with another Etag: %d, want 200", res.StatusCode)
	}
}

func TestOnlyReadingIsAllowed(t *testing.T) {
	if res := get(t, built(), "POST", "/"); res.StatusCode != 405 || res.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d Allow %q, want 405", res.StatusCode, res.Header.Get("Allow"))
	}
	res := get(t, built(), "HEAD", "/")
	if body := text(t, res.Body); res.StatusCode != 200 || body != "" || res.Header.Get("Content-Length") == "" {
		t.Errorf("HEAD: %d, body %q, length %q", res.StatusCode, body, res.Header.Get("Content-Length"))
	}
}

func TestPageWithoutADashboardExplainsHowToBuildIt(t *testing.T) {
	h := serve(fstest.MapFS{".gitkeep": {Data: []byte("kept")}}, nil)
	for _, path := range []string{"/", "/runs/abc"} {
		res := get(t, h, "GET", path)
		if body := text(t, res.Body); res.StatusCode != 200 || !strings.Contains(body, "make build") {
			t.Errorf("GET %s: %d, want the page that says how to build", path, res.StatusCode)
		}
	}
	if res := get(t, h, "GET", "/assets/main-8f3a1.js"); res.StatusCode != 404 {
		t.Errorf("an asset: %d, want 404", res.StatusCode)
	}
}

func TestTheBinaryAlwaysHasAPage(t *testing.T) {
	res := get(t, Handler(nil), "GET", "/")
	body := text(t, res.Body)
	if res.StatusCode != 200 || !strings.Contains(body, "<title>") {
		t.Fatalf("GET /: %d %q, want a page", res.StatusCode, body)
	}
	if mentions := strings.Contains(body, "make build"); mentions == Built() {
		t.Errorf("Built() is %v, but the page says how to build: %v", Built(), mentions)
	}
}

// With a path prefix, the page refers to its files and the API below the prefix. An invalid prefix in a request header
// is ignored.
func TestPageIsServedBelowAPrefix(t *testing.T) {
	h := serve(fstest.MapFS{"index.html": {Data: []byte(
		`<meta name="base-path" content="" /><script src="./assets/main.js"></script>`,
	)}}, nil)
	for prefix, want := range map[string]string{
		"": "", "/team/sojourn": "/team/sojourn", "/sojourn/": "/sojourn",
		`/"><script>`: "", "//evil.example": "", "https://evil.example": "", "/a b": "", "/../..%2f": "",
	} {
		for _, path := range []string{"/", "/runs/1"} {
			got := text(t, get(t, h, "GET", path, PrefixHeader, prefix).Body)
			page := `<meta name="base-path" content="` + want + `" /><script src="` + want + `/assets/main.js"></script>`
			if got != page {
				t.Errorf("GET %s below %q: %s", path, prefix, got)
			}
		}
	}
}

// Codec endpoints are the only other URLs to which the page may connect. A browser that has cached the page must not
// keep an earlier policy.
func TestThePageMayConnectToCodecEndpointsOnly(t *testing.T) {
	var urls []string
	h := serve(fstest.MapFS{"index.html": {Data: []byte("<!doctype html>")}, "theme.js": {Data: []byte("1")}},
		func(context.Context) []string { return urls })
	before := get(t, h, "GET", "/")
	if got := before.Header.Get("Content-Security-Policy"); !strings.Contains(got, "connect-src 'self'; ") {
		t.Errorf("without endpoints: %s", got)
	}
	urls = []string{"http://127.0.0.1:8090/decode", "https://codec.example.com/decode"}
	for _, header := range [][]string{nil, {PrefixHeader, "/sojourn"}, {"If-None-Match", before.Header.Get("Etag")}} {
		res := get(t, h, "GET", "/runs/1", header...)
		const want = "connect-src 'self' http://127.0.0.1:8090/decode https://codec.example.com/decode; "
		if got := res.Header.Get("Content-Security-Policy"); res.StatusCode != 200 || !strings.Contains(got, want) {
			t.Errorf("%v: %d, %s", header, res.StatusCode, got)
		}
	}
	if got := get(t, h, "GET", "/theme.js").Header.Get("Content-Security-Policy"); got != policy {
		t.Errorf("a script: %s", got)
	}
}
