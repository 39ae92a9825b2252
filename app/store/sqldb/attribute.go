package sqldb

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A filter on an attribute must find its runs without reading all runs, so each value has its own row. The row repeats
// the namespace and the start of the run: an index over them lists the runs with one value in the order of the page,
// and stops when the page is full.

// attributeRun is the key of all rows of a run.
var attributeRun = record.Attributes.Columns[:1]

// reindex records that the search attributes of a run change, so that the rows of its attributes are written again.
func (r *run) reindex(next json.RawMessage) {
	if !r.attributed && !bytes.Equal(r.SearchAttributes, next) {
		r.attributed, r.indexed = true, len(r.SearchAttributes) > 0
	}
}

// gatherAttributes adds the new rows of one run to rows, and the rows that must be deleted first to gone.
func (b *batch) gatherAttributes(r *run, rows, gone *db.Rowset) {
	if !r.attributed {
		return
	}
	// The rows are deleted and inserted again instead of compared, because attributes change seldom and are few.
	if r.indexed {
		gone.S(r.ID)
	}
	for _, a := range attributeRows(r.SearchAttributes) {
		rows.S(r.ID).S(a[0]).S(a[1]).S(r.Namespace).I(r.StartedAt.Micros())
	}
}

// attributeRows returns the names and keys by which filters find search attributes. A value from before values had a
// maximum length may be longer; it gets no key, because an index would refuse the key, and every change of the run
// would fail.
func attributeRows(attributes json.RawMessage) (list [][2]string) {
	var values map[string]json.RawMessage
	if json.Unmarshal(attributes, &values) != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		for _, key := range engine.AttributeKeys(values[name]) {
			if len(key) <= protocol.MaxAttributeBytes && len(name) <= protocol.MaxAttributeName {
				list = append(list, [2]string{name, key})
			}
		}
	}
	return list
}

// IndexAttributes is migration 7 of every database: it indexes the search attributes of runs that were stored before
// search attributes were indexed. It is Go code instead of SQL, because the engine computes the keys.
func IndexAttributes(ctx context.Context, tx *sql.Tx) error {
	for after := ""; ; {
		runs, err := described(ctx, tx, after)
		if err != nil {
			return fmt.Errorf("find runs by search attribute: %w", err)
		}
		for _, f := range runs {
			after = f.id
			h, err := record.Undocument[engine.Head](f.state)
			if err != nil { // an unreadable document must not prevent the app from starting
				continue
			}
			for _, a := range attributeRows(h.SearchAttributes) {
				const insert = "INSERT INTO run_attributes (run_id, name, value, namespace, started_at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING"
				if _, err := tx.ExecContext(ctx, insert, f.id, a[0], a[1], f.namespace, f.started); err != nil {
					return fmt.Errorf("search attributes of run %s: %w", f.id, err)
				}
			}
		}
		if len(runs) == 0 {
			return nil
		}
	}
}

// describedRun is a run that has search attributes.
type describedRun struct {
	id, namespace string
	started       int64
	state         string
}

// described returns one page of the runs with search attributes.
func described(ctx context.Context, tx *sql.Tx, after string) (runs []describedRun, err error) {
	const page = "SELECT run_id, namespace, started_at, state FROM runs WHERE run_id > $1 AND state LIKE '%\"search_attributes\":%' ORDER BY run_id LIMIT 500"
	rows, err := tx.QueryContext(ctx, page, after)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r describedRun
		if err := rows.Scan(&r.id, &r.namespace, &r.started, &r.state); err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, rows.Err()
}
