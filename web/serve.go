package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

const (
	// The page loads everything from its own origin: no inline scripts, no other hosts. 'self' includes its own
	// sockets.
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
		"manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
	// The fallback is one file and brings its style along.
	fallbackPolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

	immutable  = "public, max-age=31536000, immutable" // file names below assets/ contain a hash of the content
	revalidate = "no-cache"
	gzipFrom   = 1024 // bytes; compression of smaller files saves less than its header
)

// file is one servable body.
type file struct {
	body    []byte
	kind    string // media type
	cache   string
	policy  string
	etag    string
	gzipped func() []byte // made at the first request that wants it; nil when it saves nothing
}

func newFile(name string, body []byte, csp string) *file {
	f := &file{body: body, kind: mediaType(name), cache: revalidate, policy: csp}
	if strings.HasPrefix(name, "assets/") {
		f.cache = immutable
	}
	sum := sha256.Sum256(body)
	f.etag = `"` + hex.EncodeToString(sum[:12]) + `"`
	f.gzipped = sync.OnceValue(func() []byte { return squeeze(f.kind, body) })
	return f
}

// mediaType does not read the machine's MIME tables, so that the result is the same on every host.
func mediaType(name string) string {
	switch ext := path.Ext(name); ext {
	case ".js", ".mjs":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".json", ".map":
		return "application/json"
	default:
		if kind := mime.TypeByExtension(ext); kind != "" {
			return kind
		}
		return "application/octet-stream"
	}
}

func squeeze(kind string, body []byte) []byte {
	text := strings.HasPrefix(kind, "text/") || strings.HasPrefix(kind, "application/json") || kind == "image/svg+xml"
	if len(body) < gzipFrom || !text {
		return nil
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil
	}
	if _, err := w.Write(body); err != nil {
		return nil
	}
	if err := w.Close(); err != nil || b.Len() >= len(body) {
		return nil
	}
	return b.Bytes()
}

// PrefixHeader is the header with the path prefix under which browsers reach the app. A reverse proxy that strips the
// prefix sets it, and so does an app that is mounted below a path.
const PrefixHeader = "X-Forwarded-Prefix"

var prefixes = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)+$`)

// below returns the page for browsers that reach it under a prefix. Its asset URLs start with the prefix, because the
// page is served under every route.
func (f *file) below(prefix string) *file {
	if !prefixes.MatchString(prefix) {
		prefix = ""
	}
	body := bytes.ReplaceAll(f.body, []byte(`="./`), []byte(`="`+prefix+`/`))
	body = bytes.Replace(body, []byte(`name="base-path" content=""`), []byte(`name="base-path" content="`+prefix+`"`), 1)
	return newFile("index.html", body, f.policy)
}

// serve reads the files of dist once; they never change while the binary runs.
func serve(dist fs.FS, connections func(context.Context) []string) http.Handler {
	files := map[string]*file{}
	_ = fs.WalkDir(dist, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return nil
		}
		if body, err := fs.ReadFile(dist, name); err == nil {
			files[name] = newFile(name, body, policy)
		}
		return nil
	})
	page, ok := files["index.html"]
	if !ok {
		files, page = nil, newFile("index.html", fallback, fallbackPolicy)
	}
	delete(files, "index.html")
	root := page.below("")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		name := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
		f, ok := files[name]
		switch {
		case ok:
		case missing(name):
			http.NotFound(w, r)
			return
		case r.Header.Get(PrefixHeader) != "":
			f = page.below(strings.TrimSuffix(r.Header.Get(PrefixHeader), "/")).connecting(r, connections)
		default:
			f = root.connecting(r, connections)
		}
		f.write(w, r)
	})
}

// connecting returns the page with a policy that also allows connections to some URLs. The ETag depends on them, since
// a browser applies the policy of its cached response to a 304.
func (f *file) connecting(r *http.Request, connections func(context.Context) []string) *file {
	if connections == nil {
		return f
	}
	urls := connections(r.Context())
	if len(urls) == 0 {
		return f
	}
	allowed := strings.Join(urls, " ")
	sum := sha256.Sum256([]byte(f.etag + allowed))
	with := *f
	with.policy = strings.Replace(f.policy, "connect-src 'self'", "connect-src 'self' "+allowed, 1)
	with.etag = `"` + hex.EncodeToString(sum[:12]) + `"`
	return &with
}

// missing reports whether a name without a file is a missing file instead of a route of the dashboard. Identifiers may
// contain dots, so only names at the root and below assets/ count as files.
func missing(name string) bool {
	if strings.HasPrefix(name, "assets/") {
		return true
	}
	return !strings.Contains(name, "/") && path.Ext(name) != "" && path.Ext(name) != ".html"
}

func (f *file) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", f.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", f.cache)
	h.Set("Content-Type", f.kind)
	h.Set("Vary", "Accept-Encoding, "+PrefixHeader)
	etag, body := f.etag, f.body
	if small := f.gzipped(); small != nil && acceptsGzip(r) {
		etag, body = strings.TrimSuffix(etag, `"`)+`-gz"`, small
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Etag", etag)
	if strings.Contains(r.Header.Get("If-None-Match"), etag) {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // the browser may have disconnected
	}
}

func acceptsGzip(r *http.Request) bool {
	for _, part := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, q, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" && strings.ReplaceAll(q, " ", "") != "q=0" {
			return true
		}
	}
	return false
}
