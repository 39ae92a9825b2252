package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// weighedCarrier counts the signal events that the worker receives over its connections, and the bytes of the commands
// that the worker sends.
type weighedCarrier struct {
	link.Carrier
	signals, commands *atomic.Int64
}

type weighedConn struct {
	link.Conn
	signals, commands *atomic.Int64
}

func (c weighedCarrier) Dial(
	ctx context.Context, hello protocol.ChannelAuth, notices protocol.WorkerNotices,
) (link.Conn, error) {
	conn, err := c.Carrier.Dial(ctx, hello, notices)
	return weighedConn{conn, c.signals, c.commands}, err
}

func (c weighedConn) count(events []history.Event) {
	for _, e := range events {
		if _, ok := e.Data.(*history.SignalReceived); ok {
			c.signals.Add(1)
		}
	}
}

func (c weighedConn) countTasks(tasks []protocol.Task) {
	for _, t := range tasks {
		if t.Workflow != nil {
			c.count(t.Workflow.Events)
		}
	}
}

func (c weighedConn) Poll(ctx context.Context, in protocol.PollRequest) (protocol.PollResponse, error) {
	a, err := c.Conn.Poll(ctx, in)
	c.countTasks(a.Tasks)
	return a, err
}

func (c weighedConn) Complete(
	ctx context.Context, in protocol.CompleteRequest,
) (protocol.CompleteBatchResponse, error) {
	for i := range in.Items {
		raw, _ := json.Marshal(in.Items[i].Commands)
		c.commands.Add(int64(len(raw)))
	}
	a, err := c.Conn.Complete(ctx, in)
	if a.Next != nil {
		c.countTasks(a.Next.Tasks)
	}
	return a, err
}

func (c weighedConn) HistoryPage(ctx context.Context, in protocol.HistoryRequest) (protocol.HistoryPage, error) {
	page, err := c.Conn.HistoryPage(ctx, in)
	c.count(page.Events)
	return page, err
}

// The task of a continued run contains only some of the signals that the run inherits. The worker fetches the others
// when the workflow code receives them, so the bytes per run do not depend on the number of waiting signals. The code
// receives all of them in order.
func TestAWorkerGetsFewOfTheSignalsThatARunInherits(t *testing.T) {
	carriers(t, func(t *testing.T, a *apptest.App, c link.Carrier) {
		const runs = 6
		var signals, commands atomic.Int64
		start(t, a, weighedCarrier{c, &signals, &commands}, func(o *worker.Options) {
			o.Registry.Workflow("inherits", func(ctx workflow.Context, got []int) ([]int, error) {
				if len(got) == 0 { // the first run waits until all signals have arrived
					if err := workflow.Signal(ctx, "begin").Receive(ctx); err != nil {
						return nil, err
					}
				}
				name := "many"
				if len(got) == runs-1 { // the last run receives the signal that was sent last
					name = "rare"
				}
				n, err := workflow.ReceiveSignal[int](ctx, name)
				if err != nil || name == "rare" {
					return append(got, n), err
				}
				return nil, workflow.ContinueAsNew(ctx, append(got, n))
			})
		})
		var sent, asked [2]int64
		for i, backlog := range []int{150, 600} {
			id := fmt.Sprint("inherits-", backlog)
			_, err := a.Broker().Start(t.Context(), protocol.StartRequest{
				WorkflowID: id, WorkflowType: "inherits", Input: []byte("[[]]"),
			})
			if err != nil {
				t.Fatal(err)
			}
			signal := func(name string, n int) {
				t.Helper()
				_, err := a.Broker().Signal(t.Context(), protocol.SignalRequest{
					Target: protocol.Target{WorkflowID: id}, SignalName: name, Input: input(t, n),
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			for n := range backlog {
				signal("many", n)
			}
			signal("rare", 999)
			signals.Store(0)
			commands.Store(0)
			signal("begin", 0)
			var v protocol.RunView
			eventually(t, "the last run ends", func() bool {
				v, err = a.View().Describe(t.Context(), protocol.Target{WorkflowID: id})
				if err != nil {
					t.Fatal(err)
				}
				return v.Terminal
			})
			if want := "[0,1,2,3,4,999]"; string(v.Output) != want || v.RunNumber != runs {
				t.Fatalf("run %d ended with %s, want %s", v.RunNumber, v.Output, want)
			}
			// Leave out the first run, which received its signals one by one, and the last run, which reads all of
			// them.
			sent[i], asked[i] = signals.Load()-2*int64(backlog), commands.Load()
		}
		if extra := sent[1] - sent[0]; extra > 45 {
			t.Errorf("with 450 more signals the worker gets %d more in %d runs", extra, runs)
		}
		// Only the first run lists all signals that it did not receive.
		if extra := asked[1] - asked[0]; extra > 450*6 {
			t.Errorf("with 450 more signals the worker sends %d more bytes of commands", extra)
		}
	})
}
