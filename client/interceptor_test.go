package client_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// tracer adds its name to the header "path" of each request and records the calls that it sees.
type tracer struct {
	workflow.InterceptorBase
	name string

	mu    *sync.Mutex
	calls *[]string
}

func (i tracer) add(line string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	*i.calls = append(*i.calls, i.name+" "+line)
}

func (i tracer) InterceptClient(ctx context.Context, call *workflow.Call, next func(context.Context) error) error {
	call.Headers["path"] += i.name
	i.add(fmt.Sprintf("%s %s of %s %v", call.Operation, call.Name, call.WorkflowID, call.Args))
	err := next(client.WithHeaders(ctx, map[string]string{"by": i.name, "path": "not this"}))
	if err != nil {
		err = fmt.Errorf("%s: %w", i.name, err)
	}
	return err
}

func (i tracer) InterceptActivity(ctx context.Context, call *workflow.Call, next func(context.Context) error) error {
	i.add(fmt.Sprintf("begins %s", call.Name))
	err := next(context.WithValue(ctx, tracer{}, call.Headers["path"]))
	i.add(fmt.Sprintf("ends %s: %v", call.Name, err))
	return err
}

func tracers() (all []workflow.Interceptor, calls *[]string) {
	mu := &sync.Mutex{}
	calls = &[]string{}
	for _, name := range []string{"a", "b"} {
		all = append(all, tracer{name: name, mu: mu, calls: calls})
	}
	return all, calls
}

// Each kind of request passes the interceptors once, the first one outermost, although some are repeated.
func TestInterceptorsOfAClientSeeEachRequest(t *testing.T) {
	r := worker.NewRegistry()
	r.Workflow("path", func(ctx workflow.Context) (string, error) {
		workflow.HandleUpdate(ctx, "u", func(ctx workflow.Context) (string, error) {
			return workflow.Headers(ctx)["path"], nil
		})
		workflow.HandleQuery(ctx, "q", func(ctx workflow.Context) (string, error) {
			return workflow.Headers(ctx)["by"], nil
		})
		s := workflow.Signal(ctx, "s")
		if err := s.Receive(ctx); err != nil {
			return "", err
		}
		return workflow.Headers(ctx)["path"] + " " + s.Headers()["path"], nil
	})
	r.Activity("a", func(context.Context) error { return nil })
	a := apptest.Start(t, apptest.Options{})
	workWith(t, a, r)
	all, calls := tracers()
	c, err := client.New(client.Options{URLs: []string{a.URL()}, Interceptors: all})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	check := func(err error, got, want string) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	w, err := c.Start(ctx, "path", client.Args{}, client.StartOptions{WorkflowID: "w"})
	check(err, "", "")
	var got string
	check(w.Update(ctx, "u", &got), got, "ab")
	u, err := w.StartUpdate(ctx, "u", nil, client.UpdateOptions{Headers: map[string]string{"path": "own "}})
	check(err, "", "")
	check(u.Result(ctx, &got), got, "own ab")
	check(w.Query(ctx, "q", &got), got, "b")
	check(w.Signal(ctx, "s", 7), "", "")
	check(w.Result(ctx, &got), got, "ab ab")
	_, err = c.SignalWithStart(ctx, "path", nil, "s", nil, client.StartOptions{WorkflowID: "s"})
	check(err, "", "")
	_, err = c.UpdateWithStart(ctx, "path", nil, "u", nil, &got, client.StartOptions{WorkflowID: "u"})
	check(err, got, "ab")
	_, err = c.StartActivity(ctx, "a", nil, client.ActivityOptions{StartOptions: client.StartOptions{WorkflowID: "a"}})
	check(err, "", "")
	want := []string{
		"start_workflow path of w []", "update u of w []", "update u of w []", "query q of w []", "signal s of w [7]",
		"signal_with_start path of s []", "update_with_start path of u []", "start_activity a of a []",
	}
	for i := range want {
		want[i] = "a " + want[i] + "\nb " + want[i]
	}
	if got := strings.Join(*calls, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("calls:\n%s", got)
	}
	_, err = c.Start(ctx, "path", nil, client.StartOptions{WorkflowID: "w"})
	if client.ReasonOf(err) != client.ReasonWorkflowIDInUse || !strings.HasPrefix(err.Error(), "a: b: ") {
		t.Errorf("a refused start: %v", err)
	}
}

// refuser refuses requests and attempts, or loses their errors.
type refuser struct {
	workflow.InterceptorBase
	err   error
	calls bool // calls next and returns no error
}

func (i refuser) InterceptClient(ctx context.Context, _ *workflow.Call, next func(context.Context) error) error {
	if i.calls {
		_ = next(ctx)
		return nil
	}
	return i.err
}

func (i refuser) InterceptActivity(ctx context.Context, _ *workflow.Call, next func(context.Context) error) error {
	if i.calls {
		_ = next(ctx)
		return nil
	}
	return i.err
}

