package socketio

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/internal/rawjson"
)

// assembler combines packets with their attachments. Only one reader at a time may use it.
type assembler struct {
	maxAttachments int
	maxBytes       func() int // maximum size of a packet with all its attachments

	waiting *packet // a binary packet whose attachments are not complete
	blobs   [][]byte
	bytes   int
}

// text processes a text message; the packet is nil while attachments are missing.
func (a *assembler) text(data []byte) (*packet, error) {
	if a.waiting != nil {
		return nil, fmt.Errorf("%w: text frame instead of an attachment", ErrProtocol)
	}
	p, err := parsePacket(data, a.maxAttachments)
	if err != nil {
		return nil, err
	}
	if p.kind != packetBinaryEvent && p.kind != packetBinaryAck {
		return &p, nil
	}
	a.waiting, a.bytes = &p, len(data)
	return a.complete()
}

// binary processes an attachment.
func (a *assembler) binary(data []byte) (*packet, error) {
	if a.waiting == nil {
		return nil, fmt.Errorf("%w: unexpected attachment", ErrProtocol)
	}
	if a.bytes += len(data); a.bytes > a.maxBytes() {
		return nil, fmt.Errorf("%w: packet with attachments above %d bytes", ErrPayloadTooLarge, a.maxBytes())
	}
	a.blobs = append(a.blobs, data)
	return a.complete()
}

func (a *assembler) complete() (*packet, error) {
	p := a.waiting
	if len(a.blobs) < p.attachments {
		return nil, nil
	}
	blobs := a.blobs
	a.waiting, a.blobs = nil, nil
	values, data, err := fillPlaceholders(p.data, blobs)
	if err != nil {
		return nil, err
	}
	p.values, p.data = values, data
	p.kind -= packetBinaryEvent - packetEvent
	return p, nil
}

// fillPlaceholders replaces every {"_placeholder": true, "num": i} by blob i: by its bytes in values, by base64 in
// text.
func fillPlaceholders(data []byte, blobs [][]byte) (values []any, text []byte, err error) {
	if values, err = decodeValues(data); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	// A blob may be referred to only once, else a small packet could expand without limit.
	used := make([]bool, len(blobs))
	var walk func(any) (any, error)
	walk = func(node any) (any, error) {
		var err error
		switch v := node.(type) {
		case []any:
			for i := range v {
				if v[i], err = walk(v[i]); err != nil {
					return nil, err
				}
			}
		case map[string]any:
			if v["_placeholder"] == true {
				num, _ := v["num"].(json.Number)
				i, err := num.Int64()
				if err != nil || i < 0 || i >= int64(len(blobs)) || used[i] {
					return nil, fmt.Errorf("%w: placeholder without its attachment", ErrProtocol)
				}
				used[i] = true
				return Binary(blobs[i]), nil
			}
			for k := range v {
				if v[k], err = walk(v[k]); err != nil {
					return nil, err
				}
			}
		}
		return node, nil
	}
	if _, err := walk(values); err != nil { // changes values in place
		return nil, nil, err
	}
	text, err = rawjson.Append(nil, values)
	return values, text, err
}

func decodeValues(array []byte) (values []any, err error) {
	dec := json.NewDecoder(bytes.NewReader(array))
	dec.UseNumber()
	return values, dec.Decode(&values)
}

// valuesKey is the context key for the arguments, as values, of an event with attachments.
type valuesKey struct{}

// Attached returns the arguments of the event of the handler's ctx, decoded (numbers as json.Number), with
// every attachment as [Binary]. ok is false for events without attachments, whose args are complete.
func Attached(ctx context.Context) (args []any, ok bool) {
	args, ok = ctx.Value(valuesKey{}).([]any)
	return args, ok
}

// detach replaces every Binary in value, at any depth of lists and maps, by its placeholder. It copies
// the lists and maps that it changes.
func detach(value any, frames *[]frame) any {
	switch v := value.(type) {
	case Binary:
		*frames = append(*frames, frame{binary: true, data: v})
		return map[string]any{"_placeholder": true, "num": len(*frames) - 2}
	case []any:
		if !slices.ContainsFunc(v, hasBinary) {
			return v
		}
		out := make([]any, len(v))
		for i := range v {
			out[i] = detach(v[i], frames)
		}
		return out
	case map[string]any:
		if !hasBinary(v) {
			return v
		}
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out[k] = detach(v[k], frames)
		}
		return out
	}
	return value
}

// hasBinary reports whether value is a Binary, or a list or map that contains one.
func hasBinary(value any) bool {
	switch v := value.(type) {
	case Binary:
		return true
	case []any:
		return slices.ContainsFunc(v, hasBinary)
	case map[string]any:
		for _, m := range v {
			if hasBinary(m) {
				return true
			}
		}
	}
	return false
}
