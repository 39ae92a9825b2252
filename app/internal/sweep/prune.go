package sweep

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/store"
)

// startDelay is the pause after the start of a process before it prunes: other work is more urgent then.
const startDelay = time.Minute

// PruneOften and PruneSeldom bound the pause between two searches for expired rows.
const (
	PruneOften  = time.Minute
	PruneSeldom = 24 * time.Hour
)

// Prune deletes expired rows until ctx ends. remove deletes the rows that have expired and returns the time until the
// next expiry, zero for none. Rows are retained for a day at least, so one call per day is enough to miss nothing.
func Prune(ctx context.Context, remove func(context.Context) (time.Duration, error), log zerolog.Logger) {
	for pause := startDelay; ; {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		next, err := remove(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			store.Warn(&log, err).Msg("failed to remove data past its retention; retrying in an hour")
			next = time.Hour
		}
		if pause = PruneSeldom; next > 0 {
			pause = min(max(next, PruneOften), PruneSeldom)
		}
	}
}
