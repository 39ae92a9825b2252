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
	Name string // name of the member
	Most int    // maximum number of items; a longer list is refused as a whole, without decoding
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

// AppendTo returns an Add function that appends items to list. For an item that cannot be decoded it appends the result
// of unreadable.
func AppendTo[T any](list *[]T, unreadable func(raw json.RawMessage, why error) T) func(raw json.RawMessage) {
	return func(raw json.RawMessage) {
		var item T
		if err := Decode(raw, &item); err != nil {
			item = unreadable(raw, err)
		}
		*list = append(*list, item)
	}
}

// DecodeOthers decodes the other members of a bundle into v and does not change the lists of v.
func DecodeOthers(others map[string]json.RawMessage, v any) error {
	raw, err := json.Marshal(others)
	if err != nil {
		return protocol.Refuse(protocol.ReasonMalformedJSON, "the body is not JSON: %v", err)
	}
	return Decode(raw, v)
}

// Heartbeat decodes a worker's heartbeat that could not be decoded as a whole, with the error why. It decodes leases
// and sessions one by one; an invalid item becomes an item with its own error.
func Heartbeat(raw []byte, why error) (in protocol.WorkerHeartbeat, err error) {
	var leases []protocol.HeartbeatRequest
	var sessions []protocol.SessionRenewal
	others, err := Bundle(raw, why,
		List{"leases", maxRenewals, AppendTo(&leases, protocol.UnreadableRenewal)},
		List{"sessions", maxRenewals, AppendTo(&sessions, protocol.UnreadableSession)})
	if err != nil {
		return in, err
	}
	if err := DecodeOthers(others, &in); err != nil {
		return in, err
	}
	in.Leases, in.Sessions = leases, sessions
	return in, nil
}

// maxRenewals is the maximum number of leases, and of sessions, of a heartbeat that are decoded one by one.
const maxRenewals = 100_000
