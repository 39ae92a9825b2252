package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// UpsertMemo merges entries into the run's memo, which the dashboard and lists of runs show; a nil value removes an
// entry. Names have 1 to 64 letters, digits and _ . : - and must not be numbers; values may have any type whose
// encoding has at most 10,240 bytes. Continue-as-new keeps the memo.
func UpsertMemo(ctx Context, entries map[string]any) error {
	m := ctx.inner().m
	m.currentBranch()
	p, err := encodeMemo(entries)
	if err != nil {
		return err
	}
	m.issue(&protocol.Command{Type: protocol.UpsertMemo, Entries: p})
	return nil
}

func encodeMemo(entries map[string]any) (none payload.Payload, err error) {
	if err := checkLabels("memo", protocol.MaxMemoName, entries); err != nil {
		return none, err
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		p, err := payload.Encode(entries[name])
		if err != nil {
			return none, fmt.Errorf("memo %q: %w", name, err)
		}
		if n := len(p.Blob) / 4 * 3; n > protocol.MaxMemoEntry {
			return none, fmt.Errorf("%w: memo %q has %d bytes, at most %d", ErrInvalidOptions, name, n, protocol.MaxMemoEntry)
		}
	}
	p, err := payload.Encode(entries)
	if err != nil {
		return none, fmt.Errorf("memo: %w", err)
	}
	if n := len(p.Blob) / 4 * 3; n > protocol.MaxMemo {
		return none, fmt.Errorf("%w: the memo has %d bytes, at most %d", ErrInvalidOptions, n, protocol.MaxMemo)
	}
	return p, nil
}

// UpsertSearchAttributes merges values into the run's search attributes, by which lists of runs are filtered; a nil
// value removes an attribute. Names follow the rules of UpsertMemo, with up to 128 characters; values are texts,
// numbers, booleans, times, or lists of texts, of at most 2,048 bytes.
func UpsertSearchAttributes(ctx Context, attributes map[string]any) error {
	m := ctx.inner().m
	m.currentBranch()
	raw, err := encodeAttributes(attributes)
	if err != nil {
		return err
	}
	m.issue(&protocol.Command{Type: protocol.UpsertSearchAttributes, Attributes: raw})
	return nil
}

func encodeAttributes(attributes map[string]any) (json.RawMessage, error) {
	if err := checkLabels("search attribute", protocol.MaxAttributeName, attributes); err != nil {
		return nil, err
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		raw, err := json.Marshal(attributes[name])
		total += len(name) + len(raw)
		switch {
		case err != nil:
			return nil, fmt.Errorf("search attribute %q: %w", name, err)
		case len(raw) > protocol.MaxAttributeBytes:
			return nil, fmt.Errorf(
				"%w: search attribute %q has %d bytes, at most %d", ErrInvalidOptions, name, len(raw), protocol.MaxAttributeBytes,
			)
		case raw[0] == '{':
			return nil,
				fmt.Errorf("%w: search attribute %q is %T, must be a string, number, boolean, time or list of strings",
					ErrInvalidOptions, name, attributes[name])
		case raw[0] == '[' && json.Unmarshal(raw, new([]string)) != nil:
			return nil, fmt.Errorf("%w: search attribute %q is a list that has values other than strings", ErrInvalidOptions, name)
		}
	}
	raw, err := json.Marshal(attributes)
	if err != nil {
		return nil, fmt.Errorf("search attributes: %w", err)
	}
	if total > protocol.MaxAttributesBytes {
		return nil, fmt.Errorf(
			"%w: the search attributes have %d bytes, at most %d", ErrInvalidOptions, total, protocol.MaxAttributesBytes,
		)
	}
	return raw, nil
}

func checkLabels(what string, longest int, entries map[string]any) error {
	if len(entries) == 0 || len(entries) > protocol.MaxAttributes {
		return fmt.Errorf("%w: %d entries of %s, must be 1 to %d", ErrInvalidOptions, len(entries), what, protocol.MaxAttributes)
	}
	for name := range entries {
		if !protocol.IsLabel(name, longest) {
			return fmt.Errorf(
				"%w: %s %q: a name is 1 to %d of letters, digits and _ . : -, and no number", ErrInvalidOptions, what, name,
				longest,
			)
		}
	}
	return nil
}
