package presence

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Whether the holder of a session is dead is asked only once its lease has ended, and then of whoever knows best: this
// app's ears, else what is stored, and for an app alone also how long it has been up to hear it.

// StaleHolder returns the worker whose lease on the session has expired, if its registration is gone or its last
// heartbeat is older than Options.Alive; else "".
func (ws *Workers) StaleHolder(ctx context.Context, r store.Reader, s *engine.Session, now time.Time) (string, error) {
	if s.Terminal || s.Owner == "" || s.Status != protocol.SessionActive || s.LeaseUntil.After(now) {
		return "", nil
	}
	owner := engine.WorkerKey{Namespace: s.Namespace, ID: s.Owner}
	h, known := ws.All(s.Namespace)[owner]
	if known && !h.At.IsZero() {
		if time.Since(h.At) > ws.opt.Alive {
			return s.Owner, nil
		}
		return "", nil
	}
	w, err := r.Worker(ctx, owner)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return s.Owner, nil
	case err != nil:
		return "", err
	case ws.opt.Shared && !w.AliveUntil.After(now), !ws.opt.Shared && time.Since(ws.started) > ws.opt.Alive:
		return s.Owner, nil
	}
	return "", nil
}
