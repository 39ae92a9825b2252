package channel

import (
	"strconv"
	"strings"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// grip is what a job's token says: who was given which delivery of what kind of task.
type grip struct {
	kind     protocol.TaskKind
	delivery int64
	owner    string
}

var kindLetters = map[protocol.TaskKind]string{protocol.KindWorkflow: "w", protocol.KindActivity: "a", protocol.KindQuery: "q"}

func (g grip) token() string {
	return kindLetters[g.kind] + strconv.FormatInt(g.delivery, 36) + "." + g.owner
}

// parseToken reads a token and checks that it was given to this worker. The task itself proves the rest.
func parseToken(p *Peer, token string) (grip, error) {
	head, owner, ok := strings.Cut(token, ".")
	if !ok || len(head) < 2 {
		return grip{}, protocol.Refuse(protocol.ReasonMalformedPayload, "token: not one of this app's")
	}
	g := grip{owner: owner}
	for kind, letter := range kindLetters {
		if head[:1] == letter {
			g.kind = kind
		}
	}
	n, err := strconv.ParseInt(head[1:], 36, 64)
	if err != nil || n <= 0 || g.kind == "" {
		return grip{}, protocol.Refuse(protocol.ReasonMalformedPayload, "token: not one of this app's")
	}
	if g.delivery = n; owner != p.WorkerID {
		return grip{}, protocol.Refuse(protocol.ReasonLeaseOwnerMismatch, "the job was given to %.64s", owner).With("lease_owner", owner)
	}
	return g, nil
}

// attemptID names the attempt of an activity.
func (g grip) attemptID(job string) string {
	if g.kind != protocol.KindActivity {
		return ""
	}
	return job + "-" + strconv.FormatInt(g.delivery, 10)
}

// attempt is the delivery of a workflow or query task, 0 for an activity.
func (g grip) attempt() int64 {
	if g.kind == protocol.KindActivity {
		return 0
	}
	return g.delivery
}

// jobOf puts a task into the channel's words.
func jobOf(t protocol.Task) protocol.Job {
	j := protocol.Job{Kind: t.Kind, Task: t}
	g := grip{kind: t.Kind}
	switch {
	case t.Workflow != nil:
		w := t.Workflow
		j.ID, j.Queue, j.LockExpiresAt, j.Release = w.TaskID, w.TaskQueue, w.LeaseExpiresAt, w.Release
		g.delivery, g.owner = w.Attempt, w.LeaseOwner
	case t.Activity != nil:
		a := t.Activity
		j.ID, j.Queue, j.LockExpiresAt, j.Release = a.TaskID, a.TaskQueue, a.LeaseExpiresAt, a.Release
		g.owner = a.LeaseOwner
		// The delivery is the last part of the attempt's id.
		g.delivery, _ = strconv.ParseInt(strings.TrimPrefix(a.AttemptID, a.TaskID+"-"), 10, 64)
		if s := a.Session; s != nil {
			j.Session = &protocol.JobSession{SessionID: s.SessionID, Epoch: s.Epoch, IsNew: s.IsNew}
		}
	case t.Query != nil:
		q := t.Query
		j.ID, j.Queue, j.LockExpiresAt = q.TaskID, q.TaskQueue, q.LeaseExpiresAt
		g.delivery, g.owner = q.Attempt, q.LeaseOwner
	}
	j.Token = g.token()
	return j
}
