package workflow_test

import (
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"time"

	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// This workflow runs three activities on one worker, and then waits for a person's signal with a timeout.
func Example() {
	research := func(ctx workflow.Context, path string) (string, error) {
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{Requirements: []string{"gpu"}})
		if err != nil {
			return "", err
		}
		defer s.End(workflow.WithoutCancel(ctx))
		ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{
			StartToClose: time.Minute,
			Retry:        &workflow.RetryPolicy{MaxAttempts: 3, Backoff: workflow.ExponentialBackoff(time.Second, time.Minute)},
		})

		if err := s.Execute(ctx, "index", path).Get(ctx, nil); err != nil { // builds the model in memory
			return "", err
		}
		a, b := s.Execute(ctx, "ask", "why?"), s.Execute(ctx, "ask", "how?") // both activities use the model
		if err := workflow.Join(ctx, a, b); err != nil {
			return "", err
		}

		approve := workflow.Signal(ctx, "approve")
		if i, err := workflow.Select(ctx, approve, workflow.NewTimer(ctx, 24*time.Hour)); err != nil {
			return "", err
		} else if i == 1 {
			return "", errors.New("nobody approved")
		}
		var by string
		if err := approve.Receive(ctx, &by); err != nil {
			return "", err
		}
		return workflow.Await[string](ctx, a)
	}
	_, _ = workflow.NewDefinition("research", research) // a worker's registry makes this call
}

func ExampleExponentialBackoff() {
	fmt.Println(workflow.ExponentialBackoff(time.Second, 10*time.Second))
	// Output: [1s 2s 4s 8s 10s]
}

// A test replays the exported history of a production run with new code. The new code reserves instead of charging.
func ExampleReplay() {
	history := []byte(`[
		{"sequence": 1, "event_type": "WorkflowStarted", "payload": {"workflow_type": "order", "name_rules": 1}},
		{"sequence": 2, "event_type": "ActivityScheduled", "payload": {"sequence": 1, "activity_type": "charge"}}
	]`)
	order, err := workflow.NewDefinition("order", func(ctx workflow.Context) error {
		return workflow.ExecuteActivity(ctx, "reserve").Get(ctx, nil)
	})
	if err != nil {
		log.Fatal(err)
	}

	err = workflow.Replay(order, workflow.ReplayOptions{}, history)
	var differs *workflow.NonDeterminismError
	if errors.As(err, &differs) {
		fmt.Println(differs.EventSeq, differs.EventType)
		fmt.Println("recorded:", differs.Recorded)
		fmt.Println("now:", differs.Issued)
	}
	// Output:
	// 2 ActivityScheduled
	// recorded: activity "charge" without a session
	// now: activity "reserve" without a session
}

// Options apply to all activities that are scheduled under the context.
func ExampleWithActivity() {
	order := func(ctx workflow.Context, amount int) (string, error) {
		ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{
			StartToClose: time.Minute,
			Retry: &workflow.RetryPolicy{
				MaxAttempts:  5,
				Backoff:      workflow.ExponentialBackoff(time.Second, time.Minute),
				NonRetryable: []string{"card_declined"},
			},
		})
		return workflow.Execute[string](ctx, "charge", amount)
	}
	_ = order
}

// The session is acquired by a worker that has the memory of a GPU free. Code handles the case that no worker has it.
func ExampleSessionOptions() {
	ask := func(ctx workflow.Context, question string) (string, error) {
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{
			Resources: map[string]string{"gpu_mem": "24GiB"},
		})
		if err != nil {
			return "", err
		}
		answer, err := workflow.Await[string](ctx, s.Execute(ctx, "ask", question))
		if errors.Is(err, workflow.ErrSessionResources) {
			return workflow.Execute[string](ctx, "ask-small", question)
		}
		return answer, err
	}
	_ = ask
}

// The error of an activity has the type and the details that the activity's code gave it.
func ExampleActivityError() {
	order := func(ctx workflow.Context, amount int) (string, error) {
		err := workflow.ExecuteActivity(ctx, "charge", amount).Get(ctx, nil)
		var failed *workflow.ActivityError
		switch {
		case err == nil:
			return "charged", nil
		case errors.Is(err, workflow.ErrTimedOut):
			return "try tomorrow", nil
		case errors.As(err, &failed) && failed.Type == "card_declined":
			var missing int
			if err := failed.DecodeDetails(&missing); err != nil {
				return "", err
			}
			return fmt.Sprintf("declined, %d missing", missing), nil
		}
		return "", err // this error fails the run
	}
	_ = order
}

