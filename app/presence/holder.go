package presence

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Whether the holder of a session is dead is asked only once its lease is over, and then of whoever knows best: this
// app's ears, else what is stored, and for an app alone also how long it has been up to hear it.

// StaleHolder is the worker whose lease on the session is over, if its registration is gone or it has not been heard of
// for longer than a living worker may be silent; else "".
func (ws *Workers) StaleHolder(ctx context.Context, key engine.SessionKey) (string, error) {
	now, err := ws.store.Now(ctx)
	if err != nil {
		return "", err
	}
	stale := ""
	err = ws.store.View(ctx, func(r store.Reader) error {
		s, err := r.Session(ctx, key)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil
		case err != nil, s.Terminal, s.Owner == "", s.Status != protocol.SessionActive, s.LeaseUntil.After(now):
			return err
		}
		owner := engine.WorkerKey{Namespace: key.Namespace, ID: s.Owner}
		h, known := ws.All(key.Namespace)[owner]
		if known && !h.At.IsZero() {
			if time.Since(h.At) > ws.opt.Alive {
				stale = s.Owner
			}
			return nil
		}
		w, err := r.Worker(ctx, owner)
		switch {
		case errors.Is(err, store.ErrNotFound):
			stale = s.Owner
		case err != nil:
			return err
		case ws.opt.Shared && !w.AliveUntil.After(now), !ws.opt.Shared && time.Since(ws.started) > ws.opt.Alive:
			stale = s.Owner
		}
		return nil
	})
	return stale, err
}
