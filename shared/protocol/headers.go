package protocol

import (
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/shared/history"
)

// CheckHeaders rejects headers that exceed the limits: 32 pairs, and 8 KiB of names and values together. A name has 1
// to 255 bytes. field is the path of the headers in the request.
func CheckHeaders(h history.Headers, field string) error {
	if len(h) > history.MaxHeaders {
		return Invalid(field, "has %d pairs; at most %d are allowed", len(h), history.MaxHeaders)
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if name == "" || len(name) > MaxHeaderName {
			return Invalid(field, "the name of a header must be 1 to %d bytes", MaxHeaderName)
		}
		if reason := badText(name); reason != "" {
			return Invalid(field, "the name of header %q %s", name, reason)
		}
		if reason := badText(h[name]); reason != "" {
			return Invalid(field, "the value of header %q %s", name, reason)
		}
		size += len(name) + len(h[name])
	}
	if size > history.MaxHeaderBytes {
		return Invalid(
			field, "has %d bytes of names and values; at most %d are allowed", size, history.MaxHeaderBytes,
		)
	}
	return nil
}

// MaxHeaderName is the maximum length of the name of a header in bytes.
const MaxHeaderName = 255
