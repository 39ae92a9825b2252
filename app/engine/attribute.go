package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Memo and search attributes are labels by which people and filters find runs. The run's row contains them, and an
// index contains the search attributes. Their sizes are limited before they reach history, because a value in history
// can no longer be refused.

// MaxStartMemo is the maximum size of the memo of a start or schedule, in bytes of JSON as received.
const MaxStartMemo = 256 << 10

var attributeTypes = []string{"string", "text", "keyword", "keyword_list", "int", "float", "double", "bool", "datetime"}

type object = map[string]json.RawMessage

// upsert merges one command into the run's memo or search attributes and checks the size of the result, since many
// small upserts may together exceed the limit.
func upsert(
	c protocol.Command, memo, attributes json.RawMessage, at func(string) string,
) (merged json.RawMessage, err error) {
	if c.Type == protocol.UpsertMemo {
		return mergedMemo(c, memo, at)
	}
	return mergedAttributes(c, attributes, at)
}

// memoAndAttributes returns the memo and the search attributes of a started child; nil means none.
func memoAndAttributes(c protocol.Command, at func(string) string) (memo, attributes json.RawMessage, err error) {
	if !c.Entries.IsZero() {
		if memo, err = mergedMemo(c, nil, at); err != nil {
			return nil, nil, err
		}
	}
	if len(c.Attributes) > 0 {
		attributes, err = mergedAttributes(c, nil, at)
	}
	return memo, attributes, err
}

// mergedMemo returns a run's memo after applying the entries of a command.
func mergedMemo(c protocol.Command, memo json.RawMessage, at func(string) string) (json.RawMessage, error) {
	decoded, err := payload.ToJSON(c.Entries)
	if err != nil {
		return nil, protocol.Invalid(at("entries"), "%v", err)
	}
	all, err := merge(memo, decoded, at("entries"), protocol.MaxMemoName)
	if err != nil {
		return nil, err
	}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if n := encoded(all[k]); n > protocol.MaxMemoEntry {
			return nil, tooMuch("memo_entry_size", n, protocol.MaxMemoEntry)
		}
	}
	out := raw(all)
	if n := encoded(out); n > protocol.MaxMemo {
		return nil, tooMuch("memo_size", n, protocol.MaxMemo)
	}
	return out, nil
}

// mergedAttributes returns a run's search attributes after applying those of a command. It checks only that the
// declared types exist; checkUpserts compares them with the types that the namespace registered.
func mergedAttributes(c protocol.Command, attributes json.RawMessage, at func(string) string) (json.RawMessage, error) {
	if len(c.Attributes) == 0 {
		return nil, protocol.Invalid(at("attributes"), "is needed")
	}
	all, err := merge(attributes, c.Attributes, at("attributes"), protocol.MaxAttributeName)
	if err != nil {
		return nil, err
	}
	if err := checkAttributeSizes(all, at("attributes")); err != nil {
		return nil, err
	}
	var types map[string]string
	if len(c.AttributeTypes) > 0 {
		if err := json.Unmarshal(c.AttributeTypes, &types); err != nil {
			return nil, protocol.Invalid(at("attribute_types"), "must map names to types")
		}
	}
	for k, typ := range types {
		if !slices.Contains(attributeTypes, typ) {
			return nil, protocol.Invalid(at("attribute_types")+"."+k, "must be one of %v, not %q", attributeTypes, typ)
		}
	}
	return raw(all), nil
}

// checkAttributeSizes checks the sizes of all search attributes after a start or an upsert.
func checkAttributeSizes(all object, field string) error {
	total := 0
	for _, k := range slices.Sorted(maps.Keys(all)) {
		v := all[k]
		if len(v) > protocol.MaxAttributeBytes {
			return tooMuch("search_attribute_size", len(v), protocol.MaxAttributeBytes)
		}
		if v[0] == '{' {
			return protocol.Invalid(field+"."+k, "must be text, a number, true or false, or a list of texts")
		}
		if err := codable(field+"."+k, v); err != nil {
			return err
		}
		total += len(k) + len(v)
	}
	if total > protocol.MaxAttributesBytes {
		return tooMuch("search_attributes_size", total, protocol.MaxAttributesBytes)
	}
	return nil
}

