package httpjson

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// The body of a request must arrive within bodyTime plus one second for each bodyRate bytes of its Content-Length.
const (
	bodyTime = 30 * time.Second
	bodyRate = 256 << 10
	bodyMost = 64 << 20 // upper limit of the Content-Length in this sum
)

// BodyDeadline is middleware that sets a deadline for the body of every request. The deadline also applies if the
// handler does not read the body: net/http reads the rest of a body before it responds, so a caller that sends its body
// slowly would occupy its connection without limit. When the body has been read, the deadline is removed, so that the
// rest of the request, such as a long poll, is not limited.
func BodyDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
			control := http.NewResponseController(w)
			if control.SetReadDeadline(time.Now().
				Add(bodyTime+time.Duration(min(max(0, r.ContentLength), bodyMost)/bodyRate)*time.Second)) == nil {
				// net/http must keep the original body type in its own request: only then does it linger after a
				// response to an unread body, so that the caller receives the response.
				own := *r
				own.Body = &timed{ReadCloser: r.Body, control: control}
				r = &own
			}
		}
		next.ServeHTTP(w, r)
	})
}

// timed is a body with a deadline.
type timed struct {
	io.ReadCloser
	control *http.ResponseController
	removed bool
}

func (b *timed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && !b.removed {
		b.removed = true
		_ = b.control.SetReadDeadline(time.Time{}) // cannot fail: setting the deadline succeeded
	}
	return n, err
}
