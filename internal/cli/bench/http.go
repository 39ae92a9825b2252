package bench

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/internal/apiclient"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// connections is the number of clients in the HTTP scenario.
const connections = 50

// httpWorker speaks the worker protocol over HTTP in its batch form: one request reports the outcomes of tasks and
// polls for the next ones.
type httpWorker struct {
	n      *node
	id     string
	queue  string
	api    *apiclient.Client
	result payload.Payload
	step   protocol.Command
}

// overHTTP runs workflows with a worker that has 50 HTTP connections, and starts the workflows over HTTP as well.
func overHTTP(ctx context.Context, n *node, ops int) (sample, error) {
	return fiveOverHTTP(ctx, n, ops, 1, connections)
}

// fiveOverHTTP runs scenario P4 with a number of workers, each with a number of connections.
func fiveOverHTTP(ctx context.Context, n *node, ops, workers, each int) (sample, error) {
	hc := httpClient(max(2*connections, workers*each))
	defer hc.CloseIdleConnections()
	api, err := apiclient.New(apiclient.Options{URLs: []string{n.app.URL()}, HTTP: hc})
	if err != nil {
		return sample{}, err
	}
	args, err := payload.EncodeArgs(kilobyte)
	if err != nil {
		return sample{}, err
	}
	result, err := payload.Encode(kilobyte)
	if err != nil {
		return sample{}, err
	}
	queue := "p4-" + ulid.Make().String()
	all := make([]*httpWorker, workers)
	for i := range all {
		all[i] = &httpWorker{
			n: n, id: fmt.Sprint(queue, "-", i), queue: queue, api: api, result: result,
			step: protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "echo", Arguments: args},
		}
		if err := all[i].post(ctx, "/api/worker/register", protocol.RegisterRequest{
			WorkerID: all[i].id, TaskQueue: queue, Runtime: "external", WorkflowTypes: []string{"five"},
			ActivityTypes: []string{"echo"},
		}, nil); err != nil {
			return sample{}, err
		}
	}
	working, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	for _, w := range all {
		for range each {
			group.Go(func() { w.work(working) })
		}
	}
	defer group.Wait()
	defer stop()
	c := watch(&n.app.Dispatch().Hub)
	defer c.stop()
	in, err := input()
	if err != nil {
		return sample{}, err
	}
	return runMany(ops, 2*connections, func() error {
		return c.wait(ctx, func(id string) error {
			return all[0].post(ctx, "/api/workflows", protocol.StartRequest{
				WorkflowID: id, WorkflowType: "five", TaskQueue: queue, Input: in,
			}, nil)
		})
	})
}

// work serves one connection: it polls, then completes and polls in one request, until ctx ends.
func (w *httpWorker) work(ctx context.Context) {
	wait := int64(10)
	poll := &protocol.PollRequest{
		WorkerID: w.id, TaskQueue: w.queue, Kinds: []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity}, Max: 1,
		Timeout: &wait,
	}
	var have []protocol.Task
	for ctx.Err() == nil {
		if len(have) == 0 {
			var a protocol.PollResponse
			if err := w.post(ctx, "/api/worker/tasks/poll", poll, &a); err != nil {
				continue
			}
			have = a.Tasks
			continue
		}
		var a protocol.CompleteBatchResponse
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

// outcome returns the outcome of a task of the workflow with five activities.
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
