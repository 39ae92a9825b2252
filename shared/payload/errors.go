package payload

import "errors"

// reasonError is a sentinel whose text is the machine-readable reason of the error body.
type reasonError string

func (e reasonError) Error() string { return string(e) }

// The errors of this package, to be matched with errors.Is. Each wraps one of these, whose text is the reason sent to
// clients (see Reason).
var (
	// ErrInvalidFraming: not base64, no frame, or a datum that is truncated, over-long or not of the schema.
	ErrInvalidFraming error = reasonError("invalid_payload_framing")
	// ErrUnsupportedSchema: a sound frame with the fingerprint of another schema.
	ErrUnsupportedSchema error = reasonError("unsupported_payload_schema")
	// ErrTooLarge: the blob is longer than MaxBytes. Retrying cannot help.
	ErrTooLarge error = reasonError("payload_too_large")
	// ErrTooDeep: more than MaxDepth arrays and maps inside one another, or a Go value that contains itself.
	ErrTooDeep error = reasonError("payload_too_deep")
	// ErrUnsupportedCodec: an envelope whose codec is not "avro".
	ErrUnsupportedCodec error = reasonError("unsupported_payload_codec")
	// ErrIntegerOverflow: an integer outside signed 64 bit when encoding, or outside the Go type when decoding.
	ErrIntegerOverflow error = reasonError("integer_overflow")
	// ErrNonFinite: NaN or an infinity, which no client accepts.
	ErrNonFinite error = reasonError("non_finite_float")
	// ErrInvalidUTF8: a string that is not UTF-8; raw bytes belong in a []byte.
	ErrInvalidUTF8 error = reasonError("invalid_utf8")
	// ErrUnsupportedType: a Go type without an encoding (channel, function, complex number, …).
	ErrUnsupportedType error = reasonError("unsupported_value_type")
	// ErrTypeMismatch: the stored value does not fit the Go type it is decoded into.
	ErrTypeMismatch error = reasonError("payload_type_mismatch")
	// ErrArgumentCount: more arguments are stored than the receiver takes, or no argument list at all.
	ErrArgumentCount error = reasonError("argument_count_mismatch")
	// ErrInvalidJSON: the text given to FromJSON, or made by a json.Marshaler, is not one JSON value.
	ErrInvalidJSON error = reasonError("invalid_json")
)

// Reason is the machine-readable reason of an error of this package, the outermost one if several are wrapped, or ""
// if err is of another origin.
func Reason(err error) string {
	if reason, ok := errors.AsType[reasonError](err); ok {
		return string(reason)
	}
	return ""
}
