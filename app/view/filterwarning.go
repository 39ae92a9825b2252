package view

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/filter"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A misspelled attribute matches nothing and causes no error, and an empty page looks like a valid result. So a filter
// with an attribute that no run has returns a warning.

// filterWarnings names the search attributes of a filter that are neither registered nor on any run. Such a filter is
// not an error, since the first run with the attribute may start later, but the name is probably misspelled. Attributes
// on the page itself need no read, so filters with matches cost nothing extra.
func filterWarnings(
	ctx context.Context, r store.Reader, q store.RunQuery, types map[string]string, page []protocol.RunView,
) (list []protocol.Warning, err error) {
	var free []string
	for _, name := range filter.Attributes(q.Where) {
		if _, registered := types[name]; !registered {
			free = append(free, name)
		}
	}
	if free = slices.DeleteFunc(free, shownOn(page)); len(free) == 0 {
		return nil, nil
	}
	unknown, err := r.Uncarried(ctx, q.Namespace, free)
	for _, name := range unknown {
		w := protocol.Warning{
			Code: "unknown_attribute", Subject: name,
			Message: "no run carries the search attribute " + name + ", and it is not registered",
		}
		for _, other := range slices.Sorted(maps.Keys(types)) {
			if strings.EqualFold(other, name) {
				w.Message += "; " + other + " is registered; names are case-sensitive"
				break
			}
		}
		list = append(list, w)
	}
	return list, err
}

// shownOn reports whether one of these runs has an attribute. A value that no filter finds, such as an empty list, does
// not count.
func shownOn(page []protocol.RunView) func(name string) bool {
	carried := map[string]bool{}
	for _, v := range page {
		var values map[string]json.RawMessage
		if json.Unmarshal(v.SearchAttributes, &values) == nil {
			for name, value := range values {
				carried[name] = carried[name] || len(engine.AttributeKeys(value)) > 0
			}
		}
	}
	return func(name string) bool { return carried[name] }
}
