package socketio

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// assembler puts packets and their attachments back together. It is used by one reader at a time.
type assembler struct {
	maxAttachments int
	maxBytes       int // of one packet with all its attachments

	waiting *packet // a binary packet some attachments are missing of
	blobs   [][]byte
	bytes   int
}

// text takes a text message; the packet is nil while attachments are missing.
func (a *assembler) text(data []byte) (*packet, error) {
	if a.waiting != nil {
		return nil, fmt.Errorf("%w: text where an attachment was announced", ErrProtocol)
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

// binary takes an attachment.
func (a *assembler) binary(data []byte) (*packet, error) {
	if a.waiting == nil {
		return nil, fmt.Errorf("%w: an attachment nobody announced", ErrProtocol)
	}
	if a.bytes += len(data); a.bytes > a.maxBytes {
		return nil, fmt.Errorf("%w: packet with attachments above %d bytes", ErrPayloadTooLarge, a.maxBytes)
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
	data, err := fillPlaceholders(p.data, blobs)
	if err != nil {
		return nil, err
	}
	p.data = data
	p.kind -= packetBinaryEvent - packetEvent
	return p, nil
}

// fillPlaceholders replaces every {"_placeholder": true, "num": i} by blob i as base64 text.
func fillPlaceholders(data []byte, blobs [][]byte) ([]byte, error) {
	var tree any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	// One blob may be named once only, or a small packet could grow without bound.
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
				return blobs[i], nil
			}
			for k := range v {
				if v[k], err = walk(v[k]); err != nil {
					return nil, err
				}
			}
		}
		return node, nil
	}
	tree, err := walk(tree)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	if err := appendJSON(&buf, tree); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
