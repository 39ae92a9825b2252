package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

var errNo = errors.New("no")

func start(w *Fixture, workflow string) engine.Start {
	return engine.Start{RunID: w.ID(), Number: 1, Request: protocol.StartRequest{
		Namespace: Namespace, WorkflowID: workflow, WorkflowType: "flow", TaskQueue: Queue,
	}}
}

// waiting is implemented by stores that report the length of their committer's queue.
type waiting interface{ Waiting() int }

// until waits for a condition.
func (w *Fixture) until(what string, ok func() bool) {
	w.T.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.T.Fatalf("waited in vain for %s", what)
		}
	}
}

// together commits changes in one batch: the committer is blocked by a first change until all of them wait.
func (w *Fixture) together(changes ...store.Transaction) []error {
	entered, leave := make(chan struct{}), make(chan struct{})
	var once, wg sync.WaitGroup
	once.Go(func() {
		first := true
		_, _ = w.S.Commit(context.Background(), store.Transaction{Decide: func(store.Rows, time.Time) (store.Writes, error) {
			if first {
				first = false
				close(entered)
				<-leave
			}
			return store.Writes{}, errNo
		}})
	})
	<-entered
	errs := make([]error, len(changes))
	for i, c := range changes {
		wg.Go(func() { _, errs[i] = w.S.Commit(context.Background(), c) })
		w.until("the change to wait", func() bool { return w.S.(waiting).Waiting() > i })
	}
	close(leave)
	once.Wait()
	wg.Wait()
	return errs
}

func testAtomic(t *testing.T, s Suite) {
	w := s.New(t)
	a, b := start(w, "a"), start(w, "b")
	k := engine.SessionKey{Namespace: Namespace, ID: "s"}
	both := func(err error) store.Transaction {
		return store.Transaction{
			Needs: store.Keys{
				Workflows: []engine.WorkflowKey{{Namespace: Namespace, ID: "a"}}, Sessions: []engine.SessionKey{k},
			},
			Decide: func(_ store.Rows, now time.Time) (store.Writes, error) {
				return store.Writes{
					Runs: []engine.Decision{engine.DecideStart(a, now), engine.DecideStart(b, now)},
					Sessions: []engine.SessionChange{
						{Session: engine.Session{Namespace: Namespace, ID: "s", Origin: engine.OriginWorkflow, Status: "active"}},
					},
					Answer: "stored",
				}, err
			},
		}
	}
	if _, err := w.S.Commit(t.Context(), both(errNo)); !errors.Is(err, errNo) {
		t.Fatalf("refused change: %v, want %v", err, errNo)
	}
	for _, id := range []string{a.RunID, b.RunID} {
		if err := w.S.View(t.Context(), func(r store.Reader) error {
			_, err := r.Run(t.Context(), id)
			return err
		}); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("run of a refused change: %v, want not found", err)
		}
	}
	if _, err := w.Session("s"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("session of a refused change: %v, want not found", err)
	}
	if got := w.Commit(both(nil)); got != "stored" {
		t.Fatalf("answer %v, want that of the decision", got)
	}
	if got := w.Run(b.RunID); got.LastSeq != 1 || got.Task == nil || got.Task.State != engine.Ready {
		t.Fatalf("run is %+v, want one event and a ready task", got.Head)
	}
	if _, err := w.Session("s"); err != nil {
		t.Fatal(err)
	}
}

func testIsolated(t *testing.T, s Suite) {
	w := s.New(t)
	good, other := start(w, "good"), start(w, "other")
	errs := w.together(
		StartChange(good),
		store.Transaction{Decide: func(store.Rows, time.Time) (store.Writes, error) { return store.Writes{}, errNo }},
		store.Transaction{Decide: func(store.Rows, time.Time) (store.Writes, error) { panic("at the disco") }},
		StartChange(other),
	)
	if errs[0] != nil || errs[3] != nil || !errors.Is(errs[1], errNo) {
		t.Fatalf("outcomes %v, want nil, no, a panic, nil", errs)
	}
	if errs[2] == nil || !strings.Contains(errs[2].Error(), "at the disco") {
		t.Fatalf("panic came back as %v", errs[2])
	}
	w.Run(good.RunID)
	w.Run(other.RunID)
}

