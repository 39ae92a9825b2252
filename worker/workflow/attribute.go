package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The limits of one upsert: entries, and encoded bytes of a memo entry and of a search attribute.
const (
	maxEntries        = 100
	maxMemoEntry      = 10_240
	maxAttributeBytes = 2_048
)

var (
	entryName   = regexp.MustCompile(`^[A-Za-z0-9_.:-]+$`) // up to 64
	wholeNumber = regexp.MustCompile(`^-?[0-9]+$`)
)

// UpsertMemo puts entries over those of the run's memo, which people and lists of runs see; nil takes an entry away.
// Names are 1 to 64 of letters, digits and _ . : -, and no numbers; values are any with an encoding, of at most 10,240
// bytes. Continue-as-new keeps them.
func UpsertMemo(ctx Context, entries map[string]any) error {
	m := ctx.inner().m
	m.here()
	p, err := encodeMemo(entries)
	if err != nil {
		return err
	}
	m.issue(&protocol.Command{Type: protocol.UpsertMemo, Entries: p})
	return nil
}

func encodeMemo(entries map[string]any) (none payload.Payload, err error) {
	if err := checkNames("memo", entries); err != nil {
		return none, err
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		p, err := payload.Encode(entries[name])
		if err != nil {
			return none, fmt.Errorf("memo %q: %w", name, err)
		}
		if n := len(p.Blob) / 4 * 3; n > maxMemoEntry {
			return none, fmt.Errorf("%w: memo %q has %d bytes, at most %d", ErrInvalidOptions, name, n, maxMemoEntry)
		}
	}
	p, err := payload.Encode(entries)
	if err != nil {
		return none, fmt.Errorf("memo: %w", err)
	}
	return p, nil
}

// UpsertSearchAttributes puts values over the run's search attributes, by which lists of runs are filtered; nil takes
// one away. Names are as for UpsertMemo; values are text, numbers, true or false, times, or lists of texts, of at most
// 2,048 bytes.
func UpsertSearchAttributes(ctx Context, attributes map[string]any) error {
	m := ctx.inner().m
	m.here()
	raw, err := encodeAttributes(attributes)
	if err != nil {
		return err
	}
	m.issue(&protocol.Command{Type: protocol.UpsertSearchAttributes, Attributes: raw})
	return nil
}

func encodeAttributes(attributes map[string]any) (json.RawMessage, error) {
	if err := checkNames("search attribute", attributes); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		raw, err := json.Marshal(attributes[name])
		switch {
		case err != nil:
			return nil, fmt.Errorf("search attribute %q: %w", name, err)
		case len(raw) > maxAttributeBytes:
			return nil, fmt.Errorf(
				"%w: search attribute %q has %d bytes, at most %d", ErrInvalidOptions, name, len(raw), maxAttributeBytes,
			)
		case raw[0] == '{':
			return nil,
				fmt.Errorf("%w: search attribute %q is %T, want text, a number, true or false, a time, or a list of texts",
					ErrInvalidOptions, name, attributes[name])
		case raw[0] == '[' && json.Unmarshal(raw, new([]string)) != nil:
			return nil, fmt.Errorf("%w: search attribute %q is a list of other things than texts", ErrInvalidOptions, name)
		}
	}
	raw, err := json.Marshal(attributes)
	if err != nil {
		return nil, fmt.Errorf("search attributes: %w", err)
	}
	return raw, nil
}

func checkNames(what string, entries map[string]any) error {
	if len(entries) == 0 || len(entries) > maxEntries {
		return fmt.Errorf("%w: %d entries of %s, want 1 to %d", ErrInvalidOptions, len(entries), what, maxEntries)
	}
	for name := range entries {
		if len(name) > 64 || !entryName.MatchString(name) || wholeNumber.MatchString(name) {
			return fmt.Errorf(
				"%w: %s %q: a name is 1 to 64 of letters, digits and _ . : -, and no number", ErrInvalidOptions, what, name,
			)
		}
	}
	return nil
}
