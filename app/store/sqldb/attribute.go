package sqldb

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
)

// attributesTable holds a row for every value of the search attributes of runs, by the key that orders as the value does.
var attributesTable = &table{name: "run_attributes", keys: 3, columns: []column{
	text("run_id"), text("name"), text("value"), text("namespace"), num("started_at"),
}}

// attributeRun names all rows of a run.
var attributeRun = attributesTable.columns[:1]

// reindex notes that the search attributes of a run become others: its rows are written anew.
func (r *run) reindex(next json.RawMessage) {
	if !r.attributed && !bytes.Equal(r.SearchAttributes, next) {
		r.attributed, r.indexed = true, len(r.SearchAttributes) > 0
	}
}

// gatherAttributes adds the rows of one run, and what of it goes first.
func (b *batch) gatherAttributes(r *run, rows, gone *rowset) {
	if !r.attributed {
		return
	}
	if r.indexed {
		gone.s(r.ID)
	}
	var values map[string]json.RawMessage
	if json.Unmarshal(r.SearchAttributes, &values) != nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		for _, key := range engine.AttributeKeys(values[name]) {
			rows.s(r.ID).s(name).s(key).s(r.Namespace).i(r.StartedAt.Micros())
		}
	}
}
