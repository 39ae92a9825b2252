package payload

import (
	"bytes"
	"encoding/base64"
	"slices"
	"sync"
)

// Schema is the canonical text of the one schema: a record of a union of null and seven one-field records, recursive
// through arrays and maps.
const Schema = `{"name":"durable_workflow.protocol.Value","type":"record","fields":[{"name":"value","type":["null",` +
	`{"name":"durable_workflow.protocol.BooleanValue","type":"record","fields":[{"name":"boolean","type":"boolean"}]},` +
	`{"name":"durable_workflow.protocol.LongValue","type":"record","fields":[{"name":"long","type":"long"}]},` +
	`{"name":"durable_workflow.protocol.DoubleValue","type":"record","fields":[{"name":"double","type":"double"}]},` +
	`{"name":"durable_workflow.protocol.BytesValue","type":"record","fields":[{"name":"bytes","type":"bytes"}]},` +
	`{"name":"durable_workflow.protocol.StringValue","type":"record","fields":[{"name":"string","type":"string"}]},` +
	`{"name":"durable_workflow.protocol.ArrayValue","type":"record","fields":[{"name":"items",` +
	`"type":{"type":"array","items":"durable_workflow.protocol.Value"}}]},` +
	`{"name":"durable_workflow.protocol.MapValue","type":"record","fields":[{"name":"entries",` +
	`"type":{"type":"map","values":"durable_workflow.protocol.Value"}}]}]}]}`

// header is the single-object magic C3 01 and the CRC-64-AVRO fingerprint of Schema, least significant byte first.
const header = "\xC3\x01\xE2\xA3\x3D\xFF\x55\x80\x22\x37"

// The zig-zag coded union branches, each the first byte of a datum.
const (
	tagNull   = 0x00
	tagBool   = 0x02
	tagLong   = 0x04
	tagDouble = 0x06
	tagBytes  = 0x08
	tagString = 0x0a
	tagArray  = 0x0c
	tagMap    = 0x0e
)

var strict64 = base64.StdEncoding.Strict()

// buffer is scratch space for one encoding or decoding: bin holds the frame, text its base64.
type buffer struct{ bin, text []byte }

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// large has buffers for frames of large payloads, apart from the buffers of ordinary payloads. The garbage collector
// frees unused ones.
var large = sync.Pool{New: func() any { return new([]byte) }}

// most is the capacity up to which a buffer is returned to the pool for ordinary payloads.
const most = 64 << 10

// release returns b to the pool. It first removes buffers that a large payload has made large.
func (b *buffer) release() {
	if cap(b.bin) > most {
		bin := b.bin[:0]
		large.Put(&bin)
		b.bin = nil
	}
	if cap(b.text) > most {
		b.text = nil
	}
	buffers.Put(b)
}

// roomFor provides a buffer for a large frame of size bytes, if possible a used one.
func (b *buffer) roomFor(size int) {
	if size <= most || cap(b.bin) >= size {
		return
	}
	b.bin = *large.Get().(*[]byte)
	if cap(b.bin) < size { // consecutive large frames usually have the same size
		b.bin = make([]byte, 0, size)
	}
}

// seal encodes the finished frame in b.bin as a payload of at most limit bytes.
func (b *buffer) seal(limit int) (Payload, error) {
	size := strict64.EncodedLen(len(b.bin))
	if size > limit {
		return Payload{}, tooLarge(size, limit)
	}
	b.text = slices.Grow(b.text[:0], size)[:size]
	fast64.Encode(b.text, b.bin)
	return Payload{Blob: string(b.text)}, nil
}

// openFrame checks text and frame of blob and returns a reader at its datum, which lives in b.
func (b *buffer) openFrame(blob string) (reader, error) {
	return b.openText(Payload{Blob: blob}.Text(), MaxDecodedBytes) // openText reads the text and does not keep it
}

func tooLarge(size, limit int) error {
	return fail(ErrTooLarge, "%s encoded; the limit is %s", mebibytes(size), mebibytes(limit))
}

// openText is openFrame for bytes, which it does not copy, and of which there may be at most limit.
func (b *buffer) openText(text []byte, limit int) (reader, error) {
	if len(text) > limit {
		return reader{}, tooLarge(len(text), limit)
	}
	b.roomFor(strict64.DecodedLen(len(text)))
	bin, err := appendDecoded(b.bin[:0], text)
	b.bin = bin
	if err != nil {
		return reader{}, err
	}
	return openBytes(bin)
}

// openBytes checks a frame and returns a reader at its datum.
func openBytes(bin []byte) (reader, error) {
	switch {
	case len(bin) < len(header) || string(bin[:2]) != header[:2]:
		return reader{}, fail(ErrInvalidFraming, "the payload is not an Avro single-object frame")
	case string(bin[:len(header)]) != header:
		return reader{}, fail(ErrUnsupportedSchema, "unsupported payload schema with fingerprint %x", bin[2:len(header)])
	}
	return reader{buf: bin, pos: len(header)}, nil
}

// jsonHint names the most common mistake: JSON text in place of a blob.
func jsonHint(blob []byte) string {
	if text := bytes.TrimLeft(blob, " \t"); len(text) > 0 && bytes.IndexByte([]byte(`{["`), text[0]) >= 0 {
		return " (it looks like JSON)"
	}
	return ""
}

// Valid checks a blob from another process completely (text, frame and datum) without decoding it. Errors are
// ErrInvalidFraming, ErrUnsupportedSchema and ErrTooLarge; nesting beyond MaxDepth is ErrInvalidFraming and ErrTooDeep.
func Valid(blob string) error {
	b := buffers.Get().(*buffer)
	defer b.release()
	r, err := b.openText(Payload{Blob: blob}.Text(), MaxBytes)
	return valid(r, err)
}

// ValidText is Valid for a text in bytes, without copying it.
func ValidText(blob []byte) error {
	b := buffers.Get().(*buffer)
	defer b.release()
	r, err := b.openText(blob, MaxBytes)
	return valid(r, err)
}

func valid(r reader, err error) error {
	if err != nil {
		return err
	}
	if scan(r.buf, r.pos, r.depth) == len(r.buf) {
		return nil
	}
	if err := r.skip(); err != nil {
		return err
	}
	return r.mustBeAtEnd()
}
