package linktest

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Deaf ignores all notices of an app, as if they were lost.
type Deaf struct{}

var _ protocol.WorkerNotices = Deaf{}

// CancelAttempt does nothing.
func (Deaf) CancelAttempt(context.Context, protocol.CancelNotice) error { return nil }

// EndSession does nothing.
func (Deaf) EndSession(context.Context, protocol.SessionNotice) error { return nil }

// YieldSession does nothing.
func (Deaf) YieldSession(context.Context, protocol.SessionNotice) error { return nil }

// EvictRuns does nothing.
func (Deaf) EvictRuns(context.Context, protocol.EvictNotice) error { return nil }

// Drain does nothing.
func (Deaf) Drain(context.Context) error { return nil }

// Pause does nothing.
func (Deaf) Pause(context.Context, protocol.PauseNotice) error { return nil }

// Resume does nothing.
func (Deaf) Resume(context.Context) error { return nil }

// RefreshSettings does nothing.
func (Deaf) RefreshSettings(context.Context) error { return nil }
