package activity_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// attempt is a runtime that records the calls of the activity code.
type attempt struct {
	info    activity.AttemptInfo
	session *activity.SessionInfo
	state   *activity.SessionValues
	last    json.RawMessage
	headers map[string]string
	beats   []string
	lines   []string
}

func (a *attempt) Info() activity.AttemptInfo     { return a.info }
func (a *attempt) Session() *activity.SessionInfo { return a.session }
func (a *attempt) State() *activity.SessionValues { return a.state }
func (a *attempt) Log(level, text string)         { a.lines = append(a.lines, level+" "+text) }
func (a *attempt) LastHeartbeat() json.RawMessage { return a.last }
func (a *attempt) Headers() map[string]string     { return a.headers }
func (a *attempt) Heartbeat(p json.RawMessage)    { a.beats = append(a.beats, string(p)) }

func args(t testing.TB, v ...any) payload.Payload {
	t.Helper()
	p, err := payload.EncodeArgs(v...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLastHeartbeatIsTheValueThatWasReported(t *testing.T) {
	type cursor struct {
		File string
		Line int
	}
	report := func(v any) context.Context {
		rt := &attempt{}
		if err := activity.Heartbeat(activity.NewContext(t.Context(), rt), v); err != nil {
			t.Fatal(err)
		}
		rt.last = protocol.HeartbeatDetails(json.RawMessage(rt.beats[0]))
		return activity.NewContext(t.Context(), rt)
	}
	at := cursor{"a.txt", 17}
	if got, ok, err := activity.LastHeartbeat[cursor](report(at)); got != at || !ok || err != nil {
		t.Errorf("a value: got %v, %t, %v", got, ok, err)
	}
	half := activity.Progress{Message: "half", Current: 1, Total: 2, Details: "a.txt"}
	if got, ok, err := activity.LastHeartbeat[activity.Progress](report(half)); got != half || !ok || err != nil {
		t.Errorf("a Progress: got %v, %t, %v", got, ok, err)
	}
	if got, ok, err := activity.LastHeartbeat[int](report(at)); got != 0 || ok || err == nil {
		t.Errorf("another type: got %v, %t, %v", got, ok, err)
	}
	if got, ok, err := activity.LastHeartbeat[int](report(nil)); got != 0 || ok || err != nil {
		t.Errorf("no value: got %v, %t, %v", got, ok, err)
	}
	if _, ok, err := activity.LastHeartbeat[int](t.Context()); ok || err == nil {
		t.Errorf("outside an activity: %t, %v", ok, err)
	}
}

func TestActivityAsksForItsSessionIDAndGetsTheScheduledText(t *testing.T) { // IS-S11
	rt := &attempt{session: &activity.SessionInfo{ID: "chat/ö 1", Epoch: 7, IsNew: true}}
	ctx := activity.NewContext(t.Context(), rt)
	if got := activity.SessionID(ctx); got != "chat/ö 1" {
		t.Errorf("session id: got %q", got)
	}
	if got := activity.SessionEpoch(ctx); got != 7 {
		t.Errorf("epoch: got %d", got)
	}
	if s, ok := activity.Session(ctx); !ok || !s.IsNew {
		t.Errorf("session: got %+v, %v", s, ok)
	}
}

func TestPlainActivityHasNoSession(t *testing.T) { // IS-S12
	for _, ctx := range []context.Context{t.Context(), activity.NewContext(t.Context(), &attempt{})} {
		if s, ok := activity.Session(ctx); ok || s != (activity.SessionInfo{}) || activity.SessionID(ctx) != "" ||
			activity.SessionEpoch(ctx) != 0 {
			t.Errorf("got session %+v", s)
		}
		state := activity.SessionState(ctx)
		state.Set("k", 1)
		if _, ok := state.Get("k"); ok {
			t.Error("a value was stored outside a session")
		}
		if v, err := activity.GetOrCreate(ctx, "k", func(context.Context) (int, error) {
			return 5, nil
		}); v != 5 || err != nil {
			t.Errorf("got %v, %v", v, err)
		}
	}
}

func TestInfoReadsTheTask(t *testing.T) {
	at := history.At(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	task := &protocol.ActivityTask{
		TaskID: "r-1", RunID: "r", WorkflowID: "w", ExecutionID: "r-1", AttemptID: "r-1-2", IdempotencyKey: "r-1", Attempt: 2,
		ActivityType: "index",
		TaskQueue:    "gpu", LeaseOwner: "w7", HeartbeatEvery: 5,
		Deadlines: protocol.Deadlines{StartToClose: history.Time{Time: at.Add(time.Hour)}, ScheduleToClose: at},
	}
	rt := &attempt{info: activitywire.InfoOf(task)}
	got := activity.Info(activity.NewContext(t.Context(), rt))
	want := activity.AttemptInfo{
		TaskID: "r-1", RunID: "r", WorkflowID: "w", ExecutionID: "r-1", AttemptID: "r-1-2", IdempotencyKey: "r-1", Attempt: 2,
		ActivityType: "index",
		Queue:        "gpu", WorkerID: "w7", HeartbeatEvery: 5 * time.Second, Deadline: at.Time,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestHeartbeatSendsProgressAndReportsCancellation(t *testing.T) {
	rt := &attempt{}
	ctx, cancel := context.WithCancelCause(activity.NewContext(t.Context(), rt))
	for _, p := range []any{nil, activity.Progress{Message: "half", Current: 1, Total: 2}, 17} {
		if err := activity.Heartbeat(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"", `{"message":"half","current":1,"total":2}`, `{"details":17}`}, rt.beats); d != "" {
		t.Error(d)
	}
	lost := errors.New("lease lost")
	cancel(lost)
	if err := activity.Heartbeat(ctx, nil); !errors.Is(err, lost) {
		t.Errorf("got %v, want the cause", err)
	}
	if err := activity.Heartbeat(t.Context(), nil); err == nil {
		t.Error("a heartbeat outside an activity was accepted")
	}
	if err := activity.Heartbeat(activity.NewContext(t.Context(), rt), func() {}); err == nil {
		t.Error("progress without a JSON form was accepted")
	}
}

func TestWrongShapesAreRefusedWithTheReason(t *testing.T) {
	for _, c := range []struct {
		fn   any
		want string
	}{
		{nil, "is not a function"},
		{"index", "is not a function"},
		{(func(context.Context) error)(nil), "is nil"},
		{func() error { return nil }, "does not take a context.Context first"},
		{func(string) error { return nil }, "does not take a context.Context first"},
		{func(context.Context) {}, "returns 0 values"},
		{func(context.Context) string { return "" }, "does not return an error last"},
		{func(context.Context) (int, int, error) { return 0, 0, nil }, "returns 3 values"},
		{func(context.Context, ...string) error { return nil }, "is variadic"},
	} {
		if _, err := activity.NewDefinition("index", c.fn); err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), `"index"`) {
			t.Errorf("%T: got %v, want it to contain %q", c.fn, err, c.want)
		}
	}
	ok := func(context.Context) error { return nil }
	for _, p := range []activity.SessionRecoveryPolicy{
		{}, {RebuildActivity: "x"}, {RebuildActivity: "r", MaxAutoRetries: -1}, {RebuildActivity: "r", OnError: "any"},
	} {
		if _, err := activity.NewDefinition("x", ok, activity.Options{Recovery: &p}); err == nil {
			t.Errorf("policy %+v was accepted", p)
		}
	}
}

func TestInvokeDecodesArgumentsAndEncodesTheResult(t *testing.T) {
	type point struct{ X, Y int }
	d, err := activity.NewDefinition("sum", func(_ context.Context, p point, more []int, name string) (string, error) {
		for _, n := range more {
			p.X += n
		}
		return fmt.Sprintf("%s%d", name, p.X+p.Y), nil
	}, activity.Isolated, activity.Options{Recovery: &activity.SessionRecoveryPolicy{RebuildActivity: "rebuild"}})
	if err != nil {
		t.Fatal(err)
	}
	if d.NumArgs() != 3 {
		t.Errorf("arguments: got %d", d.NumArgs())
	}
	if !d.Options.Isolated || d.Options.Recovery.Retries() != 1 {
		t.Errorf("options: got %+v", d.Options)
	}
	out, err := activitywire.Invoke(t.Context(), d, args(t, point{1, 2}, []int{3, 4}, "n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := payload.Decode(out, &got); err != nil || got != "n10" {
		t.Errorf("got %q, %v", got, err)
	}
	_, err = activitywire.Invoke(t.Context(), d, args(t, "no point"), nil)
	if f := activitywire.FailureOf(err); f.Type != activity.TypeArguments || !f.NonRetryable ||
		!errors.Is(err, payload.ErrTypeMismatch) {
		t.Errorf("got %+v, %v", f, err)
	}
}

func TestFailuresCarryTypeRetryabilityAndDetails(t *testing.T) {
	invoke := func(fn func(context.Context) error) *protocol.Failure {
		d, err := activity.NewDefinition("a", fn)
		if err != nil {
			t.Fatal(err)
		}
		_, err = activitywire.Invoke(t.Context(), d, payload.Payload{}, nil)
		return activitywire.FailureOf(err)
	}
	f := invoke(func(context.Context) error {
		return activity.NewError("card_declined", "no credit", activity.NonRetryable, activity.Details(map[string]int{
			"code": 51,
		}))
	})
	var p payload.Payload
	var details map[string]int
	if f.Type != "card_declined" || f.Message != "no credit" || !f.NonRetryable {
		t.Errorf("got %+v", f)
	}
	if err := json.Unmarshal(f.Details, &p); err != nil || payload.Decode(p, &details) != nil || details["code"] != 51 {
		t.Errorf("details: got %s, %v", f.Details, details)
	}
	f = invoke(func(context.Context) error { return fmt.Errorf("asking: %w", activity.SessionLost("no model")) })
	if f.Kind != activity.KindSessionLost || f.Type != activity.TypeSessionLost ||
		!strings.Contains(f.Message, "no model") {
		t.Errorf("session lost: got %+v", f)
	}
	f = invoke(func(context.Context) error { var m map[string]int; m["x"] = 1; return nil })
	if f.Type != activity.TypePanic || !strings.Contains(f.StackTrace, "TestFailuresCarryType") || f.NonRetryable ||
		f.Message != "assignment to entry in nil map" { // the message does not repeat the activity's name
		t.Errorf("panic: got %+v", f)
	}
	if f = invoke(func(context.Context) error {
		return fmt.Errorf("one: %w", errors.New("two"))
	}); f.Type != "Error" || f.Message != "one: two" {
		t.Errorf("plain: got %+v", f)
	}
	if f = invoke(func(context.Context) error { return &json.SyntaxError{Offset: 3} }); f.Type != "SyntaxError" {
		t.Errorf("own type: got %+v", f)
	}
	if f = invoke(func(context.Context) error {
		return context.Canceled
	}); !f.Cancelled || f.Type != activity.TypeCancelled {
		t.Errorf("cancelled: got %+v", f)
	}
	if f = invoke(func(context.Context) error {
		return activity.NewError("x", "y", activity.Details(make(chan int)))
	}); f.Details != nil ||
		!strings.Contains(f.Message, "details omitted") {
		t.Errorf("unencodable details: got %+v", f)
	}
}

func TestOneOfManyCallersCreatesTheSessionsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &attempt{session: &activity.SessionInfo{ID: "s"}, state: activity.NewSessionValues()}
		ctx := activity.NewContext(t.Context(), rt)
		made, failed := 0, 0
		build := func(err error) func(context.Context) (*int, error) {
			return func(context.Context) (*int, error) {
				time.Sleep(time.Second) // in virtual time: all other callers arrive meanwhile
				made++
				return &made, err
			}
		}
		wave := func(err error) (got []*int, errs []error) {
			type result struct {
				v   *int
				err error
			}
			results := make(chan result)
			for range 10 {
				go func() {
					v, err := activity.GetOrCreate(ctx, "model", build(err))
					results <- result{v, err}
				}()
			}
			for range 10 {
				r := <-results
				got, errs = append(got, r.v), append(errs, r.err)
			}
			return got, errs
		}
		broken := errors.New("no disk")
		_, errs := wave(broken)
		for _, err := range errs {
			if errors.Is(err, broken) {
				failed++
			}
		}
		if made != 1 || failed != 10 {
			t.Errorf("a failing build: ran %d times, %d got its error; want 1 and 10", made, failed)
		}
		for range 2 {
			got, _ := wave(nil)
			for _, v := range got {
				if v != &made {
					t.Errorf("got %v, want the one value", v)
				}
			}
		}
		if made != 2 {
			t.Errorf("built %d times, want once after the failure", made)
		}
		if v, err := activity.Get[*int](ctx, "model"); v != &made || err != nil {
			t.Errorf("got %v, %v", v, err)
		}
		if _, err := activity.Get[string](ctx, "model"); !errors.Is(err, activity.ErrSessionLost) {
			t.Errorf("another type: got %v", err)
		}
		if _, err := activity.Get[*int](ctx, "index"); !errors.Is(err, activity.ErrSessionLost) {
			t.Errorf("missing: got %v", err)
		}
	})
}

func TestWaitingForStateEndsWithTheWaitersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := activity.NewSessionValues()
		release := make(chan struct{})
		go s.GetOrCreate(t.Context(), "k", func(context.Context) (any, error) { <-release; return 1, nil })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.GetOrCreate(ctx, "k", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		close(release)
		synctest.Wait()
		if v, ok := s.Get("k"); v != 1 || !ok {
			t.Errorf("got %v, %v", v, ok)
		}
	})
}

