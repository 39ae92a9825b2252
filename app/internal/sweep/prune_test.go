package sweep_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/internal/sweep"
)

// Prune runs when the next row expires, and once a day if no expiry is known.
func TestPruneRunsWhenAnEntryIsExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, last := time.Now(), 0
		var looks []time.Duration
		answers := []struct {
			next time.Duration
			err  error
		}{
			{3 * time.Hour, nil},
			{time.Second, nil},
			{0, errors.New("the database is away")},
			{0, nil},
			{100 * 24 * time.Hour, nil},
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			sweep.Prune(ctx, func(context.Context) (time.Duration, error) {
				looks = append(looks, time.Since(began))
				a := answers[last]
				if last++; last == len(answers) {
					cancel()
				}
				return a.next, a.err
			}, zerolog.Nop())
		}()
		<-done
		first := time.Minute
		want := []time.Duration{
			first, first + 3*time.Hour, first + 3*time.Hour + time.Minute, first + 4*time.Hour +
				time.Minute,
			first + 28*time.Hour + time.Minute,
		}
		if !slices.Equal(looks, want) {
			t.Errorf("looked at %v, want %v", looks, want)
		}
	})
}
