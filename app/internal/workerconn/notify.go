package workerconn

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// noticeTime is the time that a worker has to acknowledge a notice.
const noticeTime = 5 * time.Second

// Cancel asks a worker to stop an attempt. Like every notice it does not block and may be lost; the response to the
// next heartbeat contains the same request.
func (s *Registry) Cancel(namespace, worker string, n protocol.CancelNotice) {
	s.notify(namespace, worker, "cancel", func(ctx context.Context, w protocol.WorkerNotices) error {
		return w.CancelAttempt(ctx, n)
	})
}

// CloseSession notifies a worker that it no longer owns a session.
func (s *Registry) CloseSession(namespace, worker string, n protocol.SessionNotice) {
	s.notify(namespace, worker, "session", func(ctx context.Context, w protocol.WorkerNotices) error {
		return w.EndSession(ctx, n)
	})
}

// YieldSession asks a worker to release one of its sessions, and reports whether the worker is connected.
func (s *Registry) YieldSession(namespace, worker string, n protocol.SessionNotice) bool {
	return s.notify(namespace, worker, "yield", func(ctx context.Context, w protocol.WorkerNotices) error {
		return w.YieldSession(ctx, n)
	})
}

// PrepareSessions asks a worker for a heartbeat, because sessions that it prepares, or should prepare, have changed.
func (s *Registry) PrepareSessions(namespace, worker string) {
	s.notify(namespace, worker, "prepare", func(ctx context.Context, w protocol.WorkerNotices) error {
		return w.PrepareSessions(ctx)
	})
}

// EvictRuns notifies a worker that runs in its sticky cache have ended.
func (s *Registry) EvictRuns(namespace, worker string, n protocol.EvictNotice) {
	s.notify(namespace, worker, "evict", func(ctx context.Context, w protocol.WorkerNotices) error {
		return w.EvictRuns(ctx, n)
	})
}

// SendIntent sends an operator's intent to a worker, and reports whether the worker is connected.
func (s *Registry) SendIntent(namespace, worker string, i protocol.Intent, n protocol.PauseNotice) bool {
	switch i {
	case protocol.IntentPause:
		return s.notify(namespace, worker, "pause", func(ctx context.Context, w protocol.WorkerNotices) error {
			return w.Pause(ctx, n)
		})
	case protocol.IntentLeave:
		return s.notify(namespace, worker, "drain", func(ctx context.Context, w protocol.WorkerNotices) error {
			return w.Drain(ctx)
		})
	}
	return s.notify(namespace, worker, "resume", func(ctx context.Context, w protocol.WorkerNotices) error {
		return w.Resume(ctx)
	})
}

// DrainWorkers asks every connected worker to finish its tasks and exit.
func (s *Registry) DrainWorkers() {
	s.notify("", "", "drain", func(ctx context.Context, w protocol.WorkerNotices) error { return w.Drain(ctx) })
}

// SettingsChanged asks the workers of a namespace, or of all namespaces if it is empty, to fetch their settings again.
func (s *Registry) SettingsChanged(namespace string) {
	s.notify(namespace, "", "settings", func(ctx context.Context, w protocol.WorkerNotices) error {
		return w.RefreshSettings(ctx)
	})
}

// notify sends a notice to a worker, or to all workers if the ID is empty. It reports whether a worker is connected.
func (s *Registry) notify(
	namespace, worker, what string, send func(context.Context, protocol.WorkerNotices) error,
) (anybody bool) {
	for p, w := range s.connectionsOf(worker) {
		if namespace != "" && p.Namespace != namespace {
			continue
		}
		anybody = true
		s.spawn(func() {
			// This connection may have used the ID before the worker with this ID registered.
			if worker != "" && p.Principal != nil && s.checkVisible(s.life, p, worker) != nil {
				return
			}
			ctx, cancel := context.WithTimeout(s.life, noticeTime)
			defer cancel()
			if err := send(ctx, w); err != nil {
				s.unconfirmed.Add(1)
				s.log.Debug().Str("worker_id", p.WorkerID).Str("notice", what).Err(err).Msg("notice to a worker not acknowledged")
			}
		})
	}
	return anybody
}

// spawn runs fn unless the registry is closing.
func (s *Registry) spawn(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.tasks.Go(fn)
	}
}

// sendCancels notifies workers of their attempts and sessions that have ended.
func (s *Registry) sendCancels() {
	w := s.opt.Hub.Watch(dispatch.TopicCancels | dispatch.TopicMoves)
	defer w.Close()
	for {
		select {
		case <-s.life.Done():
			return
		case <-w.C:
		}
		changed, _ := w.Take() // responses to heartbeats report the changes that the hub dropped
		for _, r := range changed.Runs {
			for _, a := range r.Cancelled {
				s.Cancel(r.Namespace, a.Worker, protocol.CancelNotice{TaskID: a.TaskID, AttemptID: a.AttemptID})
			}
		}
		for _, m := range changed.Moves {
			if m.ForSuccessor() {
				s.PrepareSessions(m.Session.Namespace, m.Worker)
			}
			if m.What == protocol.SessionSnapshotRequested {
				s.YieldSession(m.Session.Namespace, m.Worker, protocol.SessionNotice{
					SessionID: m.Session.ID, Epoch: m.Epoch, Reason: protocol.ReasonSnapshot,
				})
			}
			if m.Ends() && m.By != m.Worker { // the worker ended it, so it knows
				reason := m.Why
				if reason == "" {
					reason = m.What
				}
				s.CloseSession(
					m.Session.Namespace, m.Worker, protocol.SessionNotice{SessionID: m.Session.ID, Epoch: m.Epoch, Reason: reason},
				)
			}
		}
	}
}
