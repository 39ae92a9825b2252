package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/internal/stack"
	"github.com/sojourn-run/sojourn/sandbox/frame"
)

// ControlFD is the descriptor on which an executor finds its control socket.
const ControlFD = 3

// closeTime is the total timeout of all close hooks of a session.
const closeTime = 5 * time.Second

// Serve serves the worker's calls on descriptor 3 until the worker shuts the executor down or ends; then it returns
// nil.
func Serve(handlers Handlers) error {
	file := os.NewFile(ControlFD, "control")
	if file == nil {
		return errors.New("descriptor 3 is not open: only a worker can start an executor")
	}
	conn, err := net.FileConn(file)
	if err != nil {
		return fmt.Errorf("control socket on descriptor 3: %w", err)
	}
	_ = file.Close()
	useProxy()
	return (&server{conn: conn, handlers: handlers, exclusive: true}).serve()
}

// ServeConn is like [Serve], but uses an existing connection, which it closes. The process may have other work, so its
// state is not restored between calls.
func ServeConn(conn net.Conn, handlers Handlers) error {
	return (&server{conn: conn, handlers: handlers}).serve()
}

func (s *server) serve() error {
	defer s.conn.Close()
	s.calls, s.lastHeartbeats, s.headers = map[string]*Call{}, map[string][]byte{}, map[string][]byte{}
	defer s.running.Wait()
	defer s.cancelAll(errors.New("the executor is shutting down"))
	r := frame.NewReader(s.conn, frame.DefaultLimits, s.conn.SetReadDeadline)
	for {
		f, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("control socket: %w", err)
		}
		if f.T == frame.Shutdown {
			return nil
		}
		if err := s.handle(f); err != nil {
			return err
		}
	}
}

// server is the connection to a worker.
type server struct {
	conn      net.Conn
	handlers  Handlers
	exclusive bool // the process has no other work, so its state is restored between calls
	scratch   string
	state     *State
	// initial is the state of the process before any call; nil: the process is not restored
	initial *processState
	undo    sync.Mutex // held while the state of the process is restored: no call may begin meanwhile
	running sync.WaitGroup

	// frames that precede a call, by the ID of the call, until it begins; frames of other calls may come in between
	lastHeartbeats map[string][]byte
	headers        map[string][]byte

	out sync.Mutex // held while a frame is written; guards buf
	buf []byte

	mu    sync.Mutex // guards calls
	calls map[string]*Call
}

func (s *server) send(f frame.Frame) error {
	s.out.Lock()
	defer s.out.Unlock()
	buf, err := frame.Append(s.buf[:0], f, frame.DefaultLimits)
	if err != nil {
		return err
	}
	if cap(buf) <= 64<<10 { // do not keep the buffer of one large result
		s.buf = buf
	}
	_, _ = s.conn.Write(buf) // the reader detects that the worker has ended
	return nil
}

// trySend sends a frame and ignores errors, for example of a frame that is too large.
func (s *server) trySend(f frame.Frame) { _ = s.send(f) }

func (s *server) handle(f frame.Frame) (err error) {
	switch f.T {
	case frame.Init:
		s.scratch = f.Scratch
		if s.exclusive {
			if s.initial, err = captureProcessState(s.scratch); err != nil {
				return err
			}
		}
		s.trySend(frame.Frame{
			Header: frame.Header{T: frame.Ready, Proto: frame.Proto, Runtime: "go", Features: []string{"overlap"}},
		})
	case frame.Open:
		s.state = &State{ID: f.Session, Epoch: f.Epoch, Dir: s.scratch}
	case frame.LastHeartbeat:
		s.lastHeartbeats[f.ID] = f.Body
	case frame.Headers:
		s.headers[f.ID] = f.Body
	case frame.Invoke:
		s.invoke(f)
	case frame.Cancel:
		s.mu.Lock()
		c := s.calls[f.ID]
		s.mu.Unlock()
		if c != nil {
			c.cancel(errors.New(f.Reason))
		}
	case frame.Close:
		s.running.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), closeTime)
			defer cancel()
			if s.state != nil {
				s.state.close(ctx)
			}
			s.trySend(frame.Frame{Header: frame.Header{T: frame.Closed}})
		})
	case frame.Ping:
		s.trySend(frame.Frame{Header: frame.Header{T: frame.Pong}})
	}
	return nil
}

func (s *server) cancelAll(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		c.cancel(cause)
	}
}

