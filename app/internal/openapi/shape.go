package openapi

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
)

var shapeSeed = maphash.MakeSeed()

// shape returns a hash of the properties of a value that most schemas test: member names, types, the values of
// enumerations (short strings without digits), and the set of the shapes of an array's elements. It ignores the number
// and the order of the elements.
func shape(v any) uint64 {
	var h maphash.Hash
	h.SetSeed(shapeSeed)
	switch v := v.(type) {
	case object:
		h.WriteByte('{')
		for _, name := range slices.Sorted(maps.Keys(v)) {
			fmt.Fprintf(&h, "%q%x", name, shape(v[name]))
		}
	case []any:
		shapes := make([]uint64, len(v))
		for i, e := range v {
			shapes[i] = shape(e)
		}
		slices.Sort(shapes)
		fmt.Fprintf(&h, "[%x", slices.Compact(shapes))
	case string:
		h.WriteByte('"')
		if len(v) <= 40 && !strings.ContainsAny(v, "0123456789") {
			h.WriteString(v)
		}
	case bool, nil:
		fmt.Fprint(&h, v)
	default:
		h.WriteByte('0')
	}
	return h.Sum64()
}
