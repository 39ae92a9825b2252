package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/internal/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type question struct {
	Text string         `json:"text"`
	More map[string]any `json:"more,omitempty"`
}

type answer struct {
	Text string `json:"text"`
	Big  uint64 `json:"big,string"`
}

// table returns the handlers of the tests.
func table() rpc.Handlers {
	h := rpc.Handlers{}
	rpc.Handle(h, "echo", func(_ context.Context, q question) (answer, error) {
		return answer{Text: q.Text, Big: 1<<63 + 1}, nil
	})
	rpc.Handle(h, "maybe", func(_ context.Context, q *question) (*answer, error) {
		if q == nil || q.Text == "" {
			return nil, nil
		}
		return &answer{Text: q.Text}, nil
	})
	rpc.Handle(h, "void", func(context.Context, question) (rpc.None, error) { return rpc.None{}, nil })
	rpc.Handle(h, "refuse", func(context.Context, question) (rpc.None, error) {
		e := rpc.Errorf("lease_lost", 409, "task %s is held by another", "t1")
		e.Details = map[string]any{"holder": "w2"}
		return rpc.None{}, e
	})
	rpc.Handle(h, "break", func(context.Context, question) (answer, error) {
		return answer{}, errors.New("password is hunter2")
	})
	rpc.Handle(h, "panic", func(context.Context, question) (answer, error) { panic("boom") })
	rpc.Handle(h, "wait", func(ctx context.Context, _ question) (answer, error) {
		<-ctx.Done()
		return answer{}, ctx.Err()
	})
	rpc.Handle(h, "who", func(ctx context.Context, _ question) (any, error) { return rpc.PrincipalFrom(ctx), nil })
	return h
}

// Errors that are not sent to the caller are logged.
func TestHiddenErrorsAreLogged(t *testing.T) {
	serve := func(method string) error {
		_, err := table().Serve(t.Context(), method, nil)
		return err
	}
	err := serve("refuse")
	var e *rpc.Error
	if !errors.As(err, &e) || e.Code != "lease_lost" || e.Status != 409 || e.Details["holder"] != "w2" {
		t.Errorf("got %#v", err)
	}
	if !errors.Is(err, &rpc.Error{Code: "lease_lost"}) || errors.Is(err, &rpc.Error{Code: "other"}) {
		t.Error("errors.Is must compare by code")
	}
	wantCode(t, serve("nobody"), rpc.CodeUnknownMethod)

	err = serve("break")
	wantCode(t, err, rpc.CodeInternal)
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the cause leaks to the caller: %v", err)
	}
	if cause := errors.Unwrap(err); cause == nil || cause.Error() != "password is hunter2" {
		t.Errorf("the cause is lost for the log: %v", cause)
	}
	err = serve("panic")
	wantCode(t, err, rpc.CodeInternal)
	if cause := errors.Unwrap(err); cause == nil || !strings.Contains(cause.Error(), "boom") {
		t.Errorf("the panic is lost for the log: %v", cause)
	}
}

func TestACallEndsAtItsDeadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := table().Serve(ctx, "wait", nil)
	wantCode(t, err, rpc.CodeDeadlineExceeded)
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = table().Serve(ctx, "wait", nil)
	wantCode(t, err, rpc.CodeCancelled)
}

// A handler returns the cause of its context, which is the reason why a connection ended: this is not a failure of the
// handler.
func TestCallIsCancelledWithItsCallerForEveryCause(t *testing.T) {
	reset := errors.New("reset by peer")
	h := rpc.Handlers{}
	rpc.Handle(h, "cause", func(ctx context.Context, _ question) (answer, error) {
		return answer{}, fmt.Errorf("wait: %w", context.Cause(ctx))
	})
	rpc.Handle(h, "broken", func(context.Context, question) (answer, error) { return answer{}, errors.New("disk") })
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reset)
	_, err := h.Serve(ctx, "cause", nil)
	wantCode(t, err, rpc.CodeCancelled)
	if !errors.Is(err, reset) {
		t.Errorf("the cause is lost for the log: %v", errors.Unwrap(err))
	}
	_, err = h.Serve(ctx, "broken", nil)
	wantCode(t, err, rpc.CodeInternal)
}

func TestADeliveryIsSettledOnce(t *testing.T) {
	var fates []bool
	ctx, delivery := rpc.WithDelivery(t.Context())
	record := func(ok bool) { fates = append(fates, ok) }
	if !rpc.OnDelivered(ctx, record) {
		t.Error("a carrier keeps no count")
	}
	delivery.Settle(false)
	delivery.Settle(true)
	rpc.OnDelivered(ctx, record) // the response was already sent
	if len(fates) != 2 || fates[0] || fates[1] {
		t.Errorf("got %v, want [false false]", fates)
	}
	if rpc.OnDelivered(t.Context(), func(bool) { t.Error("called") }) {
		t.Error("a context without a carrier claims to keep count")
	}
}

func TestHandleRefusesASecondHandler(t *testing.T) {
	h := table()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	rpc.Handle(h, "echo", func(context.Context, int) (int, error) { return 0, nil })
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var e *rpc.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("got %v, want code %s", err, code)
	}
}
