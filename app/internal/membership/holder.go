package membership

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The holder of a session can be dead only after its lease has ended. StaleHolder decides by the heartbeats that this
// app received, else by the worker's row; an app that does not share its database also counts its own uptime, in which
// the worker could have sent a heartbeat.

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
