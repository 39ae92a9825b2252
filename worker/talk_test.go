package worker_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/link"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// shelf keeps texts that updates bring until it is told to close, then hands them to a child to count.
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
		update := func(name string, args ...any) protocol.UpdateAnswer {
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
			for end := time.Now().Add(ceiling); ; { // a slow machine may need longer for the long history than a query lives
				q, err := a.Broker().Query(t.Context(), protocol.QueryRequest{Target: target, QueryName: "first", Input: input(t, 3)})
				if protocol.ReasonOf(err) != protocol.ReasonQueryTimeout || time.Now().After(end) {
					return string(q.Result), err
				}
			}
		}
		if _, err := query(); protocol.ReasonOf(err) != protocol.ReasonQueryRejected || !strings.Contains(err.Error(), "query first: the shelf is empty") {
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
			if v, err = a.Broker().Describe(t.Context(), target); err != nil {
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

// Signals go along when a run continues as new: those its worker had and its code did not take, those that came with what made it end, and later ones.
func TestSignalsNobodyReceivedGoAlongOverEveryCarrier(t *testing.T) {
	carriers(t, func(t *testing.T, a *apptest.App, c link.Carrier) {
		start(t, a, c, func(o *worker.Options) {
			o.Registry.Workflow("collects", func(ctx workflow.Context, got []string) ([]string, error) {
				name := []string{"even", "odd"}[len(got)%2] // of two names, each in its order
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
				Target: protocol.Target{WorkflowID: answer.WorkflowID}, SignalName: []string{"even", "odd"}[i%2], Input: input(t, want[i]),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		var v protocol.RunView
		eventually(t, "the last run ends", func() bool {
			var err error
			if v, err = a.Broker().Describe(t.Context(), protocol.Target{WorkflowID: answer.WorkflowID}); err != nil {
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