// merge overwrites the entries of one object with those of another; null deletes an entry. It checks the names in
// sorted order, so that a repeated request gets the same refusal.
func merge(old, change json.RawMessage, field string, longest int) (object, error) {
	all, entries := object{}, object{}
	if len(old) > 0 {
		if err := json.Unmarshal(old, &all); err != nil || all == nil {
			all = object{}
		}
	}
	if err := json.Unmarshal(change, &entries); err != nil || entries == nil {
		return nil, protocol.Invalid(field, "must be a map of names to values")
	}
	for _, k := range slices.Sorted(maps.Keys(entries)) {
		v := entries[k]
		if !protocol.IsLabel(k, longest) {
			return nil, protocol.Invalid(
				field, "name %q must have 1 to %d letters, digits and _ . : - and must not be a number", shorten(k), longest,
			)
		}
		if string(v) == "null" {
			delete(all, k)
		} else {
			all[k] = v
		}
	}
	if len(all) > protocol.MaxAttributes {
		return nil, tooMuch(field, len(all), protocol.MaxAttributes)
	}
	return all, nil
}

// CheckMemo refuses a memo of a start that an upsert could not have produced; it does not check the size. Empty means
// no memo.
func CheckMemo(given json.RawMessage) error {
	if len(given) == 0 || string(given) == "null" {
		return nil
	}
	all, err := merge(nil, given, "memo", protocol.MaxMemoName)
	if err != nil {
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if err := codable("memo."+k, all[k]); err != nil {
			return err
		}
	}
	return nil
}

// codable refuses a value that the decoder cannot represent, such as 1e400: an upsert could never merge it.
func codable(field string, v json.RawMessage) error {
	if _, err := payload.FromJSON(v); err != nil {
		reason := payload.Reason(err)
		field, err = payload.Place(field, err)
		return protocol.Invalid(field, "%v", err).With("payload_reason", reason)
	}
	return nil
}

// CheckAttributes refuses search attributes of a start that an upsert could not have produced. Empty means none.
func CheckAttributes(given json.RawMessage) error {
	if len(given) == 0 || string(given) == "null" {
		return nil
	}
	all, err := merge(nil, given, "search_attributes", protocol.MaxAttributeName)
	if err != nil {
		return err
	}
	return checkAttributeSizes(all, "search_attributes")
}

func tooMuch(kind string, n, most int) error {
	return protocol.Refuse(protocol.ReasonStructuralLimit, "%s: %d, at most %d", kind, n, most).
		With("limit_kind", kind).With("current_value", n).With("configured_limit", most)
}

// encoded returns the size of a value encoded as a payload.
func encoded(v json.RawMessage) int {
	p, err := payload.FromJSON(v)
	if err != nil {
		return len(v)
	}
	return len(p.Blob) / 4 * 3
}

func (st *step) upsertMemo(c protocol.Command, seq int64) error {
	merged, err := mergedMemo(c, st.Memo, func(f string) string { return f })
	if err != nil {
		return err
	}
	p, err := payload.FromView(merged)
	if err != nil {
		return fmt.Errorf("merged memo: %w", err)
	}
	st.emit(&history.MemoUpserted{Sequence: seq, Entries: c.Entries, Merged: p})
	return nil
}

func (st *step) upsertAttributes(c protocol.Command, seq int64) error {
	merged, err := mergedAttributes(c, st.SearchAttributes, func(f string) string { return f })
	if err != nil {
		return err
	}
	st.emit(&history.SearchAttributesUpserted{
		Sequence: seq, Attributes: c.Attributes, Types: c.AttributeTypes, Merged: merged,
	})
	return nil
}

// memoUpserted replaces the memo with that of the event.
func (s *Run) memoUpserted(d *history.MemoUpserted) {
	if merged, err := payload.ToJSON(d.Merged); err == nil {
		s.Memo = merged
	}
}
