package executor

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/sandbox/frame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// worker is the other side of the socket, by hand.
type worker struct {
	t    *testing.T
	conn net.Conn
	in   *frame.Reader
}

// serve starts a server with the handlers and greets it.
func serve(t *testing.T, handlers Handlers) *worker {
	t.Helper()
	here, there := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- ServeConn(there, handlers) }()
	w := &worker{t: t, conn: here, in: frame.NewReader(here, frame.DefaultLimits, here.SetReadDeadline)}
	t.Cleanup(func() {
		go func() { // read its remaining messages
			for {
				if _, err := w.in.Read(); err != nil {
					return
				}
			}
		}()
		w.send(frame.Frame{Header: frame.Header{T: frame.Shutdown}})
		if err := <-served; err != nil {
			t.Errorf("served until %v", err)
		}
		here.Close()
	})
	w.send(frame.Frame{Header: frame.Header{T: frame.Init, Proto: frame.Proto, Scratch: "/scratch"}})
	w.want(frame.Ready)
	return w
}

func (w *worker) send(f frame.Frame) {
	w.t.Helper()
	b, err := frame.Append(nil, f, frame.DefaultLimits)
	if err == nil {
		_, err = w.conn.Write(b)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *worker) want(kind string) frame.Frame {
	w.t.Helper()
	_ = w.conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	f, err := w.in.Read()
	if err != nil || f.T != kind {
		w.t.Fatalf("got %+v, %v, want %s", f.Header, err, kind)
	}
	return f
}

func TestHandlersAnswerWithResultOrTypedError(t *testing.T) {
	w := serve(t, Handlers{
		"echo":  func(_ context.Context, inv Invocation) ([]byte, error) { return inv.Input, nil },
		"plain": func(context.Context, Invocation) ([]byte, error) { return nil, errors.New("plain") },
		"typed": func(context.Context, Invocation) ([]byte, error) {
			return nil, &Error{Type: UserError, Class: "Mine", Message: "typed", Details: []byte(`[1]`)}
		},
		"panic": func(context.Context, Invocation) ([]byte, error) { panic("at the disco") },
		"large": func(context.Context, Invocation) ([]byte, error) { return make([]byte, 3<<20), nil },
		"late":  func(ctx context.Context, _ Invocation) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() },
	})
	invoke := func(activity string, deadline time.Time) frame.Frame {
		h := frame.Header{T: frame.Invoke, ID: activity, Activity: activity}
		if !deadline.IsZero() {
			h.DeadlineMS = deadline.UnixMilli()
		}
		w.send(frame.Frame{Header: h, Body: []byte("in")})
		_ = w.conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
		f, err := w.in.Read()
		if err != nil || f.ID != activity {
			t.Fatalf("%s: %+v, %v", activity, f.Header, err)
		}
		return f
	}
	if f := invoke("echo", time.Time{}); f.T != frame.Result || string(f.Body) != "in" || f.Usage == nil ||
		f.Usage.RSS == 0 {
		t.Errorf("echo: %+v %q", f.Header, f.Body)
	}
	for activity, want := range map[string]struct {
		kind    ErrorType
		class   string
		message string
		again   bool
	}{
		"plain":   {UserError, "*errors.errorString", "plain", true},
		"typed":   {UserError, "Mine", "typed", false},
		"panic":   {UserError, "panic", "at the disco", true},
		"large":   {UserError, "ResultTooLarge", "exceeds", false},
		"unknown": {Unavailable, "", `"unknown"`, true},
	} {
		f := invoke(activity, time.Time{})
		if f.T != frame.Error || f.Type != string(want.kind) || f.Class != want.class ||
			!strings.Contains(f.Message, want.message) || *f.Retryable != want.again {
			t.Errorf("%s: %+v", activity, f.Header)
		}
		if activity == "panic" && !strings.Contains(f.Stack, "serve_test.go") {
			t.Errorf("the stack does not lead to the panic:\n%s", f.Stack)
		}
	}
	if f := invoke("late", time.Now().Add(10*time.Millisecond)); f.Type != string(DeadlineExceeded) {
		t.Errorf("late: %+v", f.Header)
	}
}

// The frames of calls that begin at the same time arrive in any order, but the frames of one call in theirs.
func TestFramesOfConcurrentCallsAreNotMixed(t *testing.T) {
	w := serve(t, Handlers{"echo": func(_ context.Context, inv Invocation) ([]byte, error) {
		return []byte(inv.ID + ": " + string(inv.LastHeartbeat) + " " + string(inv.Headers)), nil
	}})
	for _, id := range []string{"a", "b", "c"} {
		w.send(frame.Frame{Header: frame.Header{T: frame.LastHeartbeat, ID: id}, Body: []byte("heartbeat of " + id)})
		w.send(frame.Frame{Header: frame.Header{T: frame.Headers, ID: id}, Body: []byte("headers of " + id)})
	}
	for _, id := range []string{"b", "none", "a", "c"} {
		w.send(frame.Frame{Header: frame.Header{T: frame.Invoke, ID: id, Activity: "echo"}})
		want := id + ": heartbeat of " + id + " headers of " + id
		if id == "none" {
			want = "none:  "
		}
		if got := string(w.want(frame.Result).Body); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestProgressIsThrottledAndItsLastValueKept(t *testing.T) {
	w := serve(t, Handlers{"show": func(ctx context.Context, _ Invocation) ([]byte, error) {
		for _, v := range []string{"1", "2", "3"} {
			From(ctx).Progress([]byte(v))
			From(ctx).Heartbeat()
		}
		From(ctx).Log("warn", "three %s", "shown")
		return nil, nil
	}})
	w.send(frame.Frame{Header: frame.Header{T: frame.Invoke, ID: "1", Activity: "show"}})
	if f := w.want(frame.Progress); string(f.Body) != "1" {
		t.Errorf("first %s", f.Body)
	}
	w.want(frame.Heartbeat)
	if f := w.want(frame.Log); string(f.Body) != "three shown" || f.Level != "warn" {
		t.Errorf("log %q", f.Body)
	}
	if f := w.want(frame.Progress); string(f.Body) != "3" {
		t.Errorf("last %s", f.Body)
	}
	w.want(frame.Result)
}

func TestCloseRunsHooksLastFirstAndSurvivesAPanic(t *testing.T) {
	var order []string
	w := serve(t, Handlers{"open": func(ctx context.Context, inv Invocation) ([]byte, error) {
		s := From(ctx).Session()
		if s.ID != "s" || s.Epoch != 9 || s.Dir != "/scratch" || inv.Session.Epoch != 9 || !From(ctx).IsNew {
			t.Errorf("session %+v", inv.Session)
		}
		s.OnClose(func(context.Context) { order = append(order, "first") })
		s.OnClose(func(context.Context) { panic("in a hook") })
		s.OnClose(func(context.Context) { order = append(order, "last") })
		return nil, nil
	}})
	w.send(frame.Frame{Header: frame.Header{T: frame.Open, Session: "s", Epoch: 9}})
	w.send(frame.Frame{Header: frame.Header{T: frame.Invoke, ID: "1", Activity: "open", IsNew: true}})
	w.want(frame.Result)
	w.send(frame.Frame{Header: frame.Header{T: frame.Close}})
	w.want(frame.Closed)
	if strings.Join(order, " ") != "last first" {
		t.Errorf("ran %q", order)
	}
	w.send(frame.Frame{Header: frame.Header{T: frame.Ping}})
	w.want(frame.Pong)
}
