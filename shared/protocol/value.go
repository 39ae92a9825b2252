package protocol

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/sojourn-run/sojourn/shared/payload"
)

// Value is a result as workers send it: an envelope {codec, blob}, or plain JSON, which is encoded when its codec is
// known. Errors are not detected when it is unmarshalled, so that an invalid result causes the refusal of one outcome
// and not of a whole request.
type Value struct {
	payload.Payload
	raw json.RawMessage // plain JSON; nil: the value is in Payload
}

// UnmarshalJSON stores the JSON text without checking it.
func (v *Value) UnmarshalJSON(raw []byte) error {
	*v = Value{}
	raw = bytes.TrimSpace(raw)
	if bytes.Equal(raw, []byte("null")) {
		return nil
	}
	if len(raw) > 0 && raw[0] == '{' && v.Payload.UnmarshalJSON(raw) == nil {
		return nil
	}
	v.raw = bytes.Clone(raw)
	return nil
}

// Plain reports whether the value is plain JSON and not an envelope.
func (v Value) Plain() bool { return v.raw != nil }

// Under returns the payload of the value. With a codec, a bare string is a blob of this codec; with "" it is a text.
func (v Value) Under(codec string) (payload.Payload, error) {
	if v.raw == nil {
		return v.Payload, nil
	}
	return ReadResult("result", v.raw, codec)
}

// ReadResult decodes the result of a task: an envelope, a bare blob with its codec next to it, or plain JSON. null
// means no result.
func ReadResult(field string, raw json.RawMessage, codec string) (p payload.Payload, err error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0 || bytes.Equal(raw, []byte("null")):
		return p, nil
	case IsEnvelope(raw), raw[0] == '"' && codec == payload.Codec:
		err = json.Unmarshal(raw, &p)
	default:
		p, err = payload.FromJSON(raw)
	}
	return p, RefusePayload(field, err)
}

// IsEnvelope reports whether a JSON value is an envelope {codec, blob} of any codec. A plain object with both members
// is read as an envelope too.
func IsEnvelope(raw []byte) bool {
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

// EncodeDetails replaces details that are plain JSON by an envelope. Envelopes, null and absent details stay.
func (f *Failure) EncodeDetails() error {
	d := bytes.TrimSpace(f.Details)
	if len(d) == 0 || bytes.Equal(d, []byte("null")) || IsEnvelope(d) {
		return nil
	}
	p, err := payload.FromJSON(d)
	if err != nil {
		return RefusePayload("failure.details", err)
	}
	f.Details, err = json.Marshal(p)
	return err
}

// RefusePayload converts an error about a payload to a refusal with a reason; nil stays nil.
func RefusePayload(field string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, payload.ErrUnsupportedCodec):
		return Refuse(ReasonUnsupportedCodec, "%s: %v; use %s", field, err, payload.Codec).With("field", field)
	case errors.Is(err, payload.ErrTooLarge):
		return Refuse(ReasonPayloadTooLarge, "%s: %v", field, err).With("field", field).With("limit", payload.MaxBytes)
	}
	reason := payload.Reason(err)
	field, err = payload.Place(field, err)
	return Invalid(field, "%v", err).With("payload_reason", reason)
}
