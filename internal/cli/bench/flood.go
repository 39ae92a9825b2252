package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/internal/apiclient"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A tenant with few workflows has its own namespace. So does the tenant that floods the app over HTTP, with a new
// request as soon as it has the response to the previous one.
const (
	quietAtOnce = 4
	floodTenant = "flood"
	floodQueue  = "nobody" // no worker polls this queue
	// flooders is the number of connections over which the tenant floods the app; for large payloads and wide workflows
	// it is a quarter of this.
	flooders   = 16
	heldPolls  = 500
	wideStep   = 1_000 // activities of one workflow task
	wideSteps  = 2     // workflow tasks of one workflow, so that it has the maximum number of open activities
	largeBytes = 1_500_000
)

// flood is one way to flood an app: begin prepares it, and each runs in a loop on every connection.
type flood struct {
	name        string
	connections int
	begin       func(ctx context.Context, f *flooding) error
	each        func(ctx context.Context, f *flooding) error
}

// flooding is the state of a running flood.
type flooding struct {
	n    *node
	api  *apiclient.Client
	in   json.RawMessage
	open string // a workflow that stays open
	wide protocol.Command
}

func (f *flooding) start(ctx context.Context, in json.RawMessage) (id string, err error) {
	id = ulid.Make().String()
	return id, f.api.Call(ctx, http.MethodPost, "/api/workflows", protocol.StartRequest{
		WorkflowID: id, WorkflowType: leased, TaskQueue: floodQueue, Input: in,
	}, nil)
}

var floods = []flood{
	{"starts", flooders, nil, func(ctx context.Context, f *flooding) error {
		_, err := f.start(ctx, f.in)
		return err
	}},
	{"signals", flooders, func(ctx context.Context, f *flooding) (err error) {
		f.open, err = f.start(ctx, f.in)
		return err
	}, func(ctx context.Context, f *flooding) error {
		err := f.api.Call(ctx, http.MethodPost, "/api/workflows/"+f.open+"/signal/more",
			protocol.SignalRequest{Input: f.in}, nil)
		if protocol.ReasonOf(err) == protocol.ReasonStructuralLimit { // the run has the maximum number of unread
			f.open, err = f.start(ctx, f.in)
		}
		return err
	}},
	{"payloads", flooders / 4, func(_ context.Context, f *flooding) error {
		p, err := payload.EncodeArgs(strings.Repeat("x", largeBytes))
		if err == nil {
			f.in, err = p.MarshalJSON()
		}
		return err
	}, func(ctx context.Context, f *flooding) error {
		_, err := f.start(ctx, f.in)
		return err
	}},
	{"wide", flooders / 4, func(ctx context.Context, f *flooding) error {
		args, err := payload.EncodeArgs(kilobyte)
		f.wide = protocol.Command{
			Type: protocol.ScheduleActivity, ActivityType: "none", Queue: floodQueue + "-activities", Arguments: args,
		}
		return errors.Join(err, f.api.Call(ctx, http.MethodPost, "/api/worker/register", protocol.RegisterRequest{
			WorkerID: floodTenant, TaskQueue: floodQueue, Runtime: "external", WorkflowTypes: []string{leased},
		}, nil))
	}, wideWorkflow},
	{"searches", flooders, nil, func(ctx context.Context, f *flooding) error {
		return f.api.Call(ctx, http.MethodGet, "/api/workflows?page_size=100&query="+
			`WorkflowType%20%3D%20%22`+leased+`%22%20AND%20StartTime%20%3E%20%222020-01-01T00%3A00%3A00Z%22`, nil, nil)
	}},
	{"polls", heldPolls, func(ctx context.Context, f *flooding) error {
		return f.api.Call(ctx, http.MethodPost, "/api/worker/register", protocol.RegisterRequest{
			WorkerID: floodTenant, TaskQueue: floodQueue + "-empty", Runtime: "external", WorkflowTypes: []string{leased},
		}, nil)
	}, func(ctx context.Context, f *flooding) error {
		return f.api.Call(ctx, http.MethodPost, "/api/worker/workflow-tasks/poll", map[string]any{
			"worker_id": floodTenant, "task_queue": floodQueue + "-empty", "timeout_seconds": 1,
		}, nil)
	}},
}

