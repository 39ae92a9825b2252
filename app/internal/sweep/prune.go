package sweep

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/store"
)

// settled is how long a new process leaves old rows alone: it has more urgent things to do.
const settled = time.Minute

// PruneOften and PruneSeldom bound the pause between two looks for what is past its time.
const (
	PruneOften  = time.Minute
	PruneSeldom = 24 * time.Hour
)

// Prune removes what is past its time until ctx ends. remove takes away what there is and returns when something will
// be past its time next, zero for never. What has yet to end is kept for a day at least, so that a look a day misses
// nothing; in between nothing is asked.
func Prune(ctx context.Context, remove func(context.Context) (time.Duration, error), log zerolog.Logger) {
	for pause := settled; ; {
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
