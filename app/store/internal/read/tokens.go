package read

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/history"
)

// A token is read for a request only if it is in no cache. The callers check permissions.

func (r *reader) Token(ctx context.Context, id string) (t store.Token, err error) {
	err = r.queryRow(ctx, selectAll(record.Tokens)+" WHERE token_id = $1", []any{id}, func(v []any) (err error) {
		t, err = record.ReadToken(v)
		return err
	})
	return t, wrapRead(err, "token %s", id)
}

func (r *reader) Tokens(ctx context.Context) ([]store.Token, error) {
	var list []store.Token
	err := r.query(ctx, selectAll(record.Tokens)+" ORDER BY created_at, token_id", nil, func(v []any) error {
		t, err := record.ReadToken(v)
		list = append(list, t)
		return err
	})
	return list, wrapRead(err, "tokens")
}

// Audits returns the newest audit entries first.
func (r *reader) Audits(ctx context.Context, namespace string, common bool, limit int) ([]store.Audit, error) {
	var list []store.Audit
	other := namespace
	if common {
		other = ""
	}
	query := selectAll(record.Audit) + " WHERE namespace IN ($1, $2) ORDER BY id DESC LIMIT $3"
	err := r.query(ctx, query, []any{namespace, other, int64(limit)}, func(v []any) error {
		list = append(list, store.Audit{
			At: history.Micros(db.Int(v[0])), Identity: db.Str(v[1]), Action: db.Str(v[2]), Namespace: db.Str(v[3]),
			Target: db.Str(v[4]), Detail: db.Str(v[5]),
		})
		return nil
	})
	return list, wrapRead(err, "audit")
}

// OldAudits reads entries in the order in which they were written, by the primary key, and stops at the first entry
// that is not old. An index by time is not needed, because entries are written in the order of the store's clock.
func (r *reader) OldAudits(ctx context.Context, before time.Time, limit int) (numbers []int64, err error) {
	const query = "SELECT id, at FROM audit ORDER BY id LIMIT $1"
	old := true
	err = r.query(ctx, query, []any{int64(limit)}, func(v []any) error {
		if old = old && history.Micros(db.Int(v[1])).Before(before); old {
			numbers = append(numbers, db.Int(v[0]))
		}
		return nil
	})
	return numbers, wrapRead(err, "old audit entries")
}