// testInvalidRowInBatch adds a row that cannot be stored to valid ones: it contains invalid raw JSON.
func testInvalidRowInBatch(t *testing.T, s Suite) {
	w := s.New(t)
	var changes []store.Transaction
	var ids []string
	for i := range 9 {
		in := start(w, fmt.Sprint("w", i))
		ids = append(ids, in.RunID)
		c := StartChange(in)
		if i == 4 {
			decide := c.Decide
			c.Decide = func(r store.Rows, now time.Time) (store.Writes, error) {
				ws, err := decide(r, now)
				ws.Runs[0].Next.Memo = json.RawMessage("{")
				return ws, err
			}
		}
		changes = append(changes, c)
	}
	for i, err := range w.together(changes...) {
		if (err != nil) != (i == 4) {
			t.Errorf("change %d: %v, want only change 4 to fail", i, err)
		}
		if errors.Is(err, store.ErrUnavailable) {
			t.Errorf("change %d: %v, but the store is well", i, err)
		}
		if i != 4 {
			w.Run(ids[i])
		}
	}
	w.Start("w4") // the failed change did not create a run with this ID
}

func testOverlay(t *testing.T, s Suite) {
	w := s.New(t)
	in := start(w, "a")
	signal := func(name string) store.Transaction {
		return Step(in.RunID, engine.SignalRun{Name: name}, store.Keys{})
	}
	for i, err := range w.together(StartChange(in), signal("one"), signal("two"), StartChange(start(w, "a"))) {
		if want := map[int]error{3: ErrExists}[i]; !errors.Is(err, want) {
			t.Fatalf("change %d: %v, want %v", i, err, want)
		}
	}
	if run := w.Run(in.RunID); run.LastSeq != 3 || run.Signals.Len() != 2 {
		t.Fatalf("run has %d events and %d signals, want 3 and 2", run.LastSeq, run.Signals.Len())
	}
}

func testFence(t *testing.T, s Suite) {
	w := s.New(t)
	run := w.Start("a")
	var kept store.Writes
	w.Commit(store.Transaction{Needs: store.Keys{
		Runs: []string{run},
	}, Decide: func(r store.Rows, now time.Time) (store.Writes, error) {
		d, err := engine.DecideRun(r.Run(run), engine.Environment{}, engine.SignalRun{Name: "x"}, now)
		kept = store.Writes{Runs: []engine.Decision{d}}
		return kept, err
	}})
	stale := store.Transaction{Needs: store.Keys{
		Runs: []string{run},
	}, Decide: func(store.Rows, time.Time) (store.Writes, error) {
		return kept, nil
	}}
	if _, err := w.S.Commit(t.Context(), stale); err == nil {
		t.Fatal("a decision on event 1 was stored behind event 2")
	}
	if got := len(w.History(run)); got != 2 {
		t.Fatalf("history has %d events, want 2", got)
	}
	w.Do(run, engine.SignalRun{Name: "y"})
}

