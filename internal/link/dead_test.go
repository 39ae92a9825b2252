package link_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// cable carries connections. While it is dead, it drops data from the app without an error at either end.
type cable struct {
	mu    sync.Mutex // guards the fields below
	conns []net.Conn
	dead  bool
	down  bool   // dialling fails
	lost  []byte // data that was dropped
}

// end is the worker's end of one connection.
type end struct {
	net.Conn
	of *cable
}

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	c.conns = append(c.conns, conn)
	return end{conn, c}, nil
}

func (e end) Read(p []byte) (int, error) {
	for {
		n, err := e.Conn.Read(p)
		e.of.mu.Lock()
		dead := e.of.dead
		if dead && n > 0 {
			e.of.lost = append(e.of.lost, p[:n]...)
		}
		e.of.mu.Unlock()
		if err != nil || !dead {
			return n, err
		}
	}
}

func (c *cable) die() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
}

// cut closes all connections, and both sides notice it; down prevents new connections.
func (c *cable) cut(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns, c.dead, c.down = nil, false, down
}

// plain requests uncompressed responses, which the cable can search.
var plain = http.Header{"Accept-Encoding": {"identity"}}

// cables runs a test over each carrier, each through a separate cable.
func cables(t *testing.T, test func(t *testing.T, c *cable, to func(url string) link.Carrier)) {
	t.Run("socket", func(t *testing.T) {
		c := &cable{}
		test(t, c, func(url string) link.Carrier { return &link.Socket{URLs: []string{url}, NetDial: c.dial} })
	})
	t.Run("http", func(t *testing.T) {
		c := &cable{}
		test(t, c, func(url string) link.Carrier {
			return &link.HTTP{URLs: []string{url}, NetDial: c.dial, Refresh: 50 * time.Millisecond, Header: plain}
		})
	})
}

// A worker whose connection breaks before it deregisters, or before it receives the response, deregisters again over
// the next connection. Afterwards the app does not list the worker, and its leases are released.
func TestDeregistrationIsRepeatedOverTheNextConnection(t *testing.T) {
	for name, breaks := range map[string]func(c *cable, listed func() bool){
		"before it": func(c *cable, _ func() bool) { c.cut(false) },
		"its answer is lost": func(c *cable, listed func() bool) {
			eventually(t, "the goodbye is heard", func() bool { return !listed() })
			c.cut(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			cables(t, func(t *testing.T, c *cable, to func(string) link.Carrier) {
				a := apptest.Start(t, apptest.Options{})
				l := start(t, link.Options{Carrier: to(a.URL())})
				l.ready()
				listed := func() bool {
					list, err := a.View().Workers(t.Context(), "default", "", "")
					if err != nil {
						t.Fatal(err)
					}
					return len(list) != 0
				}
				c.die()
				left := make(chan error, 1)
				go func() { left <- l.Deregister(t.Context()) }()
				breaks(c, listed)
				if err := <-left; err != nil {
					t.Error(err)
				}
				if listed() {
					t.Error("it left, and is listed")
				}
			})
		})
	}
}

// bound registers for workflow tasks with the given lease.
func bound(lease int64) func() protocol.RegisterRequest {
	return func() protocol.RegisterRequest {
		return protocol.RegisterRequest{WorkflowTypes: []string{"one"}, TaskQueues: []string{"default"}, AttemptLease: lease}
	}
}

func begin(t *testing.T, a *apptest.App, id string) {
	t.Helper()
	if _, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "one", WorkflowID: id}); err != nil {
		t.Fatal(err)
	}
}

// swallows waits until the cable has dropped data that contains the given text.
func (c *cable) swallows(t *testing.T, what string) {
	t.Helper()
	eventually(t, "the answer is lost", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return bytes.Contains(c.lost, []byte(what))
	})
}

// given polls until it receives a workflow task.
func given(t *testing.T, l *linked) *protocol.WorkflowTask {
	t.Helper()
	for deadline := time.Now().Add(ceiling); time.Now().Before(deadline); {
		ctx, cancel := context.WithTimeout(t.Context(), ceiling)
		a, err := l.Poll(ctx, protocol.PollRequest{})
		cancel()
		if err == nil && len(a.Tasks) > 0 {
			return a.Tasks[0].Workflow
		}
	}
	t.Fatal("no task came")
	return nil
}

