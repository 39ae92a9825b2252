package workerapi

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/sojourn-run/sojourn/shared/httpjson"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// completing is the result of an activity attempt: an envelope, a bare blob beside its codec, or any plain JSON, which is encoded here.
type completing struct {
	holder
	Codec  string          `json:"payload_codec"`
	Result json.RawMessage `json:"result"` // an envelope {codec, blob}, or any plain JSON
}

func (in completing) result() (payload.Payload, error) {
	raw := bytes.TrimSpace(in.Result)
	var p payload.Payload
	var err error
	switch {
	case len(raw) == 0 || bytes.Equal(raw, []byte("null")):
		return p, nil
	case envelope(raw), raw[0] == '"' && in.Codec == payload.Codec:
		err = json.Unmarshal(raw, &p)
	default:
		p, err = payload.FromJSON(raw)
	}
	return p, refused("result", err)
}

// envelope says whether a JSON value is meant as {codec, blob}, whatever its codec: plain values with both of these members cannot be told apart.
func envelope(raw []byte) bool {
	if len(raw) == 0 || raw[0] != '{' {
		return false
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return false
	}
	_, codec := members["codec"]
	_, blob := members["blob"]
	return codec && blob
}

// refused gives an error about a payload its reason.
func refused(field string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, payload.ErrUnsupportedCodec):
		return protocol.Refuse(protocol.ReasonUnsupportedCodec, "%s: %v; use %s", field, err, payload.Codec).With("field", field)
	case errors.Is(err, payload.ErrTooLarge):
		return protocol.Refuse(protocol.ReasonPayloadTooLarge, "%s: %v", field, err).With("field", field).With("limit", payload.MaxBytes)
	}
	return protocol.Invalid(field, "%v", err).With("payload_reason", payload.Reason(err))
}

// failing is a reported failure: an object in failure, text in failure, or its members beside the lease's.
type failing struct {
	holder
	Failure json.RawMessage `json:"failure"` // text, or an object {message, type, non_retryable, …} of the members that may also stand beside it
	reported
}

// reported are the members of a failure, under every name clients give them.
type reported struct {
	protocol.Failure
	Error         string `json:"error"`
	ExceptionType string `json:"exception_type"`
	ExceptionCls  string `json:"exception_class"`
}

func (in failing) failure() (*protocol.Failure, error) {
	raw := bytes.TrimSpace(in.Failure)
	f, at := in.reported, "failure"
	switch {
	case len(raw) == 0 || bytes.Equal(raw, []byte("null")):
	case raw[0] == '"':
		f = reported{}
		if err := httpjson.Decode(raw, &f.Message); err != nil {
			return nil, beneath(at, err)
		}
	default:
		f = reported{}
		if err := httpjson.Decode(raw, &f); err != nil {
			return nil, beneath(at, err)
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
	if d := bytes.TrimSpace(f.Details); len(d) > 0 && !bytes.Equal(d, []byte("null")) && !envelope(d) {
		p, err := payload.FromJSON(d)
		if err != nil {
			return nil, refused("failure.details", err)
		}
		if f.Details, err = json.Marshal(p); err != nil {
			return nil, err
		}
	}
	return &f.Failure, nil
}

// beneath puts a member's name before the fields an error speaks of.
func beneath(name string, err error) error {
	var e *protocol.Error
	if !errors.As(err, &e) {
		return err
	}
	fields := map[string][]string{}
	for f, what := range e.Fields {
		if f == "body" {
			f = name
		} else {
			f = name + "." + f
		}
		fields[f] = what
	}
	return &protocol.Error{Reason: e.Reason, Message: name + ": " + e.Message, Details: e.Details, Fields: fields}
}