func (s *server) invoke(f frame.Frame) {
	ctx, cancel := context.WithCancelCause(context.Background())
	c := &Call{IsNew: f.IsNew, id: f.ID, server: s, cancel: cancel}
	inv := Invocation{
		ID: f.ID, Activity: f.Activity, Entry: f.Entry, Hash: f.Hash, Attempt: f.Attempt, Keys: f.Keys, Input: f.Body,
		LastHeartbeat: s.lastHeartbeats[f.ID], Headers: s.headers[f.ID],
	}
	delete(s.lastHeartbeats, f.ID)
	delete(s.headers, f.ID)
	stop := func() {}
	if f.DeadlineMS != 0 {
		inv.Deadline = time.UnixMilli(f.DeadlineMS)
		ctx, stop = context.WithDeadline(ctx, inv.Deadline)
	}
	outside := s.state == nil
	if !outside {
		s.mu.Lock()
		if f.Epoch != 0 && f.Epoch != s.state.Epoch { // the worker has acquired a session that it prepared
			s.state.Epoch = f.Epoch
		}
		s.mu.Unlock()
		c.state = s.state
		inv.Session = &Session{ID: s.state.ID, Epoch: s.state.Epoch}
	}
	s.undo.Lock() // waits until the process is restored after earlier calls
	s.mu.Lock()
	s.calls[f.ID] = c
	s.mu.Unlock()
	s.undo.Unlock()
	s.running.Go(func() {
		defer cancel(nil)
		defer stop()
		before, _ := resourcesUsed()
		output, err := s.run(context.WithValue(ctx, callKey{}, c), inv)
		s.undo.Lock()
		defer s.undo.Unlock()
		s.mu.Lock()
		delete(s.calls, f.ID)
		last := len(s.calls) == 0
		s.mu.Unlock()
		if err != nil {
			c.finish(failure(ctx, f.ID, err))
		} else {
			c.finish(frame.Frame{Header: frame.Header{T: frame.Result, ID: f.ID, Usage: usageSince(before)}, Body: output})
		}
		if last && outside {
			s.restore()
		}
	})
}

// restore restores the process after calls outside sessions; undo is held. After an error the executor exits, and the
// worker uses another one for the next call.
func (s *server) restore() {
	if s.initial == nil {
		return
	}
	if err := s.initial.restore(); err != nil {
		fmt.Fprintf(os.Stderr, "executor: failed to restore the process after a call, exiting: %v\n", err)
		os.Exit(0)
	}
}

// run calls the handler and converts a panic to an error.
func (s *server) run(ctx context.Context, inv Invocation) (output []byte, err error) {
	h := s.handlers[inv.Activity]
	if h == nil {
		return nil, &Error{Type: Unavailable, Message: fmt.Sprintf("no native handler %q", inv.Activity), Retryable: true}
	}
	defer func() {
		if p := recover(); p != nil {
			err = &Error{Type: UserError, Class: "panic", Message: fmt.Sprint(p), Stack: stack.OfPanic(), Retryable: true}
		}
	}()
	return h(ctx, inv)
}

// failure returns the frame that reports err. If err only reports that ctx has ended, the frame reports a cancellation
// or a deadline.
func failure(ctx context.Context, id string, err error) frame.Frame {
	var typed *Error
	var lost *SessionLost
	switch {
	case errors.As(err, &typed):
	case errors.As(err, &lost):
		details, _ := json.Marshal(map[string]string{"cause": string(lost.Cause)})
		typed = &Error{Type: Lost, Message: lost.Message, Retryable: true, Details: details}
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		typed = &Error{Type: DeadlineExceeded, Message: err.Error(), Retryable: true}
	case ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))):
		typed = &Error{Type: Cancelled, Message: err.Error()}
	default:
		typed = &Error{
			Type: UserError, Class: fmt.Sprintf("%T", err), Message: err.Error(), Retryable: true, Denied: DeniedPath(err),
		}
	}
	h := frame.Header{
		T: frame.Error, ID: id, Type: string(typed.Type), Class: clipText(typed.Class, 256), Message: clipText(
			typed.Message, 16<<10,
		),
		Stack: clipText(typed.Stack, 16<<10), Retryable: &typed.Retryable, Denied: clipText(typed.Denied, 1024),
	}
	if len(typed.Details) <= 16<<10 && json.Valid(typed.Details) {
		h.Details = typed.Details
	}
	return frame.Frame{Header: h}
}

// clipText limits the length of a text in a header.
func clipText(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}
