package sqldb

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/quota"
	"github.com/sojourn-run/sojourn/app/store"
)

// A batch changes the usage of namespaces only by its decisions, so the change is counted without a statement.

// Quotas returns the ledger that counts how the commits of this process change the usage of namespaces.
func (s *Store) Quotas() *quota.Ledger { return s.ledger }

// addUsage adds to the batch's change of a namespace's usage.
func (b *batch) addUsage(namespace string, u engine.Usage) {
	if u == (engine.Usage{}) {
		return
	}
	if b.usage == nil {
		b.usage = map[string]engine.Usage{}
	}
	b.usage[namespace] = b.usage[namespace].Plus(u)
}

// Quotas returns the usage of a namespace including what the batch has decided so far.
func (b *batch) Quotas(namespace string) engine.QuotaStanding {
	return b.s.ledger.Standing(namespace, b.usage[namespace])
}

// commitUsage adds the changes of a committed batch to the ledger.
func (b *batch) commitUsage() {
	for namespace, u := range b.usage {
		b.s.ledger.Add(namespace, u)
	}
	if b.sealed {
		b.s.ledger.Committed(b.number)
	}
}

// Unclean reports whether the previous process did not close the database, if only one process uses it.
func (s *Store) Unclean() bool { return s.cfg.Unclean }

// usageTries is how often a count is restarted because a batch was committed while the snapshot was taken.
const usageTries = 50

var errBatchBetween = errors.New("a batch was committed while the snapshot was opened")

// CountUsage counts the runs of a namespace. The snapshot that it reads belongs to a known state of the ledger: both
// have the same last batch, and no exchange is in progress. If batches follow each other so closely that no such
// snapshot is found, the count may differ by one of them.
func (s *Store) CountUsage(ctx context.Context, namespace string) (c store.UsageCount, err error) {
	for try := 1; ; try++ {
		before := s.ledger.Position(namespace)
		err = s.View(ctx, func(r store.Reader) (err error) {
			c.Counted, err = r.CountUsage(ctx, namespace, s.cfg.App, func(row store.Namespace, batch int64) error {
				p := s.ledger.Position(namespace)
				if (p != before || p.Storing || batch != p.Batch) && try < usageTries {
					return errBatchBetween
				}
				c.Row, c.Known, c.Stored = row, row.Usage.Plus(p.Pending), p.Stored
				return nil
			})
			return err
		})
		if !errors.Is(err, errBatchBetween) {
			return c, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return c, context.Cause(ctx)
		}
	}
}