// wideWorkflow starts a workflow and schedules the maximum number of open activities in it.
func wideWorkflow(ctx context.Context, f *flooding) error {
	if _, err := f.start(ctx, f.in); err != nil {
		return err
	}
	for range wideSteps {
		var out struct {
			Task *struct {
				ID      string `json:"task_id"`
				Attempt int    `json:"workflow_task_attempt"`
				Owner   string `json:"lease_owner"`
			} `json:"task"`
		}
		if err := f.api.Call(ctx, http.MethodPost, "/api/worker/workflow-tasks/poll", map[string]any{
			"worker_id": floodTenant, "task_queue": floodQueue, "timeout_seconds": 1,
		}, &out); err != nil || out.Task == nil {
			return err
		}
		commands := make([]protocol.Command, wideStep)
		for i := range commands {
			commands[i] = f.wide
		}
		if err := f.api.Call(ctx, http.MethodPost, "/api/worker/workflow-tasks/"+out.Task.ID+"/complete", map[string]any{
			"lease_owner": floodTenant, "workflow_task_attempt": out.Task.Attempt, "commands": commands,
		}, nil); err != nil {
			return err
		}
	}
	return nil
}

// nextToFlood measures the workflows of a tenant alternately alone and while another tenant floods the app.
func nextToFlood(kind flood) func(context.Context, *node, int) (sample, error) {
	return func(ctx context.Context, n *node, ops int) (all sample, err error) {
		in, err := input()
		if err != nil {
			return all, err
		}
		hc := httpClient(kind.connections)
		defer hc.CloseIdleConnections()
		tenant := floodTenant + "-" + strings.ToLower(ulid.Make().String()) // a node may be measured more than once
		api, err := apiclient.New(apiclient.Options{URLs: []string{n.app.URL()}, HTTP: hc, Namespace: tenant})
		if err != nil {
			return all, err
		}
		if _, err := n.app.Broker().CreateNamespace(ctx, protocol.NamespaceRequest{Name: tenant}); err != nil {
			return all, err
		}
		f := &flooding{n: n, api: api, in: in}
		if kind.begin != nil {
			if err := kind.begin(ctx, f); err != nil {
				return all, fmt.Errorf("prepare the flood: %w", err)
			}
		}
		c := watch(&n.app.Dispatch().Hub)
		defer c.stop()
		one := func() error { return c.run(ctx, n.app.Broker(), in) }
		began := time.Now()
		for done := 0; done < ops; {
			turn := min(250, ops-done)
			alone, err := runMany(turn, quietAtOnce, one)
			if err != nil {
				return all, err
			}
			stop := kind.flows(ctx, f)
			loaded, err := runMany(turn, quietAtOnce, one)
			if sent, flooded := stop(); err == nil {
				err = flooded
				all.off += float64(sent)
			}
			if err != nil {
				return all, err
			}
			done += turn
			all.each, all.without = append(all.each, loaded.each...), append(all.without, alone.each...)
		}
		all.elapsed = time.Since(began)
		return all, nil
	}
}

// flows starts the flood; stop ends it and returns the number of answered requests. Refusals by limits of the app are
// part of a flood.
func (k flood) flows(ctx context.Context, f *flooding) (stop func() (int, error)) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	var mu sync.Mutex // guards sent and failed
	sent := 0
	var failed error
	for range k.connections {
		group.Go(func() {
			own := *f
			for ctx.Err() == nil {
				err := k.each(ctx, &own)
				mu.Lock()
				switch protocol.ReasonOf(err) {
				case protocol.ReasonOverloaded, protocol.ReasonThrottled, protocol.ReasonQuotaExceeded,
					protocol.ReasonPollCapacity, protocol.ReasonBackendUnavailable:
					err = nil
				}
				if sent++; err != nil && ctx.Err() == nil {
					failed = fmt.Errorf("flood of %s: %w", k.name, err)
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	return func() (int, error) {
		cancel()
		group.Wait()
		return sent, failed
	}
}

// flooded are the scenarios of P23, one for each way to flood.
func flooded() (list []scenario) {
	for _, k := range floods {
		list = append(list, scenario{
			id: "P23", transport: "in-process", unit: "×, slowest, " + k.name, n: 1_000, quick: 100, figure: slowestRatio,
			options: func(o *nodeOptions) { o.worker = "in-process" }, measure: nextToFlood(k),
		})
	}
	return list
}
