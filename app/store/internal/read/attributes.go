package read

import (
	"context"
	"fmt"
	"strings"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// A filter on a name that no run has is usually a misspelling, and is reported.

// uncarried returns the statement that selects the positions, from 0, of those of n names that no run of a namespace
// has.
func uncarried(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(" UNION ALL ")
		}
		// Each index is selected by an ORDER BY: without it, PostgreSQL may read all rows to find none.
		const none = "(SELECT 1 FROM run_attributes WHERE namespace = $1 AND name = $%d AND substr(value, 1, 1) %s ORDER BY %s LIMIT 1) IS NULL"
		fmt.Fprintf(&b, "SELECT %d WHERE "+none+" AND "+none, i, i+2, "= 'd'", "started_at >> 32", i+2, "<> 'd'", "value")
	}
	return b.String()
}

// Uncarried checks all names with one statement.
func (r *reader) Uncarried(ctx context.Context, namespace string, attributes []string) (list []string, err error) {
	if len(attributes) == 0 {
		return nil, nil
	}
	args := []any{namespace}
	for _, name := range attributes {
		args = append(args, name)
	}
	err = r.query(ctx, uncarried(len(attributes)), args, func(v []any) error {
		list = append(list, attributes[db.Int(v[0])])
		return nil
	})
	return list, err
}
