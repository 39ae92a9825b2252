package channel

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/rpc"
)

// extendLock renews the lock of one job.
func (c *Channel) extendLock(ctx context.Context, p *Peer, in protocol.JobRef) (protocol.JobLock, error) {
	return c.beat(ctx, p, protocol.JobProgress{JobRef: in}, false)
}

// reportProgress does too, and is a sign of life of the job's own code, unless it tells of a rebuild: that is the
// worker's word.
func (c *Channel) reportProgress(ctx context.Context, p *Peer, in protocol.JobProgress) (protocol.JobLock, error) {
	return c.beat(ctx, p, in, in.Rebuild == nil)
}

func (c *Channel) beat(ctx context.Context, p *Peer, in protocol.JobProgress, alive bool) (protocol.JobLock, error) {
	g, err := taskToken(p, in.JobRef)
	if err != nil {
		return protocol.JobLock{}, err
	}
	a, err := c.verbs.HeartbeatTask(ctx, protocol.HeartbeatRequest{
		Namespace: p.Namespace, Kind: g.Kind, TaskID: in.ID, Owner: g.Owner, Attempt: g.Attempt(),
		AttemptID: g.AttemptID(in.ID),
		Progress:  in.Progress, Rebuild: in.Rebuild, Beat: alive,
	})
	if err != nil {
		return protocol.JobLock{}, err
	}
	a.TaskID = in.ID
	return a.Lock()
}

func (c *Channel) fetchHistory(ctx context.Context, p *Peer, in protocol.JobHistory) (protocol.HistoryPage, error) {
	g, err := taskToken(p, in.JobRef)
	if err != nil {
		return protocol.HistoryPage{}, err
	}
	return c.verbs.HistoryPage(ctx, protocol.HistoryRequest{
		Namespace: p.Namespace, TaskID: in.ID, Owner: g.Owner, Attempt: g.Attempt(), PageToken: in.PageToken,
		PageSize: in.PageSize,
	})
}

// maxLogLines is how many lines one call may bring.
const maxLogLines = 10_000

// uploadLogs takes lines of a running attempt. Its lease is looked at and not renewed: a line is no sign of life.
func (c *Channel) uploadLogs(ctx context.Context, p *Peer, in protocol.JobLogs) (rpc.None, error) {
	g, err := taskToken(p, in.JobRef)
	if err != nil {
		return rpc.None{}, err
	}
	if len(in.Lines) > maxLogLines {
		return rpc.None{}, protocol.Invalid("lines", "at most %d in one call", maxLogLines)
	}
	s, err := c.verbs.AttemptStatus(ctx, protocol.HeartbeatRequest{
		Namespace: p.Namespace, Kind: g.Kind, TaskID: in.ID, Owner: g.Owner, AttemptID: g.AttemptID(in.ID),
	})
	if err != nil {
		return rpc.None{}, err
	}
	if s.AttemptState != "running" {
		return rpc.None{}, protocol.Refuse(
			protocol.ReasonStaleAttempt, "the attempt of job %s is over, so its lines are not taken", in.ID,
		)
	}
	if c.opt.Logs != nil {
		c.opt.Logs(ctx, p.WorkerID, in)
		return rpc.None{}, nil
	}
	for _, l := range in.Lines {
		c.log.Debug().Str("worker_id", p.WorkerID).Str("task_id", in.ID).Str("log_level", l.Level).Msg(l.Text)
	}
	return rpc.None{}, nil
}
