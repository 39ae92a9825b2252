package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/shared/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type question struct {
	Text string         `json:"text"`
	More map[string]any `json:"more,omitempty"`
	fn   func()         // cannot travel as JSON
}

type answer struct {
	Text string `json:"text"`
	Big  uint64 `json:"big,string"`
}

// table is what the tests of every carrier call.
func table() rpc.Handlers {
	h := rpc.Handlers{}
	rpc.Handle(h, "echo", func(_ context.Context, q question) (answer, error) {
		if q.fn != nil {
			q.fn()
		}
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

func TestLocalPassesValuesWithoutJSON(t *testing.T) {
	caller := rpc.Local{Handlers: table()}
	called := 0
	in := question{Text: "hi", fn: func() { called++ }}
	for _, in := range []any{in, &in} {
		var out answer
		if err := caller.Call(t.Context(), "echo", in, &out); err != nil {
			t.Fatal(err)
		}
		if want := (answer{Text: "hi", Big: 1<<63 + 1}); out != want {
			t.Errorf("got %+v, want %+v", out, want)
		}
	}
	if called != 2 {
		t.Errorf("the function in the payload ran %d times, want 2: the payload was copied by way of JSON", called)
	}
}

func TestLocalConvertsForeignTypesAsASocketWould(t *testing.T) {
	var out map[string]any
	if err := (rpc.Local{Handlers: table()}).Call(t.Context(), "echo", map[string]string{"text": "hi"}, &out); err != nil {
		t.Fatal(err)
	}
	if out["text"] != "hi" || out["big"] != "9223372036854775809" {
		t.Errorf("got %v", out)
	}
	err := (rpc.Local{Handlers: table()}).Call(t.Context(), "echo", "a string", &out)
	wantCode(t, err, rpc.CodeMalformedPayload)
	err = (rpc.Local{Handlers: table()}).Call(t.Context(), "echo", question{}, new(int))
	wantCode(t, err, rpc.CodeMalformedAnswer)
}

func TestLocalLeavesOutAloneOnNull(t *testing.T) {
	caller := rpc.Local{Handlers: table()}
	out := &answer{Text: "before"}
	if err := caller.Call(t.Context(), "maybe", nil, &out); err != nil || out == nil || out.Text != "before" {
		t.Errorf("null: got %+v, %v", out, err)
	}
	var fresh *answer
	if err := caller.Call(t.Context(), "maybe", question{Text: "x"}, &fresh); err != nil || fresh == nil ||
		fresh.Text != "x" {
		t.Errorf("value into a nil pointer: got %+v, %v", fresh, err)
	}
	var flat answer
	if err := caller.Call(t.Context(), "maybe", question{Text: "y"}, &flat); err != nil || flat.Text != "y" {
		t.Errorf("pointer into a struct: got %+v, %v", flat, err)
	}
	if err := caller.Call(t.Context(), "void", question{}, &flat); err != nil || flat.Text != "y" {
		t.Errorf("no answer: got %+v, %v", flat, err)
	}
}

func TestLocalRefusals(t *testing.T) {
	caller := rpc.Local{Handlers: table()}
	err := caller.Call(t.Context(), "refuse", question{}, nil)
	var e *rpc.Error
	if !errors.As(err, &e) || e.Code != "lease_lost" || e.Status != 409 || e.Details["holder"] != "w2" {
		t.Errorf("got %#v", err)
	}
	if !errors.Is(err, &rpc.Error{Code: "lease_lost"}) || errors.Is(err, &rpc.Error{Code: "other"}) {
		t.Error("errors.Is must compare by code")
	}
	wantCode(t, caller.Call(t.Context(), "nobody", nil, nil), rpc.CodeUnknownMethod)

	err = caller.Call(t.Context(), "break", question{}, nil)
	wantCode(t, err, rpc.CodeInternal)
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the cause leaks to the caller: %v", err)
	}
	if cause := errors.Unwrap(err); cause == nil || cause.Error() != "password is hunter2" {
		t.Errorf("the cause is lost for the log: %v", cause)
	}
	err = caller.Call(t.Context(), "panic", question{}, nil)
	wantCode(t, err, rpc.CodeInternal)
	if cause := errors.Unwrap(err); cause == nil || !strings.Contains(cause.Error(), "boom") {
		t.Errorf("the panic is lost for the log: %v", cause)
	}
}

func TestLocalCallEndsAtItsDeadline(t *testing.T) {
	caller := rpc.Local{Handlers: table(), Timeout: time.Millisecond}
	wantCode(t, caller.Call(t.Context(), "wait", nil, nil), rpc.CodeDeadlineExceeded)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantCode(t, rpc.Local{Handlers: table()}.Call(ctx, "wait", nil, nil), rpc.CodeCancelled)
}

// A handler hands the cause of its context on, and that names how a connection ended: it is no failure of the handler.
func TestCallWhoseCallerWentIsCancelledWhateverTheCause(t *testing.T) {
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

func TestLocalCarriesThePrincipal(t *testing.T) {
	var who string
	if err := (rpc.Local{Handlers: table(), Principal: "w7"}).Call(t.Context(), "who", nil, &who); err != nil ||
		who != "w7" {
		t.Errorf("got %q, %v", who, err)
	}
	ctx := rpc.WithPrincipal(t.Context(), "w8")
	if err := (rpc.Local{Handlers: table()}).Call(ctx, "who", nil, &who); err != nil || who != "w8" {
		t.Errorf("got %q, %v", who, err)
	}
}

func TestLocalSettlesDelivery(t *testing.T) {
	h := rpc.Handlers{}
	var fates []bool
	rpc.Handle(h, "give", func(ctx context.Context, fail bool) (string, error) {
		if !rpc.OnDelivered(ctx, func(ok bool) { fates = append(fates, ok) }) {
			t.Error("the local carrier keeps no count")
		}
		if fail {
			return "", errors.New("no")
		}
		return "job", nil
	})
	var out string
	var wrong int
	_ = rpc.Local{Handlers: h}.Call(t.Context(), "give", false, &out)
	_ = rpc.Local{Handlers: h}.Call(t.Context(), "give", true, &out)
	_ = rpc.Local{Handlers: h}.Call(t.Context(), "give", false, &wrong)
	if len(fates) != 3 || !fates[0] || fates[1] || fates[2] {
		t.Errorf("got %v, want [true false false]", fates)
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
