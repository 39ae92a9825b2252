package broker

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An activity run is a run of one activity without workflow code; the engine makes all its decisions. It has a workflow
// ID like any other run, so listings, filters, retention and the rules for workflow IDs apply to it unchanged.

// StartActivity starts an activity run: a run of one activity without workflow code. The rules for workflow IDs apply:
// a second start is rejected, or returns the open run, depending on the request.
func (b *Broker) StartActivity(
	ctx context.Context, in protocol.ActivityRequest,
) (protocol.ActivityResponse, error) {
	start, args, c, err := b.activityRequest(in)
	if err == nil {
		err = b.delayLargePayload(ctx, start.Namespace, len(args)+2*start.Headers.Size())
	}
	if err != nil {
		return protocol.ActivityResponse{}, err
	}
	if err := b.checkTypes(ctx, start.Namespace, "search_attributes", start.SearchAttributes); err != nil {
		return protocol.ActivityResponse{}, err
	}
	runID := ulid.Make().String()
	startKey := startKeyOf(&start, history.KindActivity, runID)
	out, err := commitStart(func(reads startReads) (protocol.StartResponse, error) {
		needs := startNeeds(&start, startKey, reads)
		if id := c.Session(); id != "" {
			needs.Sessions = []engine.SessionKey{{Namespace: start.Namespace, ID: id}}
		}
		return transaction.Commit[protocol.StartResponse](ctx, b.store, store.Transaction{
			Needs: needs,
			Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
				// Check the workflow ID inside the transaction: of two concurrent starts, the second one sees the run
				// of the first.
				w, existing, err := decideStart(rows, &start, startKey, reads, func() error {
					session := rows.Session(engine.SessionKey{Namespace: start.Namespace, ID: c.Session()})
					return engine.CheckActivityNames(start, c, session != nil)
				}, now)
				if err != nil || existing != nil {
					return existingResponse(existing), err
				}
				w.add(engine.DecideActivityRun(
					engine.Start{RunID: runID, Number: 1, Request: start, Reuses: w.reuses, StartKey: startKey}, *c,
					engine.Environment{Session: func(id string) *engine.Session {
						return rows.Session(engine.SessionKey{Namespace: start.Namespace, ID: id})
					}}, now,
				))
				w.Answer = startResponse(start, &w.Runs[len(w.Runs)-1].Next.Head, "started_new")
				return w.Writes, nil
			},
		})
	})
	err = b.countQuotaRefusal(start.Namespace, "start", err)
	return activityResponse(out), err
}

// activityRequest validates the start of an activity run. It returns the start of the run, the encoded arguments, and
// the command that schedules the activity.
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

// The type of the run is that of its activity; there is no workflow type.
func activityResponse(a protocol.StartResponse) protocol.ActivityResponse {
	return protocol.ActivityResponse{
		WorkflowID: a.WorkflowID, RunID: a.RunID, ActivityType: a.WorkflowType, Namespace: a.Namespace, Status: a.Status,
		Outcome: a.Outcome, New: a.New,
	}
}
