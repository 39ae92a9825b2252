// Package codecs applies the codecs of a worker or a client to payloads, histories and commands.
package codecs

import (
	"errors"
	"fmt"

	"github.com/sojourn-run/sojourn/shared/payload"
)

// Codec encodes and decodes the bytes of payloads. It has the methods of the public interface.
type Codec interface {
	Name() string
	Encode(data []byte) (encoded []byte, keyID string, err error)
	Decode(encoded []byte, keyID string) (data []byte, err error)
}

// ErrUnknownKey is returned, possibly wrapped, by a codec that does not have the key of a payload.
var ErrUnknownKey = errors.New("unknown key")

// MissingError reports a payload that no configured codec decodes.
type MissingError struct {
	Codec string // name of the missing codec
	KeyID string // key that the codec does not have; empty: the codec uses no keys
}

// Error returns the key or the codec that must be configured.
func (e *MissingError) Error() string {
	if e.KeyID != "" {
		return fmt.Sprintf("payload is encrypted with key %q; configure the codec", e.KeyID)
	}
	return fmt.Sprintf("payload is encoded with codec %q; configure the codec", e.Codec)
}

// Chain is a list of codecs. Encoding applies them in order. Decoding applies the codecs that a payload names, so a
// chain also decodes payloads that other chains encoded with the same codecs. The empty chain encodes nothing and
// refuses encoded payloads.
type Chain []Codec

// Of returns the chain of codecs of another interface type with the same methods.
func Of[C Codec](list []C) Chain {
	all := make(Chain, len(list))
	for i, c := range list {
		all[i] = c
	}
	return all
}

// maxNesting is the maximum number of codecs that were applied to one payload.
const maxNesting = 8

// Check returns an error if the chain has too many codecs, a codec without a name or two codecs of one name.
func (c Chain) Check() error {
	if len(c) > maxNesting {
		return fmt.Errorf("%d codecs; at most %d are possible", len(c), maxNesting)
	}
	names := map[string]bool{}
	for i, one := range c {
		switch {
		case one == nil:
			return fmt.Errorf("codec %d is nil", i)
		case one.Name() == "":
			return fmt.Errorf("codec %d has no name", i)
		case names[one.Name()]:
			return fmt.Errorf("two codecs have the name %q", one.Name())
		}
		names[one.Name()] = true
	}
	return nil
}

// EncodeValue encodes a value. No value stays none.
func (c Chain) EncodeValue(p payload.Payload) (payload.Payload, error) { return c.encode(p, false) }

// EncodeValueUpTo encodes a value that may be larger than a payload that the app stores.
func (c Chain) EncodeValueUpTo(limit int, p payload.Payload) (payload.Payload, error) {
	return c.encodeUpTo(limit, p, false)
}

// EncodeArgs encodes a list of arguments. No list stays none.
func (c Chain) EncodeArgs(p payload.Payload) (payload.Payload, error) { return c.encode(p, true) }

// DecodeValue decodes a value. It returns a value that no codec encoded unchanged.
func (c Chain) DecodeValue(p payload.Payload) (payload.Payload, error) { return c.decode(p, false) }

// DecodeArgs decodes a list of arguments. It returns a list that no codec encoded unchanged.
func (c Chain) DecodeArgs(p payload.Payload) (payload.Payload, error) { return c.decode(p, true) }

func (c Chain) encode(p payload.Payload, args bool) (payload.Payload, error) {
	return c.encodeUpTo(payload.MaxBytes, p, args)
}

