package broker

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An activity run is a run with one activity and without workflow code; the engine makes all its decisions. It has a
// workflow ID like any other run, so listings, filters, retention and the workflow ID reuse rule apply to it unchanged.

// StartActivity starts an activity run: a run of one activity without workflow code. The rules for workflow IDs apply:
// a second start is rejected, or returns the open run, depending on the request.
func (b *Broker) StartActivity(
	ctx context.Context, in protocol.ActivityRequest,
) (protocol.ActivityResponse, error) {
	start, args, c, err := b.activityRequest(in)
	if err == nil {
		err = b.pace(ctx, start.Namespace, len(args))
	}
	if err != nil {
		return protocol.ActivityResponse{}, err
	}
	if err := b.checkTypes(ctx, start.Namespace, "search_attributes", start.SearchAttributes); err != nil {
		return protocol.ActivityResponse{}, err
	}
	key := engine.WorkflowKey{Namespace: start.Namespace, ID: start.WorkflowID}
	needs := store.Keys{Workflows: []engine.WorkflowKey{key}, Current: true}
	if id := c.Session(); id != "" {
		needs.Sessions = []engine.SessionKey{{Namespace: start.Namespace, ID: id}}
	}
	runID := ulid.Make().String()
	out, err := transaction.Commit[protocol.ActivityResponse](ctx, b.store, store.Transaction{
		Needs: needs,
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			// Check the workflow ID inside the change: of two concurrent starts the second one sees the first.
			if flow := rows.Workflow(key); flow != nil {
				w, err := existingRun(start, flow, rows.Run(flow.RunID))
				if a, ok := w.Answer.(protocol.StartResponse); ok {
					w.Answer = activityResponse(a)
				}
				return w, err
			}
			session := rows.Session(engine.SessionKey{Namespace: start.Namespace, ID: c.Session()})
			if err := engine.CheckActivityNames(start, c, session != nil); err != nil {
				return store.Writes{}, err
			}
			if err := quotaRefusal(start.Namespace, rows.Quotas(start.Namespace).NewRun(0)); err != nil {
				return store.Writes{}, err
			}
			d := engine.DecideActivityRun(
				engine.Start{RunID: runID, Number: 1, Request: start}, *c,
				engine.Environment{Session: func(id string) *engine.Session {
					return rows.Session(engine.SessionKey{Namespace: start.Namespace, ID: id})
				}}, now,
			)
			return store.Writes{
				Runs:      []engine.Decision{d},
				Workflows: []engine.Workflow{{Namespace: start.Namespace, ID: start.WorkflowID, RunID: runID, Runs: 1}},
				Answer:    activityResponse(startResponse(start, d.Next, "started_new")),
			}, nil
		},
	})
	return out, b.countQuotaRefusal(start.Namespace, "start", err)
}

// activityRequest validates an activity start. It returns the start of the run, the arguments as a blob, and the
// command that schedules the activity.
func (b *Broker) activityRequest(
	in protocol.ActivityRequest,
) (start protocol.StartRequest, args string, c *protocol.Command, err error) {
	if err := in.Check(); err != nil {
		return start, "", nil, err
	}
	if start, args, err = b.startRequest(in.Start()); err != nil {
		return start, "", nil, err
	}
	c = new(in.Command(args))
	if d := in.SessionDefinition; d != nil {
		c.SessionDefinition = &protocol.SessionDefinition{Name: d.Name, OnLost: d.OnLost}
		c.SessionDefinition.Arguments.Blob, err = Arguments("session_definition.arguments", d.Arguments)
		if err == nil {
			err = protocol.CheckCommand(c, func(member string) string { return member })
		}
	}
	return start, args, c, err
}

// The run's type is the activity's: there is no workflow whose type it could be.
func activityResponse(a protocol.StartResponse) protocol.ActivityResponse {
	return protocol.ActivityResponse{
		WorkflowID: a.WorkflowID, RunID: a.RunID, ActivityType: a.WorkflowType, Namespace: a.Namespace, Status: a.Status,
		Outcome: a.Outcome, New: a.New,
	}
}
