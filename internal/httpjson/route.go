package httpjson

import (
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Unrouted returns the status with which a mux would reject a request, and the allowed methods; status 0 means that a
// route exists. A path that the mux would redirect counts as unknown: no client uses it.
func Unrouted(mux *http.ServeMux, r *http.Request) (status int, allow string) {
	if p := r.URL.EscapedPath(); p != path.Clean(p) {
		return http.StatusNotFound, ""
	}
	h, pattern := mux.Handler(r)
	if pattern != "" {
		return 0, ""
	}
	probe := probe{header: http.Header{}, status: http.StatusOK}
	h.ServeHTTP(&probe, r)
	if probe.status != http.StatusMethodNotAllowed {
		return http.StatusNotFound, ""
	}
	return probe.status, probe.header.Get("Allow")
}

// NoRoute returns the refusal for a result of Unrouted and sets the Allow header.
func NoRoute(w http.ResponseWriter, r *http.Request, status int, allow string) error {
	if status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", allow)
		return protocol.Refuse(protocol.ReasonMethodNotAllowed, "method %s is not allowed for this route; use %s", r.Method, allow).
			With("allow", allow)
	}
	return protocol.Refuse(protocol.ReasonNotFound, "route not found: %s %.200s", r.Method, r.URL.Path)
}

// StatusHeaders sets the headers WWW-Authenticate and Retry-After where the status requires them.
func StatusHeaders(w http.ResponseWriter, status int) {
	switch status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
	}
}

// probe records the response of a mux that has no route.
type probe struct {
	header http.Header
	status int
}

func (p *probe) Header() http.Header         { return p.header }
func (p *probe) Write(b []byte) (int, error) { return len(b), nil }
func (p *probe) WriteHeader(status int)      { p.status = status }

// maxText is the maximum length of a value in a path or query.
const maxText = 4096

// CheckText refuses a value of a path or query that a text column cannot store: invalid UTF-8, a NUL, or more than
// maxText bytes.
func CheckText(field, value string) error {
	switch {
	case !utf8.ValidString(value):
		return protocol.Invalid(field, "is not valid UTF-8")
	case strings.ContainsRune(value, 0):
		return protocol.Invalid(field, "must not contain the NUL character")
	case len(value) > maxText:
		return protocol.Invalid(field, "is longer than %d bytes", maxText)
	}
	return nil
}

// CheckPath calls CheckText for every variable in the path of a request; pattern names the variables.
func CheckPath(r *http.Request, pattern string) error {
	for part := range strings.SplitSeq(pattern, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			name = strings.TrimSuffix(name, "}")
			if err := CheckText(name, r.PathValue(name)); err != nil {
				return err
			}
		}
	}
	return nil
}