func testUnique(t *testing.T, s Suite) {
	w := s.New(t)
	const n = 20
	var won, lost int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		in := start(w, "only")
		wg.Go(func() {
			_, err := w.S.Commit(context.Background(), StartChange(in))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
			case errors.Is(err, ErrExists):
				lost++
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 || lost != n-1 {
		t.Fatalf("%d won and %d lost, want 1 and %d", won, lost, n-1)
	}
}

func testCancelledWait(t *testing.T, s Suite) {
	w := s.New(t)
	in := start(w, "a")
	c := StartChange(in)
	decide := c.Decide
	ctx, cancel := context.WithCancel(t.Context())
	c.Decide = func(r store.Rows, now time.Time) (store.Writes, error) {
		cancel()
		return decide(r, now)
	}
	if _, err := w.S.Commit(ctx, c); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	// the next batch
	w.Commit(store.Transaction{Decide: func(store.Rows, time.Time) (store.Writes, error) { return store.Writes{}, nil }})
	w.Run(in.RunID)
}

func testClosed(t *testing.T, s Suite) {
	w := s.New(t)
	var wg sync.WaitGroup
	stored := make(chan string, 100)
	for i := range 50 {
		in := start(w, fmt.Sprint("w", i))
		wg.Go(func() {
			switch _, err := w.S.Commit(context.Background(), StartChange(in)); {
			case err == nil:
				stored <- in.RunID
			case !errors.Is(err, store.ErrClosed):
				t.Error(err)
			}
		})
	}
	if err := w.S.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	close(stored)
	if _, err := w.S.Commit(t.Context(), StartChange(start(w, "late"))); !errors.Is(err, store.ErrClosed) {
		t.Fatalf("commit after close: %v", err)
	}
	if err := w.S.View(t.Context(), func(store.Reader) error { return nil }); !errors.Is(err, store.ErrClosed) {
		t.Fatalf("view after close: %v", err)
	}
	reopened := s.Fixture(t, "a", Options{})
	for id := range stored {
		reopened.Run(id)
	}
}

// testUsedIDIsNotAssumedFree checks that a workflow ID that an earlier process used does not count as free because it
// is not cached: neither for a start in the same batch as another one, nor if a start is refused for another reason.
func testUsedIDIsNotAssumedFree(t *testing.T, s Suite) {
	w := s.New(t)
	run := w.Start("taken")
	want := w.Run(run)
	if err := w.S.Close(); err != nil {
		t.Fatal(err)
	}
	reopened := s.Fixture(t, "a", Options{})
	taken, free := start(reopened, "taken"), start(reopened, "free")
	errs := reopened.together(StartChange(taken), StartChange(free))
	if !errors.Is(errs[0], ErrExists) || errs[1] != nil {
		t.Errorf("the starts say %v", errs)
	}
	if err := reopened.S.Close(); err != nil {
		t.Fatal(err)
	}
	reopened = s.Fixture(t, "a", Options{})
	refused := StartChange(taken)
	decide := refused.Decide
	refused.Decide = func(rows store.Rows, now time.Time) (store.Writes, error) {
		if _, err := decide(rows, now); err != nil {
			return store.Writes{}, err
		}
		return store.Writes{}, errNo
	}
	if _, err := reopened.S.Commit(t.Context(), refused); !errors.Is(err, ErrExists) {
		t.Errorf("a start that would be refused anyway: %v", err)
	}
	if got := reopened.Run(run); got.LastSeq != want.LastSeq {
		t.Errorf("run %s ends with event %d, was %d", run, got.LastSeq, want.LastSeq)
	}
	var flow engine.Workflow
	err := reopened.S.View(t.Context(), func(r store.Reader) (err error) {
		flow, err = r.Workflow(t.Context(), engine.WorkflowKey{Namespace: Namespace, ID: "taken"})
		return err
	})
	if err != nil || flow.RunID != run {
		t.Errorf("the id belongs to run %s (%v), want %s", flow.RunID, err, run)
	}
	reopened.Run(free.RunID)
}

func testRestart(t *testing.T, s Suite) {
	w := s.New(t)
	worker := w.Worker("w1")
	run := w.Begun("a", Activity("x", ""), Activity("y", "s"), protocol.Command{
		Type: protocol.StartTimer, Delay: new(int64(60)),
	},
		protocol.Command{Type: protocol.OpenSignalWait, SignalName: "go"},
		protocol.Command{Type: protocol.OpenConditionWait, ConditionKey: "ready", ConditionFingerprint: "sha256:1"},
		protocol.Command{Type: protocol.StartChildWorkflow, WorkflowType: "child", ParentClosePolicy: engine.Terminate})
	w.Do(run, engine.SignalRun{Name: "other"})
	w.Do(run, engine.AcceptUpdate{Name: "set", Value: "x"})
	w.Do(run, engine.AcceptUpdate{Name: "set", Value: "y"})
	leased := w.One(protocol.KindActivity, worker)
	before, want := w.Run(run), w.History(run)
	if err := w.S.Close(); err != nil {
		t.Fatal(err)
	}
	reopened := s.Fixture(t, "a", Options{})
	after := reopened.Run(run)
	if got, want := dump(t, after), dump(t, before); got != want {
		t.Fatalf("after the restart\n%s\nwant\n%s", got, want)
	}
	if got := reopened.History(run); fmt.Sprint(got) == "" || len(got) != len(want) {
		t.Fatalf("history has %d events, want %d", len(got), len(want))
	}
	reopened.Finish(leased)
	if l := reopened.One(protocol.KindActivity, worker); l.Activity.Type != "y" || !l.IsNew {
		t.Fatalf("then %s (new %v), want y in a new session", l.Activity.Type, l.IsNew)
	}
	reopened.Pass(time.Minute)
	if got := reopened.Sweep(); len(got) == 0 || reopened.Run(run).Timers.Len() != 0 {
		t.Fatalf("swept %v, want the timer among it", got)
	}
}

// dump returns the whole run as text.
func dump(t *testing.T, r *engine.Run) string {
	t.Helper()
	all := map[string]any{"head": r.Head, "id": r.ID, "seq": r.LastSeq, "status": r.Status}
	for k, v := range r.Activities.All() {
		all[fmt.Sprint("activity ", k)] = v
	}
	for k, v := range r.Timers.All() {
		all[fmt.Sprint("timer ", k)] = v
	}
	for k, v := range r.Waits.All() {
		all[fmt.Sprint("wait ", k)] = v
	}
	for k, v := range r.Signals.All() {
		all[fmt.Sprint("signal ", k)] = v
	}
	for k, v := range r.Updates.All() {
		all[fmt.Sprint("update ", k)] = v
	}
	for k, v := range r.Children.All() {
		all[fmt.Sprint("child ", k)] = v
	}
	for k, v := range r.Undelivered.All() {
		all[fmt.Sprint("message ", k)] = v
	}
	raw, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func testClock(t *testing.T, s Suite) {
	w := s.New(t)
	at := func(w *Fixture) (now time.Time) {
		w.Commit(store.Transaction{Decide: func(_ store.Rows, n time.Time) (store.Writes, error) {
			now = n
			return store.Writes{Audit: []store.Audit{{Action: "look"}}}, nil
		}})
		return now
	}
	first := at(w)
	w.Pass(time.Hour)
	second := at(w)
	if d := second.Sub(first); d < time.Hour || second.Nanosecond()%1000 != 0 {
		t.Fatalf("clock moved %v to %v, want an hour or a little more, in whole microseconds", d, second)
	}
	if s.Shared {
		return // the server's clock, not this process's, decides
	}
	w.Pass(-30 * time.Second)
	if third := at(w); third.Before(second) {
		t.Fatalf("clock went back from %v to %v", second, third)
	}
	if err := w.S.Close(); err != nil {
		t.Fatal(err)
	}
	behind := s.Fixture(t, "a", Options{Shift: func() time.Duration { return time.Hour - 50*time.Second }})
	if fourth := at(behind); fourth.Before(second) {
		t.Fatalf("clock went back over a restart, from %v to %v", second, fourth)
	}
	if err := behind.S.Close(); err != nil {
		t.Fatal(err)
	}
	// After the clock is set back by more than a minute, the store's time follows it, also over a restart.
	if fifth := at(s.Fixture(t, "a", Options{})); second.Sub(fifth) < 59*time.Minute {
		t.Fatalf("clock stays ahead after it was set back by an hour: %v after %v", fifth, second)
	}
}
