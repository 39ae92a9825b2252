package channel

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// uploadLogs takes lines of running attempts, of one job or of many. Their leases are looked at and not renewed: a line
// is no sign of life.
func (c *Channel) uploadLogs(ctx context.Context, p *Peer, in protocol.JobLogs) (protocol.JobLogsAnswer, error) {
	many, list := in.Items != nil, in.Items
	if !many {
		list = []protocol.JobLines{in.JobLines}
	}
	out := protocol.JobLogsAnswer{Items: make([]protocol.JobLogReceipt, len(list))}
	var req protocol.LogsRequest
	var places []int // of each item in the list
	for i, l := range list {
		g, err := taskToken(p, l.JobRef)
		switch {
		case err != nil && !many:
			return out, err
		case err != nil:
			out.Items[i] = protocol.JobLogReceipt{ID: l.ID, Reason: protocol.ReasonOf(err), Message: err.Error()}
			continue
		}
		places = append(places, i)
		req.Items = append(req.Items, protocol.AttemptLogs{
			Namespace: p.Namespace, TaskID: l.ID, Owner: g.Owner, AttemptID: g.AttemptID(l.ID), LogChunk: l.LogChunk,
		})
	}
	if len(req.Items) == 0 {
		return out, nil
	}
	a, err := c.verbs.RecordLogs(ctx, req)
	if err != nil {
		return out, err
	}
	for k, r := range a.Items {
		if r.Err != nil && !many {
			return out, r.Err
		}
		out.Items[places[k]] = protocol.JobLogReceipt{
			ID: r.TaskID, Recorded: r.Recorded, Reason: r.Reason, Message: r.Message,
		}
	}
	return out, nil
}