// Join waits for activities that run concurrently.
func ExampleJoin() {
	thumbnails := func(ctx workflow.Context, paths []string) error {
		var all []workflow.Future
		for _, path := range paths {
			all = append(all, workflow.ExecuteActivity(ctx, "resize", path))
		}
		return workflow.Join(ctx, all...)
	}
	_ = thumbnails
}

// Select waits for the first of two futures; then the program cancels the other one.
func ExampleSelect() {
	search := func(ctx workflow.Context, word string) (string, error) {
		searching, stop := workflow.WithCancel(ctx)
		found := workflow.ExecuteActivity(searching, "search", word)
		first, err := workflow.Select(ctx, found, workflow.NewTimer(ctx, time.Minute))
		if err != nil {
			return "", err
		}
		if first == 1 {
			stop() // cancels the activity's context
			return "nothing found in time", nil
		}
		return workflow.Await[string](ctx, found)
	}
	_ = search
}

// An update returns a result to its caller; its validator may reject it. A query reads the state.
func ExampleHandleUpdate() {
	basket := func(ctx workflow.Context, most int) ([]string, error) {
		items, paid := []string{}, false
		workflow.HandleUpdate(ctx, "add", func(_ workflow.Context, item string) (int, error) {
			items = append(items, item)
			return len(items), nil
		}, workflow.UpdateOptions{Validate: func(workflow.Context, string) error {
			if len(items) == most {
				return activity.NewError("full", "the basket holds no more")
			}
			return nil
		}})
		workflow.HandleUpdate(ctx, "pay", func(ctx workflow.Context, amount int) error {
			err := workflow.ExecuteActivity(ctx, "charge", amount).Get(ctx, nil)
			paid = paid || err == nil
			return err
		})
		workflow.HandleQuery(ctx, "items", func(workflow.Context) ([]string, error) { return items, nil })
		return items, workflow.Until(ctx, func() bool { return paid && workflow.AllHandlersFinished(ctx) })
	}
	_ = basket
}

// A workflow waits for a signal with a timeout.
func ExampleSignal() {
	approval := func(ctx workflow.Context) (string, error) {
		approve := workflow.Signal(ctx, "approve")
		switch first, err := workflow.Select(ctx, approve, workflow.NewTimer(ctx, 24*time.Hour)); {
		case err != nil:
			return "", err
		case first == 1:
			return "nobody approved", nil
		}
		var by string
		err := approve.Receive(ctx, &by)
		return "approved by " + by, err
	}
	_ = approval
}

// A report replaces the open report of the same day, and follows one that has closed.
func ExampleChildOptions() {
	report := func(ctx workflow.Context, day string) (string, error) {
		ctx = workflow.WithChild(ctx, workflow.ChildOptions{
			WorkflowID: "report-" + day, ReuseID: workflow.AllowReuse, Conflict: workflow.TerminateExisting,
		})
		return workflow.ExecuteChild[string](ctx, "report", day)
	}
	_ = report
}

// Children are workflows with their own runs and histories.
func ExampleStartChild() {
	family := func(ctx workflow.Context) (string, error) {
		ctx = workflow.WithChild(ctx, workflow.ChildOptions{RunTimeout: time.Hour, ParentClose: workflow.TerminateHard})
		ann, bob := workflow.StartChild(ctx, "greeting", "Ann"), workflow.StartChild(ctx, "greeting", "Bob")
		if err := workflow.Join(ctx, ann, bob); err != nil {
			return "", err
		}
		return workflow.Await[string](ctx, bob)
	}
	_ = family
}

// Activities of a session run on one worker and share memory and files. The session ends also if the run is cancelled.
func ExampleStartSession() {
	research := func(ctx workflow.Context, path string) (answer string, err error) {
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{Requirements: []string{"gpu"}})
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, s.End(workflow.WithoutCancel(ctx))) }()
		if err := s.Execute(ctx, "index", path).Get(ctx, nil); err != nil {
			return "", err
		}
		return workflow.ExecuteIn[string](ctx, s, "ask", "why?")
	}
	_ = research
}

