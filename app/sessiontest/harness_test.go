package sessiontest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ms  = time.Millisecond
	sec = time.Second
)

// ceiling is the maximum virtual time of a wait.
const ceiling = 15 * time.Minute

// harness is an app and workers in one bubble: real parts, real SQLite, virtual time.
type harness struct {
	*testServer
	t     *testing.T
	began time.Time
	setup []func(r *worker.Registry, p *proc)

	rebuild time.Duration // duration of a rebuild; 0: as its arguments specify

	mu  sync.Mutex // guards ran
	ran []*ran
}

// ran is one run of an activity's code. Times are relative to the start of the harness; to is 0 while the code runs.
type ran struct {
	what     string // the item's name
	worker   string
	session  activity.SessionInfo // zero outside a session
	attempt  int
	id       string
	from, to time.Duration
	cause    error // cause of the cancellation
}

// bubble runs a case in virtual time.
func bubble(t *testing.T, name string, test func(h *harness)) {
	bubbleOn(t, name, serverOptions{}, test)
}

func bubbleOn(t *testing.T, name string, o serverOptions, test func(h *harness)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &harness{t: t, began: time.Now()}
			h.testServer = open(t, o)
			h.uses(func(r *worker.Registry, p *proc) {
				r.Activity("work", func(ctx context.Context, item string, millis int) (string, error) {
					return p.name, h.work(ctx, p, item, time.Duration(millis)*ms)
				})
			})
			test(h)
		})
	})
}

// uses registers activities and workflows on every worker that starts later.
func (h *harness) uses(setup func(r *worker.Registry, p *proc)) { h.setup = append(h.setup, setup) }

// flow registers a workflow under a name on every worker that starts later.
func (h *harness) flow(name string, fn any) {
	h.uses(func(r *worker.Registry, _ *proc) { r.Workflow(name, fn) })
}

// work is the code of the activities: it records that it runs, and waits for d or its cancellation.
func (h *harness) work(ctx context.Context, p *proc, item string, d time.Duration) error {
	info := activity.Info(ctx)
	r := &ran{what: item, worker: p.name, attempt: info.Attempt, id: info.AttemptID, from: h.at()}
	r.session, _ = activity.Session(ctx)
	h.mu.Lock()
	h.ran = append(h.ran, r)
	h.mu.Unlock()
	var err error
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r.to, r.cause = h.at(), err
	return err
}

// at returns the time since the start of the test.
func (h *harness) at() time.Duration { return time.Since(h.began) }

// did returns the executions so far: those of the given items, or all.
func (h *harness) did(items ...string) (list []ran) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.ran {
		if len(items) == 0 || slices.Contains(items, r.what) {
			list = append(list, *r)
		}
	}
	return list
}

// once returns the only execution of an item.
func (h *harness) once(item string) ran {
	h.t.Helper()
	list := h.did(item)
	if len(list) != 1 {
		h.t.Fatalf("%s ran %d times: %+v", item, len(list), list)
	}
	return list[0]
}

// wait advances time by d and waits until all goroutines block.
func (h *harness) wait(d time.Duration) { time.Sleep(d); synctest.Wait() }

// until waits in steps until ok returns true, for at most ceiling.
func (h *harness) until(what string, step time.Duration, ok func() bool) {
	h.t.Helper()
	for began := h.at(); !ok(); h.wait(step) {
		if h.at()-began > ceiling {
			h.t.Fatalf("not within %s: %s", ceiling, what)
		}
	}
}

// running waits until an item runs, and returns its latest run.
func (h *harness) running(item string) ran {
	h.t.Helper()
	var last ran
	h.until(item+" runs", 5*ms, func() bool {
		list := h.did(item)
		if len(list) == 0 {
			return false
		}
		last = list[len(list)-1]
		return last.to == 0
	})
	return last
}

// near checks that a time differs from the expected time by at most a tolerance.
func (h *harness) near(what string, got, want, slack time.Duration) {
	h.t.Helper()
	if got < want-slack || got > want+slack {
		h.t.Errorf("%s at %s, want %s ± %s", what, got, want, slack)
	}
}

// between checks that a time is within two bounds.
func (h *harness) between(what string, got, from, to time.Duration) {
	h.t.Helper()
	if got < from || got > to {
		h.t.Errorf("%s at %s, want between %s and %s", what, got, from, to)
	}
}

func (h *harness) equal(what string, got, want any) {
	h.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		h.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// begin starts a workflow and returns its run.
func (h *harness) begin(typ string, args ...any) string {
	h.t.Helper()
	return h.beginAs("", typ, args...)
}

func (h *harness) beginAs(id, typ string, args ...any) string {
	h.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		h.t.Fatal(err)
	}
	a, err := h.Start(h.t.Context(), protocol.StartRequest{WorkflowID: id, WorkflowType: typ, Input: raw})
	if err != nil {
		h.t.Fatal(err)
	}
	return a.RunID
}

// waitOf returns the wait reason of a run. It fails the test if the run has none.
func (h *harness) waitOf(run string) *protocol.Wait {
	h.t.Helper()
	v, err := h.Describe(h.t.Context(), protocol.Target{RunID: run})
	if err != nil || v.Wait == nil {
		h.t.Fatal(err, v)
	}
	return v.Wait
}

