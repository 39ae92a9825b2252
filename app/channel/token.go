package channel

import (
	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// taskToken reads a job's token and checks that it was given to this worker. The task itself proves the rest.
func taskToken(p *Peer, ref protocol.JobRef) (protocol.TaskToken, error) {
	token := ref.Token
	var missing []string
	if ref.ID == "" {
		missing = append(missing, "jobId")
	}
	if token == "" {
		missing = append(missing, "token")
	}
	if err := protocol.Missing(missing); err != nil {
		return protocol.TaskToken{}, err
	}
	g, ok := protocol.ParseToken(token)
	if !ok {
		return g, protocol.Refuse(protocol.ReasonMalformedPayload, "token: not one of this app's")
	}
	if who, ok := p.Principal.(*auth.Principal); ok && who.Bound() && g.Owner != p.WorkerID {
		// whose it is, is no business of one with bounds
		return g, protocol.Refuse(protocol.ReasonTaskNotFound, "there is no such job")
	}
	if g.Owner != p.WorkerID {
		return g, protocol.Refuse(protocol.ReasonLeaseOwnerMismatch, "the job was given to %.64s", g.Owner).
			With("lease_owner", g.Owner)
	}
	return g, nil
}

// jobOf puts a task into the channel's words.
func jobOf(t protocol.Task) protocol.Job {
	j := protocol.Job{Kind: t.Kind, Task: t}
	var g protocol.TaskToken
	switch {
	case t.Workflow != nil:
		w := t.Workflow
		j.ID, j.Queue, j.LockExpiresAt, j.Release = w.TaskID, w.TaskQueue, w.LeaseExpiresAt, w.Release
		g = protocol.TaskToken{Kind: t.Kind, Delivery: w.Attempt, Owner: w.LeaseOwner}
	case t.Activity != nil:
		a := t.Activity
		j.ID, j.Queue, j.LockExpiresAt, j.Release = a.TaskID, a.TaskQueue, a.LeaseExpiresAt, a.Release
		g = protocol.TaskTokenOf(t.Kind, a.TaskID, a.AttemptID, 0, a.LeaseOwner)
		if s := a.Session; s != nil {
			j.Session = &protocol.JobSession{SessionID: s.SessionID, Epoch: s.Epoch, IsNew: s.IsNew}
		}
	case t.Query != nil:
		q := t.Query
		j.ID, j.Queue, j.LockExpiresAt = q.TaskID, q.TaskQueue, q.LeaseExpiresAt
		g = protocol.TaskToken{Kind: t.Kind, Delivery: q.Attempt, Owner: q.LeaseOwner}
	case t.Validation != nil:
		v := t.Validation
		j.ID, j.Queue, j.LockExpiresAt = v.TaskID, v.TaskQueue, v.LeaseExpiresAt
		g = protocol.TaskToken{Kind: t.Kind, Delivery: v.Attempt, Owner: v.LeaseOwner}
	}
	j.Token = g.Token()
	return j
}
