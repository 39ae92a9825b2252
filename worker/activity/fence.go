package activity

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// SessionFence identifies one acquisition of a session. The epoch rises with each acquisition over the whole life of
// the session ID, so a store outside Sojourn that keeps the highest epoch can reject the late writes of a former owner:
// a worker whose process was frozen or that lost its network.
type SessionFence struct {
	Namespace string
	SessionID string
	Epoch     int64
}

// Fence returns the fence of the attempt's session. It returns an error outside a session, and in a set-up for a
// hand-over, while another worker owns the session.
func Fence(ctx context.Context) (SessionFence, error) {
	s, ok := Session(ctx)
	if !ok {
		return SessionFence{}, errors.New("activity: fence outside a session")
	}
	if s.Epoch == 0 {
		return SessionFence{}, errors.New("activity: the session is prepared for a hand-over and has no epoch yet")
	}
	return SessionFence{Namespace: Info(ctx).Namespace, SessionID: s.ID, Epoch: s.Epoch}, nil
}

// FenceTable is the statement that creates the table of [SessionFence.Apply] in PostgreSQL or SQLite. The table belongs
// to the database that the activities write, not to the database of the app.
const FenceTable = `CREATE TABLE IF NOT EXISTS sojourn_fences (
	namespace text NOT NULL, session_id text NOT NULL, epoch bigint NOT NULL, PRIMARY KEY (namespace, session_id)
)`

// FenceStatement stores an epoch unless a higher one is stored. Its parameters are namespace, session ID and epoch. If
// it changes no row, the caller was fenced and must roll back. It is for drivers without database/sql and for other
// languages; [SessionFence.Apply] runs it.
const FenceStatement = `INSERT INTO sojourn_fences (namespace, session_id, epoch) VALUES ($1, $2, $3)
ON CONFLICT (namespace, session_id) DO UPDATE SET epoch = excluded.epoch WHERE sojourn_fences.epoch <= excluded.epoch`

// ErrFenced matches, by errors.Is, the error of [SessionFence.Apply] for an owner that a later one replaced.
var ErrFenced = errors.New("a later owner of the session has written")

// FenceTx is a transaction of database/sql; *sql.Tx implements it.
type FenceTx interface {
	// ExecContext runs a statement in the transaction.
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Apply checks and stores the epoch in the caller's transaction, which must also contain the writes that it protects.
// If a later owner of the session has stored its epoch, the error is ErrFenced, and the caller must roll back. The row
// stays locked until the transaction ends: in PostgreSQL a later owner waits for an earlier one that is about to
// commit. The table must exist; see [FenceTable].
func (f SessionFence) Apply(ctx context.Context, tx FenceTx) error {
	result, err := tx.ExecContext(ctx, FenceStatement, f.Namespace, f.SessionID, f.Epoch)
	if err != nil {
		return fmt.Errorf("fence of session %s: %w", f.SessionID, err)
	}
	changed, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("fence of session %s: %w", f.SessionID, err)
	}
	if changed == 0 {
		return fmt.Errorf("session %s, epoch %d: %w", f.SessionID, f.Epoch, ErrFenced)
	}
	return nil
}
