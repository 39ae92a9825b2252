package rpc

import (
	"bytes"
	"encoding/json"
)

// envelopeIn is a received envelope.
type envelopeIn struct {
	Method     string          `json:"method"`
	Payload    json.RawMessage `json:"payload"`
	DeadlineMS int64           `json:"deadlineMs"`
}

// read takes the envelope apart. encoding/json would look at every byte of the payload three times before it is decoded; so the
// members are found by their brackets and strings first, and only what does not look like an envelope goes the long way, which
// also finds the words for what is wrong. A payload that is broken inside is found when it is decoded.
func (e *envelopeIn) read(arg []byte) error {
	if e.scan(arg) {
		return nil
	}
	*e = envelopeIn{}
	return json.Unmarshal(arg, e)
}

func (e *envelopeIn) scan(arg []byte) bool {
	rest := bytes.TrimSpace(arg)
	if len(rest) < 2 || rest[0] != '{' || rest[len(rest)-1] != '}' {
		return false
	}
	rest = rest[1 : len(rest)-1]
	for {
		key, after := value(rest)
		if len(key) < 2 || key[0] != '"' || len(after) == 0 || after[0] != ':' {
			return false
		}
		member, after := value(after[1:])
		if len(member) == 0 {
			return false
		}
		switch string(key) {
		case `"method"`:
			if member[0] != '"' || json.Unmarshal(member, &e.Method) != nil {
				return false
			}
		case `"payload"`:
			e.Payload = member
		case `"deadlineMs"`:
			if json.Unmarshal(member, &e.DeadlineMS) != nil {
				return false
			}
		default:
			return false // perhaps spelled otherwise
		}
		if len(after) == 0 {
			return true
		}
		if after[0] != ',' {
			return false
		}
		rest = after[1:]
	}
}

// value cuts the JSON value text begins with from what follows it, both without the spaces around them. What is no value is cut
// somewhere; nothing is lost.
func value(text []byte) (value, rest []byte) {
	text = bytes.TrimLeft(text, " \t\r\n")
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',', ':':
			if depth == 0 {
				return bytes.TrimRight(text[:i], " \t\r\n"), text[i:]
			}
		}
	}
	return bytes.TrimRight(text, " \t\r\n"), nil
}
