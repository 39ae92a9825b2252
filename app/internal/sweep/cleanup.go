package sweep

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// farFuture is a time by which every ended session may be removed.
const farFuture = 100 * 365 * 24 * time.Hour

// nextCleanup deletes ended sessions when the cleanup is due, and returns the time of the next cleanup: zero while this
// process knows no ended session. On a shared database there is always a next time, since other processes send no
// notification.
func (s *Sweeper) nextCleanup(ctx context.Context) time.Time {
	if s.opt.Remove == nil || (s.empty && !s.opt.Shared && !s.moved.Load()) {
		s.clean = time.Time{}
		return s.clean
	}
	switch now := time.Now(); {
	case s.clean.IsZero():
		s.clean = now.Add(s.opt.Cleanup)
	case !s.clean.After(now):
		s.moved.Store(false)
		if err := s.remove(ctx); err != nil && ctx.Err() == nil {
			s.empty = false
			s.logFailure(err, "failed to clean up sessions; retrying later")
		}
		s.clean = time.Now().Add(s.opt.Cleanup)
	}
	return s.clean
}

func (s *Sweeper) remove(ctx context.Context) error {
	now, err := s.store.Now(ctx)
	if err != nil {
		return err
	}
	var last engine.SessionKey
	for {
		var ended []engine.SessionKey
		err := s.store.View(ctx, func(r store.Reader) error {
			var err error
			if ended, err = r.Removable(ctx, now, now.Add(-s.opt.Retention), s.opt.Limit); err != nil || len(ended) > 0 {
				return err
			}
			someday, err := r.Removable(ctx, now.Add(farFuture), now.Add(farFuture), 1)
			s.empty = len(someday) == 0
			return err
		})
		if err != nil || len(ended) == 0 {
			return err
		}
		s.empty = false
		if err := s.opt.Remove(ctx, ended); err != nil {
			return err
		}
		if len(ended) < s.opt.Limit || ended[0] == last {
			return nil // further sessions, and rejected deletions, wait for the next cleanup
		}
		last = ended[0]
	}
}