// signal sends a signal to a run's workflow.
func (h *harness) signal(run, name string, args ...any) {
	h.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		h.t.Fatal(err)
	}
	v, err := h.Describe(h.t.Context(), protocol.Target{RunID: run})
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.Signal(h.t.Context(), protocol.SignalRequest{
		Target: protocol.Target{WorkflowID: v.WorkflowID}, SignalName: name, Input: raw,
	}); err != nil {
		h.t.Fatal(err)
	}
}

// events returns a run's history.
func (h *harness) events(run string) (all []history.Event) {
	h.t.Helper()
	for token := ""; ; {
		page, err := h.History(
			h.t.Context(), protocol.HistoryQuery{Target: protocol.Target{RunID: run}, PageSize: 1000, PageToken: token},
		)
		if err != nil {
			h.t.Fatal(err)
		}
		all = append(all, page.Events...)
		if page.NextPageToken == nil {
			return all
		}
		token = *page.NextPageToken
	}
}

// types returns a run's history in short form.
func (h *harness) types(run string) (types []string) {
	h.t.Helper()
	for _, e := range h.events(run) {
		types = append(types, e.Type())
	}
	return types
}

// finish waits for the end of a run, or of the last run that it continues as, and returns the last event.
func (h *harness) finish(run string) history.Event {
	h.t.Helper()
	for late := time.After(ceiling); ; {
		changed, stop := h.dispatch.WatchRun(run)
		events := h.events(run)
		last := events[len(events)-1]
		switch d := last.Data.(type) {
		case *history.WorkflowCompleted, *history.WorkflowFailed, *history.WorkflowCancelled, *history.WorkflowTerminated,
			*history.WorkflowTimedOut:
			stop()
			return last
		case *history.WorkflowContinuedAsNew:
			stop()
			run = d.NewRunID
			continue
		}
		select {
		case <-changed:
		case <-late:
			raw, _ := json.MarshalIndent(events, "", " ")
			h.t.Fatalf("run %s did not end, ran %+v:\n%s", run, h.did(), raw)
		}
		stop()
	}
}

// output returns the result of a run.
func output[T any](h *harness, run string) T {
	h.t.Helper()
	last := h.finish(run)
	done, ok := last.Data.(*history.WorkflowCompleted)
	if !ok {
		raw, _ := json.Marshal(last)
		h.t.Fatalf("the run ended with %s", raw)
	}
	var v T
	if err := payload.Decode(payload.Payload{Blob: done.Output}, &v); err != nil {
		h.t.Fatal(err)
	}
	return v
}

// row returns a session's row; false: there is none.
func (h *harness) row(id string) (s engine.Session, ok bool) {
	h.t.Helper()
	err := h.store.View(h.t.Context(), func(r store.Reader) (err error) {
		s, err = r.Session(h.t.Context(), engine.SessionKey{Namespace: "default", ID: id})
		return err
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		h.t.Fatal(err)
	}
	return s, err == nil
}

// owner returns the current owner of a session, or "".
func (h *harness) owner(id string) string {
	h.t.Helper()
	if s, ok := h.row(id); ok && s.Held(time.Now()) {
		return s.Owner
	}
	return ""
}

// lease returns the end of a session's lease, relative to the start of the harness.
func (h *harness) lease(id string) time.Duration {
	h.t.Helper()
	s, ok := h.row(id)
	if !ok {
		h.t.Fatalf("no row of %s", id)
	}
	return s.LeaseUntil.Sub(h.began)
}

// entries returns the timeline of a session.
func (h *harness) entries(id string) (list []store.TimelineEntry) {
	h.t.Helper()
	err := h.store.View(h.t.Context(), func(r store.Reader) (err error) {
		list, err = r.Timeline(h.t.Context(), engine.SessionKey{Namespace: "default", ID: id}, 0, 1000)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return list
}

// timeline returns the timeline of a session in short form.
func (h *harness) timeline(id string) (what []string) {
	h.t.Helper()
	for _, e := range h.entries(id) {
		what = append(what, e.What)
	}
	return what
}

// in runs the activity "work" in a session, or without one, and returns the worker that ran it.
func in(ctx workflow.Context, session, item string, millis int) (string, error) {
	return workflow.Await[string](ctx, begin(ctx, session, item, millis))
}

func begin(ctx workflow.Context, session, item string, millis int) workflow.Future {
	return workflow.ExecuteActivity(workflow.InSession(ctx, session), "work", item, millis)
}

// distinct returns the workers of executions, each once, sorted.
func distinct(list []ran) (workers []string) {
	for _, r := range list {
		workers = append(workers, r.worker)
	}
	slices.Sort(workers)
	return slices.Compact(workers)
}

// context returns a context that outlives the test's context until it is cancelled. Each caller must cancel it.
func (h *harness) context() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.WithoutCancel(h.t.Context()))
}

// held returns the owners of the sessions that are held now, one entry for each.
func (h *harness) held() (owners []string) {
	h.t.Helper()
	err := h.store.View(h.t.Context(), func(r store.Reader) error {
		list, err := r.Sessions(h.t.Context(), store.SessionQuery{Namespace: "default", Limit: 1000})
		for _, s := range list {
			if s.Held(time.Now()) {
				owners = append(owners, s.Owner)
			}
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return owners
}
