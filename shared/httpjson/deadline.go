package httpjson

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// How long the body of a request may take to arrive: bodyTime, and a second more for every bodyRate bytes it says it
// has.
const (
	bodyTime = 30 * time.Second
	bodyRate = 256 << 10
	bodyMost = 64 << 20 // counted of what it says
)

// Bodies gives every request's body a deadline, whoever reads it, and also where nobody does: the server reads what is
// left of a body before it answers, and a caller that sends a byte now and then would hold its connection forever. The
// deadline is lifted when the body was read, so that what comes after it, such as a long poll, may take as long as it
// likes.
func Bodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
			control := http.NewResponseController(w)
			if control.SetReadDeadline(time.Now().
				Add(bodyTime+time.Duration(min(max(0, r.ContentLength), bodyMost)/bodyRate)*time.Second)) == nil {
				// The request the server knows keeps its body: it lingers after an answer to one that was not read to its end, for
				// the caller to get that answer, only where it knows the body's type.
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
	lifted  bool
}

func (b *timed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && !b.lifted {
		b.lifted = true
		_ = b.control.SetReadDeadline(time.Time{}) // it worked before
	}
	return n, err
}
