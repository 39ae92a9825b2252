package link

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// notices handles the notices that the app sends to a worker. It ignores session notices without an epoch, which only
// old apps send.
type notices struct{ l *Link }

var _ protocol.WorkerNotices = notices{}

// CancelAttempt stops an attempt.
func (n notices) CancelAttempt(_ context.Context, c protocol.CancelNotice) error {
	if n.l.opt.OnCancel != nil {
		n.l.opt.OnCancel(c)
	}
	return nil
}

// EndSession drops a session that is not held any more.
func (n notices) EndSession(_ context.Context, s protocol.SessionNotice) error {
	if n.l.opt.OnSession != nil && s.Epoch > 0 {
		n.l.opt.OnSession(s)
	}
	return nil
}

// YieldSession releases a session, so that the worker can hold another one.
func (n notices) YieldSession(ctx context.Context, s protocol.SessionNotice) error {
	if n.l.opt.OnYield != nil && s.Epoch > 0 {
		n.l.opt.OnYield(ctx, s)
	}
	return nil
}

// PrepareSessions sends a heartbeat, whose response has the sessions to prepare.
func (n notices) PrepareSessions(context.Context) error {
	n.l.Beat()
	return nil
}

// EvictRuns drops ended runs from the sticky cache.
func (n notices) EvictRuns(_ context.Context, e protocol.EvictNotice) error {
	n.l.notifyEnded(e.Runs)
	return nil
}

// Drain makes the worker finish its tasks and exit.
func (n notices) Drain(context.Context) error {
	if n.l.opt.OnDrain != nil {
		n.l.opt.OnDrain()
	}
	return nil
}

// Pause stops polling.
func (n notices) Pause(_ context.Context, p protocol.PauseNotice) error {
	n.l.applyIntent(protocol.IntentPause, p.Reason)
	return nil
}

// Resume makes the worker poll again.
func (n notices) Resume(context.Context) error {
	n.l.applyIntent(protocol.IntentWork, "")
	return nil
}

// RefreshSettings fetches the settings again.
func (n notices) RefreshSettings(ctx context.Context) error { return n.l.refresh(ctx) }
