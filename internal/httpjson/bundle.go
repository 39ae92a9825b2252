package httpjson

import (
	"bytes"
	"encoding/json"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A request may bundle independent items, such as the outcomes of many tasks. An item that cannot be decoded must not
// cause the refusal of the others. The code first decodes the whole request, and decodes item by item only if this
// fails.

// List is a member of a body whose items are decoded one by one.
type List struct {
	Name string // of the member
	Most int    // items it may have; more are refused together, undecoded
	// Add is called for each item and returns the refusal of an item that cannot be decoded.
	Add func(raw json.RawMessage)
}

// Bundle decodes the members of a body that could not be decoded as a whole, with the error why: it calls Add for the
// items of the lists and returns the other members unchanged. It returns why again if the body is not an object, or if
// one of the lists is not an array or too long.
func Bundle(raw []byte, why error, lists ...List) (others map[string]json.RawMessage, err error) {
	if json.Unmarshal(raw, &others) != nil {
		return nil, why
	}
	for _, l := range lists {
		member, has := others[l.Name]
		if !has || bytes.Equal(bytes.TrimSpace(member), []byte("null")) {
			continue
		}
		var items []json.RawMessage
		if json.Unmarshal(member, &items) != nil || len(items) > l.Most {
			return nil, why
		}
		for _, item := range items {
			l.Add(item)
		}
		delete(others, l.Name)
	}
	return others, nil
}

// Into is an Add that appends to list, and has unreadable describe an item that cannot be decoded.
func Into[T any](list *[]T, unreadable func(raw json.RawMessage, why error) T) func(raw json.RawMessage) {
	return func(raw json.RawMessage) {
		var item T
		if err := Decode(raw, &item); err != nil {
			item = unreadable(raw, err)
		}
		*list = append(*list, item)
	}
}

// DecodeOthers decodes the other members of a bundle into v, whose lists stay as they are.
func DecodeOthers(others map[string]json.RawMessage, v any) error {
	raw, err := json.Marshal(others)
	if err != nil {
		return protocol.Refuse(protocol.ReasonMalformedJSON, "the body is not JSON: %v", err)
	}
	return Decode(raw, v)
}

// Heartbeat decodes a worker's heartbeat whose whole could not be decoded for the reason why: leases and sessions one
// by one, each answered in its place.
func Heartbeat(raw []byte, why error) (in protocol.WorkerHeartbeat, err error) {
	var leases []protocol.HeartbeatRequest
	var sessions []protocol.SessionRenewal
	others, err := Bundle(raw, why,
		List{"leases", maxRenewals, Into(&leases, protocol.UnreadableRenewal)},
		List{"sessions", maxRenewals, Into(&sessions, protocol.UnreadableSession)})
	if err != nil {
		return in, err
	}
	if err := DecodeOthers(others, &in); err != nil {
		return in, err
	}
	in.Leases, in.Sessions = leases, sessions
	return in, nil
}

// maxRenewals bounds how many leases or sessions of one heartbeat are decoded one by one.
const maxRenewals = 100_000
