package linktest

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Deaf hears nothing: the notices of an app get lost on their way to such a worker.
type Deaf struct{}

var _ protocol.WorkerNotices = Deaf{}

// CancelAttempt is not heard.
func (Deaf) CancelAttempt(context.Context, protocol.CancelNotice) error { return nil }

// EndSession is not heard.
func (Deaf) EndSession(context.Context, protocol.SessionNotice) error { return nil }

// YieldSession is not heard.
func (Deaf) YieldSession(context.Context, protocol.SessionNotice) error { return nil }

// EvictRuns is not heard.
func (Deaf) EvictRuns(context.Context, protocol.EvictNotice) error { return nil }

// Drain is not heard.
func (Deaf) Drain(context.Context) error { return nil }

// Pause is not heard.
func (Deaf) Pause(context.Context, protocol.PauseNotice) error { return nil }

// Resume is not heard.
func (Deaf) Resume(context.Context) error { return nil }

// RefreshSettings is not heard.
func (Deaf) RefreshSettings(context.Context) error { return nil }
