package socketio

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/internal/rawjson"
)

// Engine.IO packet types, the first byte of every text frame.
const (
	engineOpen    = '0'
	engineClose   = '1'
	enginePing    = '2'
	enginePong    = '3'
	engineMessage = '4'
	engineUpgrade = '5'
	engineNoop    = '6'
)

// Socket.IO packet types.
const (
	packetConnect      = '0'
	packetDisconnect   = '1'
	packetEvent        = '2'
	packetAck          = '3'
	packetConnectError = '4'
	packetBinaryEvent  = '5'
	packetBinaryAck    = '6'
)

const (
	maxNamespaceLength = 128
	maxAckDigits       = 15 // 10^15 is below 2^53, so that every peer can represent the number
)

// frame is one Engine.IO packet: text begins with its type, binary is the attachment without a type.
type frame struct {
	binary bool
	data   []byte
	grant  *budget.Grant // memory grant of a received packet
}

// packet is one decoded Socket.IO packet. When all attachments of a binary packet have arrived, its type changes to
// that without attachments: BINARY_EVENT becomes EVENT.
type packet struct {
	kind        byte
	namespace   string
	id          uint64
	hasID       bool
	attachments int
	data        []byte // JSON or empty; aliases the received frame
	values      []any  // the decoded data of a packet with attachments
}

// parsePacket reads the text of a Socket.IO packet: <type>[<attachments>-][<namespace>,][<ack id>][JSON]. It validates
// the structure that the type requires, but not the JSON, which the decoder validates.
func parsePacket(text []byte, maxAttachments int) (packet, error) {
	p := packet{namespace: "/"}
	if len(text) == 0 || text[0] < packetConnect || text[0] > packetBinaryAck {
		return p, fmt.Errorf("%w: unknown packet type", ErrProtocol)
	}
	p.kind, text = text[0], text[1:]
	if p.kind == packetBinaryEvent || p.kind == packetBinaryAck {
		n, rest, ok := leadingNumber(text, 4)
		if !ok || len(rest) == 0 || rest[0] != '-' {
			return p, fmt.Errorf("%w: the number of attachments is missing", ErrProtocol)
		}
		if n > uint64(maxAttachments) {
			return p, fmt.Errorf("%w: %d attachments, the maximum is %d", ErrPayloadTooLarge, n, maxAttachments)
		}
		p.attachments, text = int(n), rest[1:]
	}
	if len(text) > 0 && text[0] == '/' {
		name, rest, found := bytes.Cut(text, []byte{','})
		if !found {
			rest = nil
		}
		if len(name) > maxNamespaceLength {
			return p, fmt.Errorf("%w: namespace too long", ErrProtocol)
		}
		p.namespace, text = string(name), rest
	}
	if len(text) > 0 && text[0] >= '0' && text[0] <= '9' {
		id, rest, ok := leadingNumber(text, maxAckDigits)
		if !ok {
			return p, fmt.Errorf("%w: ack id too long", ErrProtocol)
		}
		p.id, p.hasID, text = id, true, rest
	}
	p.data = text
	return p, p.check()
}

// check rejects a packet that is invalid for its type.
func (p *packet) check() error {
	var first byte
	if len(p.data) > 0 {
		first = p.data[0]
	}
	ok := false
	switch p.kind {
	case packetConnect:
		ok = !p.hasID && (first == 0 || first == '{')
	case packetDisconnect:
		ok = !p.hasID && first == 0
	case packetConnectError:
		ok = first == '{' || first == '"'
	case packetEvent, packetBinaryEvent:
		ok = first == '['
	case packetAck, packetBinaryAck:
		ok = first == '[' && p.hasID
	}
	if !ok {
		return fmt.Errorf("%w: malformed packet of type %c", ErrProtocol, p.kind)
	}
	return nil
}

// leadingNumber parses the leading decimal number of text. ok is false if there are more digits than the maximum.
func leadingNumber(text []byte, digits int) (n uint64, rest []byte, ok bool) {
	i := 0
	for ; i < len(text) && text[i] >= '0' && text[i] <= '9'; i++ {
		if i == digits {
			return 0, text, false
		}
		n = n*10 + uint64(text[i]-'0')
	}
	return n, text[i:], i > 0
}

// splitArray splits a JSON array into its elements without decoding them. The caller validates each element.
func splitArray(data []byte) ([]json.RawMessage, error) {
	items, ok := rawjson.Elements(data)
	if !ok {
		return nil, fmt.Errorf("%w: payload is not an array", ErrProtocol)
	}
	return items, nil
}

// appendHead writes the part of a packet before its JSON, including the Engine.IO type.
func appendHead(buf []byte, kind byte, attachments int, namespace string, id uint64, hasID bool) []byte {
	buf = append(buf, engineMessage, kind)
	if kind == packetBinaryEvent || kind == packetBinaryAck {
		buf = strconv.AppendInt(buf, int64(attachments), 10)
		buf = append(buf, '-')
	}
	if namespace != "/" {
		buf = append(buf, namespace...)
		buf = append(buf, ',')
	}
	if hasID {
		buf = strconv.AppendUint(buf, id, 10)
	}
	return buf
}

// encodeObject returns a packet whose JSON is one value, or no JSON if value is nil: CONNECT, CONNECT_ERROR,
// DISCONNECT.
func encodeObject(kind byte, namespace string, value any) ([]frame, error) {
	buf := appendHead(nil, kind, 0, namespace, 0, false)
	var err error
	if value != nil {
		buf, err = rawjson.Append(buf, value)
	}
	return []frame{{data: buf}}, err
}

// encodeArgs returns an EVENT or ACK with its attachments; with attachments it is a binary packet. event is nil for an
// ack.
func encodeArgs(kind byte, namespace string, id uint64, hasID bool, event *string, args []any) ([]frame, error) {
	frames := make([]frame, 1)
	if slices.ContainsFunc(args, hasBinary) {
		args, _ = detach(args, &frames).([]any)
		kind += packetBinaryEvent - packetEvent
	}
	if event != nil {
		args = append([]any{*event}, args...)
	}
	buf := appendHead(make([]byte, 0, 256), kind, len(frames)-1, namespace, id, hasID)
	buf = append(buf, '[')
	for i, arg := range args {
		if i > 0 {
			buf = append(buf, ',')
		}
		var err error
		if buf, err = rawjson.Append(buf, arg); err != nil {
			return nil, err
		}
	}
	buf = append(buf, ']')
	frames[0].data = buf
	return frames, nil
}

func size(frames []frame) int {
	n := 0
	for _, f := range frames {
		n += len(f.data)
	}
	return n
}