func (c Chain) encodeUpTo(limit int, p payload.Payload, args bool) (payload.Payload, error) {
	if p.IsZero() || len(c) == 0 {
		return p, nil
	}
	frame, err := payload.Frame(p)
	if err != nil {
		return p, err
	}
	// The app and workers in other languages see the form of the last codec. Only that form distinguishes a list of
	// arguments from a value, so the chain encodes the others as values.
	var outer *payload.Sealed
	for _, one := range c {
		encoded, key, err := encodeWith(one, frame)
		if err != nil {
			return p, fmt.Errorf("encode a payload with codec %q: %w", one.Name(), err)
		}
		if encoded == nil { // the codec leaves this payload as it is
			continue
		}
		outer = &payload.Sealed{Codec: one.Name(), KeyID: key, Data: encoded}
		if frame, err = payload.SealFrame(*outer); err != nil {
			return p, err
		}
	}
	encoded := p
	if outer != nil {
		if encoded, err = payload.Seal(*outer, args); err != nil {
			return p, err
		}
	}
	if len(encoded.Blob) > limit {
		return p, payload.TooLarge(len(encoded.Blob))
	}
	return encoded, nil
}

func (c Chain) decode(p payload.Payload, args bool) (payload.Payload, error) {
	original := p
	for range maxNesting + 1 {
		sealed, ok := payload.Unseal(p, args)
		if !ok {
			return p, nil
		}
		frame, err := c.decodeSealed(sealed)
		if err != nil {
			return original, err
		}
		if p, err = payload.OfFrame(frame); err != nil {
			return original, fmt.Errorf("codec %q decoded a payload to other bytes than a payload: %w", sealed.Codec, err)
		}
		args = false // only the outermost form distinguishes a list
	}
	return original, fmt.Errorf("payload is encoded by more than %d codecs", maxNesting)
}

// decodeSealed decodes the data of one codec.
func (c Chain) decodeSealed(sealed payload.Sealed) ([]byte, error) {
	for _, one := range c {
		if one.Name() != sealed.Codec {
			continue
		}
		frame, err := decodeWith(one, sealed)
		switch {
		case errors.Is(err, ErrUnknownKey):
			return nil, &MissingError{sealed.Codec, sealed.KeyID}
		case err != nil && sealed.KeyID != "":
			return nil, fmt.Errorf("decode a payload with codec %q and key %q: %w", sealed.Codec, sealed.KeyID, err)
		case err != nil:
			return nil, fmt.Errorf("decode a payload with codec %q: %w", sealed.Codec, err)
		}
		return frame, nil
	}
	return nil, &MissingError{sealed.Codec, sealed.KeyID}
}

// encodeWith calls a codec. A panic of the codec becomes an error, because it would end the worker.
func encodeWith(one Codec, frame []byte) (encoded []byte, key string, err error) {
	defer func() {
		if p := recover(); p != nil {
			encoded, key, err = nil, "", fmt.Errorf("the codec panicked: %v", p)
		}
	}()
	return one.Encode(frame)
}

// decodeWith calls a codec. A panic of the codec becomes an error: the data may come from any caller of the app, and
// the app would dispatch the task to one worker after the other.
func decodeWith(one Codec, sealed payload.Sealed) (frame []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			frame, err = nil, fmt.Errorf("the codec panicked: %v", p)
		}
	}()
	return one.Decode(sealed.Data, sealed.KeyID)
}

// nearLimit is the length of a blob from which on a chain may make it longer than the limit of the app.
const nearLimit = payload.MaxBytes - 64<<10

// limit is the maximum length of a blob before it is encoded. Without codecs it is the limit of the app.
func (c Chain) limit() int {
	if len(c) == 0 {
		return payload.MaxBytes
	}
	return payload.MaxDecodedBytes
}

// NewArgs returns the payload of arguments that the chain will encode later. The error is payload.ErrTooLarge if their
// encoded form exceeds the limit of the app.
func (c Chain) NewArgs(args ...any) (payload.Payload, error) {
	p, err := payload.EncodeArgsUpTo(c.limit(), args...)
	if err == nil && len(c) > 0 && len(p.Blob) > nearLimit {
		_, err = c.EncodeArgs(p)
	}
	return p, err
}

// NewValue returns the payload of a value that the chain will encode later. The error is payload.ErrTooLarge if its
// encoded form exceeds the limit of the app.
func (c Chain) NewValue(v any) (payload.Payload, error) {
	p, err := payload.EncodeUpTo(c.limit(), v)
	if err == nil && len(c) > 0 && len(p.Blob) > nearLimit {
		_, err = c.EncodeValue(p)
	}
	return p, err
}
