package workflow

import (
	"context"
	"log/slog"

	"github.com/sojourn-run/sojourn/internal/slogbridge"
)

// Logger returns a logger that drops lines while the code is replayed, so that each line is written once. The worker
// writes the lines to its log, with the attributes worker_id, run_id and workflow_type. The logger stays valid for the
// whole run. Only the workflow's own branches may use it, no other goroutines.
func Logger(ctx Context) *slog.Logger { return ctx.inner().m.userLogger }

// openLoggers creates the loggers of the machine; the run must be known.
func (m *machine) openLoggers(runID string) {
	to := m.logger
	if to == nil {
		to = slog.New(slog.DiscardHandler)
	}
	to = to.With("run_id", runID, "workflow_type", m.info.WorkflowType)
	m.log = slogbridge.Zerolog(to)
	m.userLogger = slog.New(replayHandler{m, to.Handler()})
}

// replayHandler drops records while its machine replays.
type replayHandler struct {
	m    *machine
	next slog.Handler
}

func (h replayHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.m.at > h.m.replayed && h.next.Enabled(ctx, level)
}

func (h replayHandler) Handle(ctx context.Context, r slog.Record) error {
	if h.m.at <= h.m.replayed {
		return nil
	}
	return h.next.Handle(ctx, r)
}

func (h replayHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return replayHandler{h.m, h.next.WithAttrs(attrs)}
}

func (h replayHandler) WithGroup(name string) slog.Handler {
	return replayHandler{h.m, h.next.WithGroup(name)}
}
