package link

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// applyIntent applies an operator's command for this worker: resume, pause, or leave. A notice delivers it at once, and
// each response to a heartbeat repeats it.
func (l *Link) applyIntent(i protocol.Intent, reason string) {
	if i == protocol.IntentLeave {
		if l.opt.OnDrain != nil {
			l.opt.OnDrain()
		}
		return
	}
	l.mu.Lock()
	was := l.paused != nil
	switch is := i == protocol.IntentPause; {
	case is == was:
		l.mu.Unlock()
		return
	case is:
		l.paused = make(chan struct{})
		defer l.Beat() // the response has the sessions that this worker hands over
	default:
		close(l.paused)
		l.paused = nil
		l.notifyChanged() // a poll that the app refused because of the drain need not wait before the next one
	}
	l.mu.Unlock()
	if was {
		l.log.Info().Msg("worker resumed by an operator")
	} else {
		l.log.Info().Str("reason", reason).Msg("worker drained by an operator; running tasks finish")
	}
	if l.opt.OnPause != nil {
		l.opt.OnPause(!was, reason)
	}
}

// Paused reports whether an operator has paused this worker.
func (l *Link) Paused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.paused != nil
}

// waitWhilePaused waits while this worker is paused, at most for hold, and reports whether it was paused. The worker
// does not poll meanwhile.
func (l *Link) waitWhilePaused(ctx context.Context, hold time.Duration) bool {
	l.mu.Lock()
	paused, begins := l.paused, l.handOverBegins
	l.mu.Unlock()
	if paused == nil {
		return false
	}
	t := time.NewTimer(hold)
	defer t.Stop()
	select {
	case <-paused:
	case <-begins:
	case <-t.C:
	case <-ctx.Done():
	}
	return true
}
