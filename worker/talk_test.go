package worker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// shelf registers a workflow that collects texts from updates until a signal closes it. Then a child workflow counts
// the texts.
func shelf(r *worker.Registry) {
	r.Workflow("length", func(_ workflow.Context, lengths []int) (sum int, _ error) {
		for _, n := range lengths {
			sum += n
		}
		return sum, nil
	})
	r.Workflow("shelf", func(ctx workflow.Context) (int, error) {
		var texts []string
		var lengths []int
		closed := false
		workflow.HandleUpdate(ctx, "put", func(_ workflow.Context, text string) (int, error) {
			texts, lengths = append(texts, text), append(lengths, len(text))
			return len(texts), nil
		})
		workflow.HandleUpdate(ctx, "close", func(workflow.Context) error { closed = true; return nil })
		workflow.HandleQuery(ctx, "first", func(_ workflow.Context, n int) (string, error) {
			if len(texts) == 0 {
				return "", fmt.Errorf("the shelf is empty")
			}
			return texts[0][:n], nil
		})
		if err := workflow.Until(ctx, func() bool { return closed }); err != nil {
			return 0, err
		}
		return workflow.ExecuteChild[int](ctx, "length", lengths)
	})
}

func input(t *testing.T, args ...any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestChildrenUpdatesAndQueriesOverEveryCarrier(t *testing.T) {
	carriers(t, func(t *testing.T, a *apptest.App, c link.Carrier) {
		start(t, a, c, func(o *worker.Options) { shelf(o.Registry) })
		answer, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "shelf"})
		if err != nil {
			t.Fatal(err)
		}
		target, wait := protocol.Target{WorkflowID: answer.WorkflowID}, int64(60)
		update := func(name string, args ...any) protocol.UpdateResponse {
			t.Helper()
			u, err := a.Broker().Update(t.Context(), protocol.UpdateRequest{
				Target: target, UpdateName: name, Input: input(t, args...), WaitFor: protocol.WaitCompleted, WaitTimeout: &wait,
			})
			if err != nil || u.UpdateStatus != "completed" {
				t.Fatalf("update %s: %+v, %v", name, u, err)
			}
			return u
		}
		query := func() (string, error) {
			// on a slow machine, replaying the long history may take longer than the query timeout
			for end := time.Now().Add(ceiling); ; {
				q, err := a.Broker().Query(
					t.Context(), protocol.QueryRequest{Target: target, QueryName: "first", Input: input(t, 3)},
				)
				if protocol.ReasonOf(err) != protocol.ReasonQueryTimeout || time.Now().After(end) {
					return string(q.Result), err
				}
			}
		}
		if _, err := query(); protocol.ReasonOf(err) != protocol.ReasonQueryRejected ||
			!strings.Contains(err.Error(), "query first: the shelf is empty") {
			t.Errorf("got %v", err)
		}
		if u := update("put", "abc"); string(u.Result) != "1" {
			t.Errorf("got %s", u.Result)
		}
		if got, err := query(); got != `"abc"` || err != nil {
			t.Errorf("got %s, %v", got, err)
		}
		for range 4 { // more history than fits into one frame
			update("put", strings.Repeat("x", 1_400_000))
		}
		if got, err := query(); got != `"abc"` || err != nil {
			t.Errorf("of a long history: got %s, %v", got, err)
		}
		update("close")
		var v protocol.RunView
		eventually(t, "the run ends", func() bool {
			var err error
			if v, err = a.View().Describe(t.Context(), target); err != nil {
				t.Fatal(err)
			}
			return v.Terminal
		})
		if string(v.Output) != "5600003" {
			t.Errorf("got %s", v.Output)
		}
		if got, err := query(); got != `"abc"` || err != nil {
			t.Errorf("closed: got %s, %v", got, err)
		}
	})
}

