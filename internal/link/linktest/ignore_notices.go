package linktest

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// IgnoreNotices ignores all notices of an app, as if they were lost.
type IgnoreNotices struct{}

var _ protocol.WorkerNotices = IgnoreNotices{}

// CancelAttempt does nothing.
func (IgnoreNotices) CancelAttempt(context.Context, protocol.CancelNotice) error { return nil }

// EndSession does nothing.
func (IgnoreNotices) EndSession(context.Context, protocol.SessionNotice) error { return nil }

// YieldSession does nothing.
func (IgnoreNotices) YieldSession(context.Context, protocol.SessionNotice) error { return nil }

// PrepareSessions does nothing.
func (IgnoreNotices) PrepareSessions(context.Context) error { return nil }

// EvictRuns does nothing.
func (IgnoreNotices) EvictRuns(context.Context, protocol.EvictNotice) error { return nil }

// Drain does nothing.
func (IgnoreNotices) Drain(context.Context) error { return nil }

// Pause does nothing.
func (IgnoreNotices) Pause(context.Context, protocol.PauseNotice) error { return nil }

// Resume does nothing.
func (IgnoreNotices) Resume(context.Context) error { return nil }

// RefreshSettings does nothing.
func (IgnoreNotices) RefreshSettings(context.Context) error { return nil }
