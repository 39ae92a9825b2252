package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// restoreBatchSize is the number of sessions that one transaction releases.
const restoreBatchSize = 200

// ReleaseAll releases every session of a namespace, also suspended ones, and raises the epoch watermark of the
// namespace to the larger of the store's clock and lowest, in microseconds. Every later acquisition gets an epoch above
// the watermark. It returns the number of sessions that it released, and the watermark.
func ReleaseAll(
	ctx context.Context, s store.Store, namespace string, lowest int64,
) (released int, floor int64, err error) {
	floor, err = transaction.Commit[int64](ctx, s, store.Transaction{
		Decide: func(_ store.Rows, now time.Time) (store.Writes, error) {
			at := max(now.UnixMicro(), lowest)
			return store.Writes{
				EpochWatermarks: map[string]int64{namespace: at}, Answer: at,
				Audit: []store.Audit{{
					At: history.At(now), Identity: "operator", Action: "sessions.release_all", Namespace: namespace,
					Detail: fmt.Sprintf("epoch floor %d", at),
				}},
			}, nil
		},
	})
	if err != nil {
		return 0, 0, err
	}
	// The list is ordered by last update, newest first, and a release is an update, so later pages never repeat a
	// session.
	for q := (store.SessionQuery{Namespace: namespace, Limit: restoreBatchSize}); ; {
		var list []engine.Session
		err := s.View(ctx, func(r store.Reader) (err error) {
			list, err = r.Sessions(ctx, q)
			return err
		})
		if err != nil || len(list) == 0 {
			return released, floor, err
		}
		var keys []engine.SessionKey
		for i := range list {
			keys = append(keys, list[i].Key())
			q.AfterUpdated, q.AfterID = list[i].UpdatedAt, list[i].ID
		}
		n, err := transaction.Commit[int](ctx, s, store.Transaction{
			Needs: store.Keys{Sessions: keys},
			Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
				var w store.Writes
				for _, k := range keys {
					c, err := engine.DecideSession(rows.Session(k), engine.RestoreSession{}, now)
					if engine.IsNotDue(err) {
						continue
					}
					if err != nil {
						return store.Writes{}, err
					}
					w.Sessions = append(w.Sessions, c)
				}
				w.Answer = len(w.Sessions)
				return w, nil
			},
		})
		if released += n; err != nil {
			return released, floor, err
		}
	}
}
