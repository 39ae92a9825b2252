package channel

import "github.com/sojourn-run/sojourn/shared/protocol"

// grip reads a job's token and checks that it was given to this worker. The task itself proves the rest.
func grip(p *Peer, token string) (protocol.Grip, error) {
	g, ok := protocol.ParseToken(token)
	if !ok {
		return g, protocol.Refuse(protocol.ReasonMalformedPayload, "token: not one of this app's")
	}
	if g.Owner != p.WorkerID {
		return g, protocol.Refuse(protocol.ReasonLeaseOwnerMismatch, "the job was given to %.64s", g.Owner).With("lease_owner", g.Owner)
	}
	return g, nil
}

// jobOf puts a task into the channel's words.
func jobOf(t protocol.Task) protocol.Job {
	j := protocol.Job{Kind: t.Kind, Task: t}
	var g protocol.Grip
	switch {
	case t.Workflow != nil:
		w := t.Workflow
		j.ID, j.Queue, j.LockExpiresAt, j.Release = w.TaskID, w.TaskQueue, w.LeaseExpiresAt, w.Release
		g = protocol.Grip{Kind: t.Kind, Delivery: w.Attempt, Owner: w.LeaseOwner}
	case t.Activity != nil:
		a := t.Activity
		j.ID, j.Queue, j.LockExpiresAt, j.Release = a.TaskID, a.TaskQueue, a.LeaseExpiresAt, a.Release
		g = protocol.GripOf(t.Kind, a.TaskID, a.AttemptID, 0, a.LeaseOwner)
		if s := a.Session; s != nil {
			j.Session = &protocol.JobSession{SessionID: s.SessionID, Epoch: s.Epoch, IsNew: s.IsNew}
		}
	case t.Query != nil:
		q := t.Query
		j.ID, j.Queue, j.LockExpiresAt = q.TaskID, q.TaskQueue, q.LeaseExpiresAt
		g = protocol.Grip{Kind: t.Kind, Delivery: q.Attempt, Owner: q.LeaseOwner}
	case t.Validation != nil:
		v := t.Validation
		j.ID, j.Queue, j.LockExpiresAt = v.TaskID, v.TaskQueue, v.LeaseExpiresAt
		g = protocol.Grip{Kind: t.Kind, Delivery: v.Attempt, Owner: v.LeaseOwner}
	}
	j.Token = g.Token()
	return j
}