// The app requeues a task that was sent into a dead connection when its worker reconnects without listing it, long
// before the lease expires. The worker keeps the tasks that it lists.
func TestATaskLostOnADeadConnectionIsRequeuedWhenItsWorkerReconnects(t *testing.T) {
	cables(t, func(t *testing.T, c *cable, to func(string) link.Carrier) {
		t.Parallel()
		a := apptest.Start(t, apptest.Options{})
		l := start(t, link.Options{Carrier: to(a.URL()), Register: bound(3600)}) // longer than any test waits
		l.ready()
		begin(t, a, "kept")
		kept := given(t, l)
		polled := make(chan struct{})
		go func() {
			defer close(polled)
			if a, err := l.Poll(context.WithoutCancel(t.Context()), protocol.PollRequest{}); err == nil && len(a.Tasks) > 0 {
				t.Errorf("the lost answer was read: %+v", a.Tasks[0].Workflow)
			}
		}()
		eventually(t, "the poll waits", func() bool { return a.Dispatch().Counts().Waiting == 1 })
		c.die()
		begin(t, a, "lost")
		c.swallows(t, `"workflow_id":"lost"`)
		c.cut(false)
		<-polled
		redelivered := given(t, l)
		if redelivered.WorkflowID != "lost" || redelivered.Attempt != 2 {
			t.Errorf("got %s, attempt %d, want the lost one's second", redelivered.WorkflowID, redelivered.Attempt)
		}
		for _, task := range []*protocol.WorkflowTask{kept, redelivered} {
			out, err := l.Complete(t.Context(), protocol.CompleteRequest{Items: []protocol.CompleteItem{{
				Kind: protocol.KindWorkflow, TaskID: task.TaskID, Owner: "w", Attempt: task.Attempt,
				Commands: []protocol.Command{{Type: protocol.CompleteWorkflow}},
			}}})
			if err != nil || !out.Items[0].Recorded {
				t.Errorf("%s: %+v, %v", task.WorkflowID, out, err)
			}
		}
	})
}

// The end of a connection does not end a worker's leases: a task that was lost on it stays leased until its lease
// expires, and is then dispatched to another poll.
func TestATaskLostOnADeadConnectionWaitsForItsLease(t *testing.T) {
	cables(t, func(t *testing.T, c *cable, to func(string) link.Carrier) {
		t.Parallel()
		a := apptest.Start(t, apptest.Options{})
		const lease, another = 1, 100
		l := start(t, link.Options{Carrier: to(a.URL()), Register: bound(lease)})
		l.ready()
		polled := make(chan struct{})
		go func() { defer close(polled); _, _ = l.Poll(context.WithoutCancel(t.Context()), protocol.PollRequest{}) }()
		eventually(t, "the poll waits", func() bool { return a.Dispatch().Counts().Waiting == 1 })
		c.die()
		broker := a.Broker()
		other := bound(another)()
		other.WorkerID, other.Incarnation = "other", "one"
		if _, err := broker.Register(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		no := int64(0)
		before, err := broker.Poll(
			t.Context(),
			protocol.PollRequest{
				WorkerID: "other", Incarnation: "one", Kinds: []protocol.TaskKind{protocol.KindWorkflow}, Timeout: &no,
			},
		)
		if err != nil || before.StoreTime.IsZero() {
			t.Fatal(before, err)
		}
		begin(t, a, "lost")
		c.swallows(t, `"workflow_id":"lost"`)
		c.cut(true)
		eventually(t, "the link notices", func() bool { return !l.Connected() })
		var task *protocol.WorkflowTask
		eventually(t, "another has it", func() bool {
			got, err := broker.Poll(
				t.Context(),
				protocol.PollRequest{WorkerID: "other", Incarnation: "one", Kinds: []protocol.TaskKind{protocol.KindWorkflow}},
			)
			if err == nil && len(got.Tasks) > 0 {
				task = got.Tasks[0].Workflow
			}
			return task != nil
		})
		<-polled
		leased := task.LeaseExpiresAt.Add(-another * time.Second)
		if task.Attempt != 2 || leased.Before(before.StoreTime.Add(lease*time.Second)) {
			t.Errorf(
				"attempt %d was leased at %s, and the first not before %s for %d s", task.Attempt, leased, before.StoreTime, lease,
			)
		}
	})
}

// An HTTP worker, which lists no tasks when it reconnects, repeats its poll under the same ID and receives the response
// that it missed.
func TestPollOnADeadConnectionIsRepeated(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c := &cable{}
	transport := &http.Transport{DialContext: c.dial}
	defer transport.CloseIdleConnections()
	post := func(path, body string) (status int, out struct {
		Task *protocol.WorkflowTask `json:"task"`
	}, err error,
	) {
		r, err := http.NewRequestWithContext(
			t.Context(), http.MethodPost, a.URL()+"/api/worker/"+path, strings.NewReader(body),
		)
		if err != nil {
			return 0, out, err
		}
		r.Header = plain.Clone()
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Durable-Workflow-Protocol-Version", "1.20")
		resp, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			return 0, out, err
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err == nil {
			err = json.Unmarshal(raw, &out)
		}
		return resp.StatusCode, out, err
	}
	if status, _, err := post(
		"register", `{"worker_id":"w","task_queue":"default","supported_workflow_types":["one"]}`,
	); status != http.StatusCreated {
		t.Fatal(status, err)
	}
	const poll = `{"worker_id":"w","task_queue":"default","poll_request_id":"p-1","timeout_seconds":50}`
	polled := make(chan error, 1)
	go func() { _, _, err := post("workflow-tasks/poll", poll); polled <- err }()
	eventually(t, "the poll waits", func() bool { return a.Dispatch().Counts().Waiting == 1 })
	c.die()
	begin(t, a, "lost")
	c.swallows(t, `"workflow_id":"lost"`)
	c.cut(false)
	if err := <-polled; err == nil {
		t.Fatal("the lost answer was read")
	}
	_, second, err := post("workflow-tasks/poll", poll)
	if err != nil || second.Task == nil || second.Task.WorkflowID != "lost" || second.Task.Attempt != 1 {
		t.Errorf("got %+v, %v, want the first attempt", second.Task, err)
	}
}
