package read

import (
	"context"
	"fmt"
	"strings"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// A filter on a name that no run has is usually a misspelling, and is reported.

// uncarried returns a statement that selects, of n attribute names, the positions (from 0) of names that no run of a
// namespace has.
func uncarried(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(" UNION ALL ")
		}
		// The ORDER BY makes PostgreSQL use an index; without it, PostgreSQL may read all rows before it finds that
		// there are none.
		const none = "(SELECT 1 FROM run_attributes WHERE namespace = $1 AND name = $%d AND substr(value, 1, 1) %s ORDER BY %s LIMIT 1) IS NULL"
		fmt.Fprintf(&b, "SELECT %d WHERE "+none+" AND "+none, i, i+2, "= 'd'", "started_at >> 32", i+2, "<> 'd'", "value")
	}
	return b.String()
}

// Uncarried uses one statement for all names.
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
