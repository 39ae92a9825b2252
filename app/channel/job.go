package channel

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
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