func TestPanickingCreatorReleasesWaiters(t *testing.T) {
	s := activity.NewSessionValues()
	func() {
		defer func() { _ = recover() }()
		_, _ = s.GetOrCreate(t.Context(), "k", func(context.Context) (any, error) { panic("boom") })
	}()
	if v, err := s.GetOrCreate(t.Context(), "k", func(context.Context) (any, error) {
		return 2, nil
	}); v != 2 || err != nil {
		t.Errorf("got %v, %v", v, err)
	}
}

func TestClosedStateKeepsNothingAndCleansUpInReverse(t *testing.T) {
	s := activity.NewSessionValues()
	var order []int
	for i := range 3 {
		s.OnClose(func() { order = append(order, i) })
	}
	s.Set("k", 1)
	s.Close()
	s.Close()
	s.OnClose(func() { order = append(order, 9) })
	if d := cmp.Diff([]int{2, 1, 0, 9}, order); d != "" {
		t.Error(d)
	}
	s.Set("k", 2)
	if _, ok := s.Get("k"); ok {
		t.Error("a closed state stores a value")
	}
	if _, err := s.GetOrCreate(t.Context(), "k", nil); !errors.Is(err, activity.ErrStateClosed) {
		t.Errorf("got %v", err)
	}
}

func TestLoggerWritesLinesOfTheAttempt(t *testing.T) {
	rt := &attempt{}
	log := activity.Logger(activity.NewContext(t.Context(), rt))
	log.Info("read", "page", 3, "of", "a b")
	log.Debug("one\ntwo")
	log.Warn("", "error", errors.New("slow"))
	log.With("account", 7).WithGroup("http").Error("no credit", "status", 402)
	log.Log(t.Context(), slog.LevelDebug-4, "detail")
	want := []string{
		`info read of="a b" page=3`, "debug one\ntwo", "warn error=slow", "error no credit account=7 http.status=402",
		"debug detail",
	}
	if d := cmp.Diff(want, rt.lines); d != "" {
		t.Error(d)
	}
	activity.Logger(t.Context()).Info("outside an activity this is dropped")
}