// A cancelled run compensates under a context that is not cancelled.
func ExampleWithoutCancel() {
	reservation := func(ctx workflow.Context) error {
		err := workflow.Sleep(ctx, 24*time.Hour)
		if errors.Is(err, workflow.ErrCancelled) {
			return workflow.ExecuteActivity(workflow.WithoutCancel(ctx), "release").Get(ctx, nil)
		}
		return err
	}
	_ = reservation
}

// A run that repeats its work continues as a new run, so that its history stays short.
func ExampleContinueAsNew() {
	poll := func(ctx workflow.Context, round int) error {
		for range 100 {
			if err := workflow.ExecuteActivity(ctx, "poll", round).Get(ctx, nil); err != nil {
				return err
			}
			if err := workflow.Sleep(ctx, time.Minute); err != nil {
				return err
			}
		}
		return workflow.ContinueAsNew(ctx, round+1)
	}
	_ = poll
}

// New runs execute the new code; runs that passed this place before it was deployed execute the old code.
func ExampleVersion() {
	greeting := func(ctx workflow.Context) (string, error) {
		if workflow.Version(ctx, "polite", workflow.DefaultVersion, 1) >= 1 {
			return workflow.Execute[string](ctx, "say", "good morning")
		}
		return workflow.Execute[string](ctx, "say", "hey")
	}
	_ = greeting
}

// The number is drawn once and recorded; each replay returns the recorded number.
func ExampleSideEffect() {
	dice := func(ctx workflow.Context) (int, error) {
		return workflow.SideEffect(ctx, func() int { return 1 + rand.IntN(6) })
	}
	_ = dice
}

// Each line is written once, however often the run is replayed.
func ExampleLogger() {
	order := func(ctx workflow.Context, id string) error {
		log := workflow.Logger(ctx).With("order_id", id)
		log.Info("charging")
		if err := workflow.ExecuteActivity(ctx, "charge", id).Get(ctx, nil); err != nil {
			log.Warn("not charged", "error", err)
			return err
		}
		return nil
	}
	_ = order
}

// The tenant of the caller is passed on to an activity. Without WithHeaders the activity would receive no headers.
func ExampleWithHeaders() {
	order := func(ctx workflow.Context) error {
		tenant := workflow.Headers(ctx)["tenant"]
		ctx = workflow.WithHeaders(ctx, map[string]string{"tenant": tenant})
		return workflow.ExecuteActivity(ctx, "charge").Get(ctx, nil)
	}
	_ = order
}

// tenantOf passes the header "tenant" on to all commands of a workflow.
type tenantOf struct{ workflow.InterceptorBase }

func (tenantOf) InterceptWorkflow(ctx workflow.Context, call *workflow.Call, next func(workflow.Context) error) {
	_ = next(workflow.WithHeaders(ctx, map[string]string{"tenant": call.Headers["tenant"]}))
}

// A worker runs the interceptors that its registry got by worker.Registry.Intercept.
func ExampleInterceptor() {
	var interceptor workflow.Interceptor = tenantOf{}
	fmt.Printf("%T\n", interceptor)
	// Output: workflow_test.tenantOf
}

// A branch checks orders one after the other while the workflow receives them as signals.
func ExampleNewChannel() {
	shop := func(ctx workflow.Context) error {
		orders := workflow.NewChannel[string](ctx, 10)
		workflow.Go(ctx, func(ctx workflow.Context) {
			for {
				id, ok, err := orders.Receive(ctx)
				if err != nil || !ok || workflow.ExecuteActivity(ctx, "check", id).Get(ctx, nil) != nil {
					return
				}
			}
		})
		for {
			id, err := workflow.ReceiveSignal[string](ctx, "order")
			if err != nil {
				return err
			}
			if err := orders.Send(ctx, id); err != nil {
				return err
			}
		}
	}
	_ = shop
}

// The ID goes to a program that calls client.CompleteAwakeable when the payment has arrived.
func ExampleAwakeable() {
	order := func(ctx workflow.Context, amount int) (string, error) {
		paid := workflow.Awakeable[string](ctx, 24*time.Hour)
		if _, err := workflow.Execute[any](ctx, "request_payment", amount, paid.ID); err != nil {
			return "", err
		}
		receipt, err := paid.Result(ctx)
		if errors.Is(err, workflow.ErrTimedOut) {
			return "not paid", nil
		}
		return receipt, err
	}
	_ = order
}
