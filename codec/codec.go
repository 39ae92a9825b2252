// Package codec compresses and encrypts payloads before they leave a worker or a client.
//
// The app stores and transports the encoded form and never needs a key.
//
// Set the same codecs in workers ([worker.Registry.UseCodecs]) and clients ([client.Options]). Codecs apply to the
// arguments and results of workflows, activities, local steps, child workflows, signals, updates and queries, to the
// inputs of schedules, to side effects, to the arguments of session definitions and to the details of failures. Types,
// IDs, failure messages, memo, search attributes, headers, heartbeat details and logs stay readable.
//
// [worker.Registry.UseCodecs]: https://pkg.go.dev/github.com/sojourn-run/sojourn/worker#Registry.UseCodecs
// [client.Options]: https://pkg.go.dev/github.com/sojourn-run/sojourn/client#Options
package codec

import "github.com/sojourn-run/sojourn/internal/codecs"

// Codec encodes and decodes the bytes of payloads. The methods may be called by several goroutines at once.
type Codec interface {
	// Name identifies the codec in stored payloads, so it must not change. Names of this package begin with "sojourn.".
	Name() string
	// Encode returns the encoded form of data and the ID of the key that decodes it, empty without a key. If it returns
	// nil and no error, the payload stays as it is.
	Encode(data []byte) (encoded []byte, keyID string, err error)
	// Decode returns the data of an encoded form. It must limit the size of its result. If it does not have the key, it
	// returns ErrUnknownKey.
	Decode(encoded []byte, keyID string) (data []byte, err error)
}

// ErrUnknownKey is the error of [Codec.Decode] for a key that the codec does not have.
var ErrUnknownKey error = codecs.ErrUnknownKey
