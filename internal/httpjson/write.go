package httpjson

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/sojourn-run/sojourn/internal/rawjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// compressFrom is the minimum size of a compressed response, in bytes. A smaller response fits into the ten segments
// that a TCP server sends before it waits for an acknowledgement (RFC 6928), so compression would not
// reduce latency.
const compressFrom = 14 << 10

// These are values of headers that all responses share; net/http does not change them.
var (
	asJSON  = []string{"application/json"}
	noStore = []string{"no-store"}
	noSniff = []string{"nosniff"}
)

// writeTimeout is the maximum time in which a caller must read a response.
const writeTimeout = 30 * time.Second

var writers = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic("httpjson: " + err.Error())
	}
	return w
}}

// Encode returns v as JSON in the form of responses.
func Encode(v any) ([]byte, error) { return AppendValue(nil, v) }

// AppendValue appends v as JSON in the form of responses.
func AppendValue(out []byte, v any) ([]byte, error) { return rawjson.Append(out, v) }

// AppendText is like AppendValue, for a text.
func AppendText(out []byte, text string) ([]byte, error) {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return AppendValue(out, text)
		}
	}
	out = append(out, '"')
	out = append(out, text...)
	return append(out, '"'), nil
}

// Write sends body, which is JSON, compressed if it is large and the caller accepts gzip. An error means that the
// caller did not receive it.
func Write(w http.ResponseWriter, r *http.Request, status int, body []byte) error {
	h := w.Header()
	h["Content-Type"], h["Cache-Control"], h["X-Content-Type-Options"] = asJSON, noStore, noSniff
	if len(body) >= compressFrom {
		h.Add("Vary", "Accept-Encoding")
		if acceptsGzip(r) {
			h.Set("Content-Encoding", "gzip")
			body = compress(body)
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	control := http.NewResponseController(w)
	if control.SetWriteDeadline(time.Now().Add(writeTimeout)) == nil {
		defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	}
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := w.Write(body); err != nil {
		return err
	}
	if err := control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

func compress(body []byte) []byte {
	var b bytes.Buffer
	z := writers.Get().(*gzip.Writer)
	defer writers.Put(z)
	z.Reset(&b)
	_, _ = z.Write(body) // writing to a bytes.Buffer does not fail
	_ = z.Close()
	return b.Bytes()
}

func acceptsGzip(r *http.Request) bool {
	for _, line := range r.Header.Values("Accept-Encoding") {
		for part := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(strings.TrimSpace(part), ";")
			if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
				continue
			}
			q, found := strings.CutPrefix(strings.TrimSpace(params), "q=")
			if n, err := strconv.ParseFloat(q, 64); !found || err == nil && n > 0 {
				return true
			}
		}
	}
	return false
}

// Reopen removes the closing brace of a JSON object so that the caller can append further members and a brace. It
// changes the memory of the object, which the caller owns.
func Reopen(object []byte) []byte {
	end := len(object) - 1
	for end > 0 && object[end] != '}' {
		end--
	}
	object = bytes.TrimRight(object[:end], " \t\r\n")
	if len(object) > 0 && object[len(object)-1] != '{' {
		object = append(object, ',')
	}
	return object
}

// Append appends members to a JSON object. Each is a result of Member.
func Append(object []byte, members ...[]byte) []byte {
	end := len(object) - 1
	for end > 0 && object[end] != '}' {
		end--
	}
	out := object[:end:end]
	empty := len(bytes.TrimSpace(out)) <= 1
	for _, m := range members {
		if !empty {
			out = append(out, ',')
		}
		out, empty = append(out, m...), false
	}
	return append(out, '}')
}

// Member returns a member for Append: "name":value.
func Member(name string, value []byte) []byte {
	out := strconv.AppendQuote(nil, name)
	out = append(out, ':')
	return append(out, value...)
}

// Refusal returns an error as a refusal with a reason. An error without a reason is internal and its text is only
// logged. An exceeded deadline means that the server could not respond in time.
func Refusal(err error) *protocol.Error {
	var e *protocol.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return protocol.Refuse(protocol.ReasonStoreUnavailable, "the request timed out; try again")
	case errors.Is(err, context.Canceled):
		return protocol.Refuse(protocol.ReasonStoreUnavailable, "the client cancelled the request")
	}
	return protocol.Refuse(protocol.ReasonInternal, "internal error")
}

// Members returns the members of a refusal's response. Details are set first, so that they cannot replace reason and
// message.
func Members(e *protocol.Error) map[string]any {
	m := maps.Clone(e.Details)
	if m == nil {
		m = map[string]any{}
	}
	m["reason"], m["message"] = e.Reason, e.Message
	if len(e.Fields) > 0 {
		m["errors"], m["validation_errors"] = e.Fields, e.Fields
	}
	return m
}
