// Package httpjson reads JSON request bodies and writes JSON responses, with typed errors for invalid input.
package httpjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/sojourn-run/sojourn/internal/rawjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// These are the limits of request bodies in bytes: for most routes, and for routes with several items per request.
const (
	MaxBody      = 2 << 20
	MaxBatchBody = 8 << 20
)

// Body reads the body of a request; nil if there is none. If an object contains a member twice, the result has only the
// last one. The error is a *protocol.Error: a media type other than JSON, or more than limit bytes.
func Body(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil, nil
	}
	if r.ContentLength > limit {
		w.Header().Set("Connection", "close") // do not read the rest of the body
		return nil, tooLarge(limit)
	}
	if r.ContentLength > 0 {
		if err := checkMediaType(r); err != nil {
			return nil, err
		}
	}
	raw, err := ReadAll(http.MaxBytesReader(w, r.Body, limit), r.ContentLength)
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return nil, tooLarge(limit)
		}
		return nil, protocol.Refuse(protocol.ReasonMalformedJSON, "the body is incomplete: %v", err)
	}
	if r.ContentLength < 0 && len(raw) > 0 {
		if err := checkMediaType(r); err != nil {
			return nil, err
		}
	}
	return rawjson.Once(raw), nil
}

// ReadAll reads a body to its end. length is its Content-Length, negative if unknown.
func ReadAll(body io.Reader, length int64) ([]byte, error) {
	var b bytes.Buffer
	// The caller checked the length against limit and memory budget. Without Grow the buffer needs up to twice the memory.
	b.Grow(int(min(max(length, 0), MaxBatchBody)) + bytes.MinRead)
	_, err := b.ReadFrom(body)
	return b.Bytes(), err
}

// These are limits of the result of Skim.
const (
	skimmedText = 1 << 10
	skimmedAll  = 64 << 10
)

// Skim reads a JSON body and shortens its long strings, until the body ends or the result has 64 KiB: enough to
// identify the request.
func Skim(body io.Reader) []byte {
	var out []byte
	buf := make([]byte, 8<<10)
	quoted, escaped, length := false, false, 0
	for len(out) < skimmedAll {
		n, err := body.Read(buf)
		for i := 0; i < n; i++ {
			c := buf[i]
			dropped := quoted && !escaped && length >= skimmedText
			if dropped && c != '"' && c != '\\' { // skip to the end of the string
				next := bytes.IndexAny(buf[i:n], `"\`)
				if next < 0 {
					break
				}
				i += next
				c = buf[i]
			}
			switch {
			case dropped && c == '\\':
				escaped, length = true, -1 // the escaped character is dropped as well
				continue
			case escaped && length < 0:
				escaped, length = false, skimmedText
				continue
			case escaped:
				escaped = false
			case quoted && c == '\\':
				escaped = true
			case c == '"':
				quoted, length = !quoted, 0
			}
			length++
			out = append(out, c)
		}
		if err != nil {
			break
		}
	}
	return out
}

func tooLarge(limit int64) error {
	return protocol.Refuse(protocol.ReasonPayloadTooLarge, "the body is larger than %d bytes", limit).With("limit", limit)
}

// checkMediaType refuses bodies whose Content-Type is not JSON, and compressed bodies.
func checkMediaType(r *http.Request) error {
	if r.Header.Get("Content-Type") == "application/json" && r.Header.Get("Content-Encoding") == "" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	encoding := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding")))
	json := kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
	switch {
	case err != nil || !json:
		return protocol.Refuse(
			protocol.ReasonUnsupportedMediaType, "the body must be sent with Content-Type: application/json",
		).With("accepted_content_types", []string{"application/json"})
	case encoding != "" && encoding != "identity":
		return protocol.Refuse(
			protocol.ReasonUnsupportedMediaType, "Content-Encoding %.40q is not supported for request bodies; send the body uncompressed", encoding,
		).With("accepted_content_types", []string{"application/json"})
	}
	return nil
}

// Decode decodes a body into v, which does not change if raw is empty. It ignores unknown members. The error is a
// *protocol.Error: not one JSON value, a member of the wrong type (with its path), or a string with a NUL, which some
// databases cannot store.
func Decode(raw []byte, v any) error {
	_, err := DecodeReporting(raw, v)
	return err
}

// DecodeReporting is like Decode, and also returns the members of raw that v does not have.
func DecodeReporting(raw []byte, v any) (Unknown, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return Unknown{}, nil
	}
	if !utf8.Valid(raw) {
		return Unknown{}, malformed("the body is not valid UTF-8")
	}
	unknown, err := Inspect(raw, v)
	if err != nil {
		return Unknown{}, err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return unknown, DecodeError(raw, v, err)
	}
	return unknown, WithoutNUL(raw, v)
}

// DecodeError returns the refusal of a text that did not decode into v: the message has the path of the wrong member
// and the expected type.
func DecodeError(raw []byte, v any, err error) error {
	var refused *protocol.Error
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &refused): // returned by Inspect
		return refused
	case errors.As(err, &syntax):
		return malformed(syntax.Error()).With("offset", syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return malformed(err.Error())
	}
	return wrongMember(raw, v, err)
}

func malformed(what string) *protocol.Error {
	return protocol.Refuse(protocol.ReasonMalformedJSON, "the body is not JSON: %s", what).With("json_error", what)
}
