package workerapi

import (
	"bytes"
	"encoding/json"

	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Published clients send results and failures in several forms and under several names. All of them are converted to
// one form here, so that no other code needs to know them.

// completing is the result of an activity attempt: an envelope, a bare blob next to its codec, or any plain JSON, which
// is encoded here.
type completing struct {
	holder
	Codec  string          `json:"payload_codec"`
	Result json.RawMessage `json:"result"` // an envelope {codec, blob}, or any plain JSON
}

func (in completing) result() (payload.Payload, error) {
	return protocol.ReadResult("result", in.Result, in.Codec)
}

// failing is a reported failure: an object in failure, text in failure, or its members next to the lease's.
type failing struct {
	holder
	// Failure is text, or an object {message, type, non_retryable, …}; its members are also accepted in the body.
	Failure json.RawMessage `json:"failure"`
	reported
}

// reported are the members of a failure under all names that clients use.
type reported struct {
	protocol.Failure
	Error         string `json:"error"`
	ExceptionType string `json:"exception_type"`
	ExceptionCls  string `json:"exception_class"`
}

func (in failing) failure(c *call) (*protocol.Failure, error) {
	raw := bytes.TrimSpace(in.Failure)
	f, at := in.reported, "failure"
	switch {
	case len(raw) == 0 || bytes.Equal(raw, []byte("null")):
	case raw[0] == '"':
		f = reported{}
		if err := httpjson.Decode(raw, &f.Message); err != nil {
			return nil, protocol.Beneath(at, err)
		}
	default:
		f = reported{}
		if err := c.Decode(raw, &f); err != nil {
			return nil, protocol.Beneath(at, err)
		}
	}
	or := func(s *string, other string) {
		if *s == "" {
			*s = other
		}
	}
	or(&f.Message, f.Error)
	or(&f.Type, f.ExceptionType)
	or(&f.Class, f.ExceptionCls)
	or(&f.Message, f.Type)
	if f.Message == "" {
		return nil, protocol.Invalid("failure.message", "is missing")
	}
	if err := f.EncodeDetails(); err != nil {
		return nil, err
	}
	return &f.Failure, nil
}
