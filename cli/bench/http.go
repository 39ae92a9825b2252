package bench

import (
	"context"
	"net/http"
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// connections is how many clients the HTTP scenario has.
const connections = 50

// httpWorker speaks the worker protocol over HTTP, the batch form: each answer is completed together with the next
// poll.
type httpWorker struct {
	n      *node
	id     string
	api    *client.Client
	result payload.Payload
	step   protocol.Command
}

// overHTTP runs workflows with a worker that is 50 connections of an HTTP client, and starts them over HTTP as well.
func overHTTP(ctx context.Context, n *node, ops int) (sample, error) {
	hc := httpClient(2 * connections)
	defer hc.CloseIdleConnections()
	api, err := client.New(client.Options{URLs: []string{n.app.URL()}, HTTP: hc})
	if err != nil {
		return sample{}, err
	}
	w := &httpWorker{n: n, id: "p4-" + ulid.Make().String(), api: api}
	args, err := payload.EncodeArgs(kilobyte)
	if err != nil {
		return sample{}, err
	}
	if w.result, err = payload.Encode(kilobyte); err != nil {
		return sample{}, err
	}
	w.step = protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "echo", Arguments: args}
	err = w.post(ctx, "/api/worker/register", protocol.RegisterRequest{
		WorkerID: w.id, TaskQueue: w.id, Runtime: "external", WorkflowTypes: []string{"five"},
		ActivityTypes: []string{"echo"},
	}, nil)
	if err != nil {
		return sample{}, err
	}
	working, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	for range connections {
		group.Go(func() { w.work(working) })
	}
	defer group.Wait()
	defer stop()
	c := watch(&n.app.Dispatch().Hub)
	defer c.stop()
	in, err := input()
	if err != nil {
		return sample{}, err
	}
	return many(ops, 2*connections, func() error {
		return c.wait(ctx, func(id string) error {
			return w.post(ctx, "/api/workflows", protocol.StartRequest{
				WorkflowID: id, WorkflowType: "five", TaskQueue: w.id, Input: in,
			}, nil)
		})
	})
}

// work is one connection: poll, then complete and poll in one, until ctx ends.
func (w *httpWorker) work(ctx context.Context) {
	wait := int64(10)
	poll := &protocol.PollRequest{
		WorkerID: w.id, TaskQueue: w.id, Kinds: []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity}, Max: 1,
		Timeout: &wait,
	}
	var have []protocol.Task
	for ctx.Err() == nil {
		if len(have) == 0 {
			var a protocol.PollAnswer
			if err := w.post(ctx, "/api/worker/tasks/poll", poll, &a); err != nil {
				continue
			}
			have = a.Tasks
			continue
		}
		var a protocol.CompleteBatchAnswer
		err := w.post(
			ctx, "/api/worker/tasks/complete",
			protocol.CompleteRequest{Items: []protocol.CompleteItem{w.outcome(have[0])}, Next: poll}, &a,
		)
		have = nil
		if err == nil && a.Next != nil {
			have = a.Next.Tasks
		}
	}
}

// outcome plays the workflow of five activities.
func (w *httpWorker) outcome(t protocol.Task) protocol.CompleteItem {
	if a := t.Activity; a != nil {
		return protocol.CompleteItem{
			Kind: protocol.KindActivity, TaskID: a.TaskID, Owner: w.id, AttemptID: a.AttemptID, Result: w.result,
		}
	}
	item := protocol.CompleteItem{
		Kind: protocol.KindWorkflow, TaskID: t.Workflow.TaskID, Owner: w.id, Attempt: t.Workflow.Attempt,
		Commands: []protocol.Command{w.step}, Kept: t.Workflow.LastSequence,
	}
	if t.Workflow.LastSequence > 2*steps {
		item.Commands = []protocol.Command{{Type: protocol.CompleteWorkflow, Result: w.result}}
	}
	return item
}

func (w *httpWorker) post(ctx context.Context, path string, in, out any) error {
	w.n.trips.Add(1)
	return w.api.Call(ctx, http.MethodPost, path, in, out)
}