// Continue-as-new carries over the signals that the workflow code has not received: signals in the worker's history,
// signals that arrived with the event that closed the run, and later signals.
func TestUnreceivedSignalsAreInheritedOverEveryTransport(t *testing.T) {
	carriers(t, func(t *testing.T, a *apptest.App, c link.Carrier) {
		start(t, a, c, func(o *worker.Options) {
			o.Registry.Workflow("collects", func(ctx workflow.Context, got []string) ([]string, error) {
				// the code receives signals of two names, those of each name in order
				name := []string{"even", "odd"}[len(got)%2]
				text, err := workflow.ReceiveSignal[string](ctx, name)
				if err != nil || len(got) == 9 {
					return append(got, text), err
				}
				if err := workflow.ExecuteActivity(ctx, "hello", text).Get(ctx, nil); err != nil {
					return got, err
				}
				return nil, workflow.ContinueAsNew(ctx, append(got, text))
			})
		})
		answer, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "collects", Input: []byte("[[]]")})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for i := range 10 {
			want = append(want, fmt.Sprint("s", i))
			_, err := a.Broker().Signal(t.Context(), protocol.SignalRequest{
				Target: protocol.Target{WorkflowID: answer.WorkflowID}, SignalName: []string{"even", "odd"}[i%2],
				Input: input(t, want[i]),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		var v protocol.RunView
		eventually(t, "the last run ends", func() bool {
			var err error
			if v, err = a.View().Describe(t.Context(), protocol.Target{WorkflowID: answer.WorkflowID}); err != nil {
				t.Fatal(err)
			}
			return v.Terminal
		})
		raw, _ := json.Marshal(want)
		if string(v.Output) != string(raw) || v.RunNumber != 10 {
			t.Errorf("run %d ended with %s, want %s", v.RunNumber, v.Output, raw)
		}
	})
}

// A child starts with the memo and the search attributes that its parent sets, in each of its runs, and lists can be
// filtered by them.
func TestChildrenBeginWithMemoAndSearchAttributes(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		start(t, a, link.Local{Join: a.Connections().Join}, func(o *worker.Options) {
			o.Registry.Workflow("labelled", func(ctx workflow.Context) error {
				if workflow.Info(ctx).RunNumber == 1 {
					return errors.New("again")
				}
				return workflow.UpsertMemo(ctx, map[string]any{"by": "itself"})
			})
			o.Registry.Workflow("parent", func(ctx workflow.Context, customer string) (string, error) {
				bad := workflow.WithChild(ctx, workflow.ChildOptions{SearchAttributes: map[string]any{"n": []int{1}}})
				if err := workflow.StartChild(bad, "labelled").Get(ctx, nil); !errors.Is(err, workflow.ErrInvalidOptions) {
					return "", fmt.Errorf("a list of numbers: %w", err)
				}
				ctx = workflow.WithChild(ctx, workflow.ChildOptions{
					Retry: &workflow.RetryPolicy{MaxAttempts: 2}, Memo: map[string]any{"for": customer, "count": 3},
					SearchAttributes: map[string]any{"customer": customer},
				})
				child := workflow.StartChild(ctx, "labelled")
				return child.WorkflowID, child.Get(ctx, nil)
			})
		})
		id := result[string](t, run(t, a, "parent", "Ada"))
		list, err := a.View().List(t.Context(), protocol.ListRequest{WorkflowType: "labelled", Query: `customer = "Ada"`})
		if err != nil || len(list.Workflows) != 2 {
			t.Fatalf("found %+v, %v", list.Workflows, err)
		}
		for i, v := range list.Workflows { // the list has the newest run first
			want := []string{`{"by":"itself","count":3,"for":"Ada"}`, `{"count":3,"for":"Ada"}`}[i]
			if v.WorkflowID != id || string(v.Memo) != want || string(v.SearchAttributes) != `{"customer":"Ada"}` {
				t.Errorf("run %d: got %s with %s and %s", v.RunNumber, v.WorkflowID, v.Memo, v.SearchAttributes)
			}
		}
	})
}