// An interceptor can refuse a request or an attempt. It cannot make a failure look like a success.
func TestAnInterceptorRefusesRequestsAndAttempts(t *testing.T) {
	refused := errors.New("not for this tenant")
	a := apptest.Start(t, apptest.Options{})
	start := func(i refuser) (*client.Workflow, error) {
		c, err := client.New(client.Options{URLs: []string{a.URL()}, Interceptors: []workflow.Interceptor{i}})
		if err != nil {
			t.Fatal(err)
		}
		return c.Start(t.Context(), "", nil, client.StartOptions{})
	}
	if w, err := start(refuser{err: refused}); !errors.Is(err, refused) || w != nil {
		t.Errorf("refused start: %v, %v", w, err)
	}
	if w, err := start(refuser{}); err == nil || w != nil || !strings.Contains(err.Error(), "neither called next") {
		t.Errorf("next was not called: %v, %v", w, err)
	}
	if w, err := start(refuser{calls: true}); err == nil || w != nil { // a start without a type is refused
		t.Errorf("lost error: %v, %v", w, err)
	}
	for name, i := range map[string]refuser{"refused": {err: refused}, "lost error": {calls: true}, "no next": {}} {
		r := worker.NewRegistry()
		began := 0
		r.Activity(name, func(context.Context) error {
			began++
			return errors.New("of the activity")
		})
		r.Intercept(i)
		b := apptest.Start(t, apptest.Options{})
		workWith(t, b, r)
		run, err := asking(t, b.URL()).StartActivity(t.Context(), name, nil, client.ActivityOptions{})
		if err != nil {
			t.Fatal(err)
		}
		err = run.Result(t.Context(), nil)
		want := map[string]string{
			"refused": refused.Error(), "lost error": "of the activity", "no next": "neither called next",
		}[name]
		if err == nil || !strings.Contains(err.Error(), want) || (began > 0) != i.calls {
			t.Errorf("%s: %v, the code began %d times", name, err, began)
		}
	}
}

// Interceptors of a registry run around each attempt, and their context values reach the code.
func TestInterceptorsOfActivitiesRunAroundEachAttempt(t *testing.T) {
	all, calls := tracers()
	r := worker.NewRegistry()
	attempts := 0
	r.Activity("a", func(ctx context.Context) (string, error) {
		if attempts++; attempts == 1 {
			return "", errors.New("once more")
		}
		path, _ := ctx.Value(tracer{}).(string)
		return path, nil
	})
	r.Intercept(all...)
	a := apptest.Start(t, apptest.Options{})
	workWith(t, a, r)
	run, err := asking(t, a.URL()).StartActivity(
		client.WithHeaders(t.Context(), map[string]string{"path": "/x"}), "a", nil,
		client.ActivityOptions{Retry: &client.RetryPolicy{MaxAttempts: 2}},
	)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := run.Result(t.Context(), &got); err != nil || got != "/x" {
		t.Errorf("got %q, %v", got, err)
	}
	want := []string{
		"a begins a", "b begins a", "b ends a: once more", "a ends a: once more",
		"a begins a", "b begins a", "b ends a: <nil>", "a ends a: <nil>",
	}
	if !slices.Equal(*calls, want) {
		t.Errorf("calls: %q", *calls)
	}
}

// remover removes the header "secret" from requests.
type remover struct{ workflow.InterceptorBase }

func (remover) InterceptClient(ctx context.Context, call *workflow.Call, next func(context.Context) error) error {
	delete(call.Headers, "secret")
	return next(client.WithHeaders(ctx, map[string]string{"added": "1"}))
}

// An interceptor can remove headers, whether they are from the context or from the options of the request.
func TestAnInterceptorRemovesHeaders(t *testing.T) {
	r := worker.NewRegistry()
	r.Activity("names", func(ctx context.Context) ([]string, error) {
		return slices.Sorted(maps.Keys(activity.Headers(ctx))), nil
	})
	a := apptest.Start(t, apptest.Options{})
	workWith(t, a, r)
	c, err := client.New(client.Options{URLs: []string{a.URL()}, Interceptors: []workflow.Interceptor{remover{}}})
	if err != nil {
		t.Fatal(err)
	}
	secret := map[string]string{"secret": "x", "kept": "y"}
	for name, call := range map[string]struct {
		ctx context.Context
		own map[string]string
	}{"context": {client.WithHeaders(t.Context(), secret), nil}, "options": {t.Context(), secret}} {
		run, err := c.StartActivity(call.ctx, "names", nil, client.ActivityOptions{
			StartOptions: client.StartOptions{Headers: call.own},
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if err := run.Result(t.Context(), &got); err != nil || !slices.Equal(got, []string{"added", "kept"}) {
			t.Errorf("headers of the %s: the activity received %q, %v", name, got, err)
		}
	}
}
