// Package tour has one small workflow for each thing workflow code can do. The guide in docs/guide/workflows-in-go.md
// shows them.
package tour

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Register offers the workflows and the activities they use.
func Register(r *worker.Registry) {
	r.Workflow("tour.greeting", Greeting)
	r.Workflow("tour.options", Options)
	r.Workflow("tour.failure", Failure)
	r.Workflow("tour.join", Join)
	r.Workflow("tour.deadline", Deadline)
	r.Workflow("tour.recall", Recall)
	r.Workflow("tour.approval", Approval)
	r.Workflow("tour.inbox", Inbox)
	r.Workflow("tour.tell", Tell)
	r.Workflow("tour.branches", Branches)
	r.Workflow("tour.limited", Limited)
	r.Workflow("tour.cleanup", CleanUp)
	r.Workflow("tour.counter", Counter)
	r.Workflow("tour.dice", Dice)
	r.Workflow("tour.quote", Quote)
	r.Workflow("tour.change", Change)
	r.Workflow("tour.facts", Facts)
	r.Workflow("tour.session", Session)
	r.Workflow("tour.publication", Publication)
	r.WorkflowVersion("tour.versions", 1, VersionOne)
	r.WorkflowVersion("tour.versions", 2, VersionTwo)
	registerTalk(r)
	r.Activity("say", Say)
	r.Activity("charge", Charge)
	r.Activity("slow", Slow)
	r.Activity("save", Save)
	r.Activity("epoch", Epoch)
	r.Activity("publish", Publish)
}

// Greeting schedules an activity and waits for its result.
func Greeting(ctx workflow.Context, name string) (string, error) {
	f := workflow.ExecuteActivity(ctx, "say", "hello", name) // by its registered name …
	var hello string
	if err := f.Get(ctx, &hello); err != nil {
		return "", err
	}
	goodbye, err := workflow.Execute[string](ctx, Say, "goodbye", name) // … or as the registered function, with a type
	return hello + ", " + goodbye, err
}

// Options sets the options of all activities that are scheduled under the context.
func Options(ctx workflow.Context) (string, error) {
	ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{
		Queue:           "",               // default: the queue of the run
		StartToClose:    time.Minute,      // one attempt
		ScheduleToClose: time.Hour,        // all attempts together
		ScheduleToStart: 10 * time.Minute, // waiting for a worker
		Heartbeat:       30 * time.Second, // maximum time between two heartbeats
		Retry: &workflow.RetryPolicy{
			MaxAttempts:  5, // 0: unlimited
			Backoff:      workflow.ExponentialBackoff(time.Second, time.Minute),
			NonRetryable: []string{"card_declined"},
		},
		Requirements: nil, // capabilities its worker must have, such as "gpu"
		Priority:     2,   // 1 first … 9 last; 0: that of the run
	})
	return workflow.Execute[string](ctx, Say, "well", "done")
}

// Failure handles the different failures of an activity.
func Failure(ctx workflow.Context, amount int) (string, error) {
	err := workflow.ExecuteActivity(ctx, Charge, amount).Get(ctx, nil)
	var failed *workflow.ActivityError
	switch {
	case err == nil:
		return "charged", nil
	case errors.Is(err, workflow.ErrTimedOut), errors.Is(err, workflow.ErrPoison):
		return "try tomorrow", nil
	case errors.As(err, &failed) && failed.Type == "card_declined":
		var missing int
		if err := failed.DecodeDetails(&missing); err != nil {
			return "", err
		}
		return fmt.Sprintf("declined, %d missing", missing), nil
	}
	return "", err // fails the run
}

// Join runs steps side by side and waits for all of them.
func Join(ctx workflow.Context, names []string) (string, error) {
	var all []workflow.Future
	for _, name := range names {
		all = append(all, workflow.ExecuteActivity(ctx, "say", "hi", name))
	}
	if err := workflow.Join(ctx, all...); err != nil {
		return "", err
	}
	lines := make([]string, len(all))
	for i, f := range all {
		if err := f.Get(ctx, &lines[i]); err != nil {
			return "", err
		}
	}
	return strings.Join(lines, ", "), nil
}

// Deadline waits for the first of two futures, and cancels the other.
func Deadline(ctx workflow.Context) (string, error) {
	doing, stop := workflow.WithCancel(ctx)
	f := workflow.ExecuteActivity(doing, "slow")
	first, err := workflow.Select(ctx, f, workflow.NewTimer(ctx, time.Second))
	if err != nil {
		return "", err
	}
	if first == 1 {
		stop() // cancels the activity's context
		return "gave up", nil
	}
	return workflow.Await[string](ctx, f)
}

// Recall ends an activity, and sees how that ended.
func Recall(ctx workflow.Context) (string, error) {
	doing, stop := workflow.WithCancel(workflow.WithActivity(ctx, workflow.ActivityOptions{WaitForCancellation: true}))
	f := workflow.ExecuteActivity(doing, Save)
	if err := workflow.Sleep(ctx, time.Second); err != nil {
		return "", err
	}
	stop()
	return workflow.Await[string](doing, f) // the result of Save after its cancellation
}

// Approval waits for a person, but not forever.
func Approval(ctx workflow.Context) (string, error) {
	approve := workflow.Signal(ctx, "approve")
	switch first, err := workflow.Select(ctx, approve, workflow.NewTimer(ctx, 24*time.Hour)); {
	case err != nil:
		return "", err
	case first == 1:
		return "nobody approved", nil
	}
	var by string
	err := approve.Receive(ctx, &by) // a signal is there, so this does not wait
	return "approved by " + by, err
}

// Inbox waits for one signal, then receives all further signals that have arrived.
func Inbox(ctx workflow.Context) ([]string, error) {
	first, err := workflow.ReceiveSignal[string](ctx, "mail") // waits
	if err != nil {
		return nil, err
	}
	all := []string{first}
	if err := workflow.Sleep(ctx, time.Second); err != nil { // signals that arrive meanwhile are stored
		return nil, err
	}
	for {
		var next string
		if more, err := workflow.Signal(ctx, "mail").ReceiveAsync(&next); err != nil || !more {
			return all, err
		}
		all = append(all, next)
	}
}

// Tell sends a signal to another workflow.
func Tell(ctx workflow.Context, workflowID, text string) error {
	return workflow.SignalWorkflow(ctx, workflowID, "mail", text)
}

// Branches runs code side by side. Only one branch runs at a time, so variables need no locks.
func Branches(ctx workflow.Context) (int, error) {
	sum := 0
	done, resolve := workflow.NewFuture(ctx)
	for n := 1; n <= 3; n++ {
		workflow.Go(ctx, func(ctx workflow.Context) {
			if workflow.Sleep(ctx, time.Duration(n)*100*time.Millisecond) != nil {
				return
			}
			if sum += n; sum == 6 {
				resolve(sum, nil)
			}
		})
	}
	return workflow.Await[int](ctx, done)
}

// Limited greets all names with at most most activities at the same time.
func Limited(ctx workflow.Context, names []string, most int64) ([]string, error) {
	limit, all := workflow.NewSemaphore(ctx, most), workflow.NewWaitGroup(ctx)
	lines := make([]string, len(names))
	var failed error
	for i, name := range names {
		all.Go(ctx, func(ctx workflow.Context) {
			err := limit.Acquire(ctx, 1)
			if err == nil {
				defer limit.Release(1)
				lines[i], err = workflow.Execute[string](ctx, Say, "hi", name)
			}
			failed = cmp.Or(failed, err)
		})
	}
	err := all.Wait(ctx)
	return lines, cmp.Or(err, failed)
}

// CleanUp runs an activity when the run is cancelled.
func CleanUp(ctx workflow.Context) (string, error) {
	err := workflow.Sleep(ctx, 24*time.Hour)
	if errors.Is(err, workflow.ErrCancelled) {
		return workflow.Execute[string](workflow.WithoutCancel(ctx), Say, "cleaned", "up")
	}
	return "slept well", err
}

// Counter continues as a new run, so that its history stays short.
func Counter(ctx workflow.Context, n, until int) (int, error) {
	if n == until {
		return n, nil
	}
	return 0, workflow.ContinueAsNew(ctx, n+1, until)
}

// Dice records a value that code must compute only once.
func Dice(ctx workflow.Context) (int, error) {
	return workflow.SideEffect(ctx, func() int { return 1 + rand.IntN(6) })
}

// prices are what Quote looks up.
var prices = map[string]int{"book": 1200, "pen": 300}

func lookUp(_ context.Context, item string) (int, error) {
	price, ok := prices[item]
	if !ok {
		return 0, activity.NewError("UnknownItem", item, activity.NonRetryable)
	}
	return price, nil
}

// Quote runs two local steps: a call that must not be repeated once it has returned, and a computation that may run
// again.
func Quote(ctx workflow.Context, item string) (int, error) {
	price, err := workflow.Do(ctx, "price", func(ctx context.Context) (int, error) { return lookUp(ctx, item) },
		workflow.StepOptions{StartToClose: 2 * time.Second, Retry: &workflow.RetryPolicy{MaxAttempts: 3}})
	if err != nil {
		return 0, err
	}
	return workflow.Do(ctx, "tax", func(context.Context) (int, error) { return price + price/5, nil },
		workflow.StepOptions{Durability: workflow.WithTurn})
}

// Change runs new code in new runs, and the old code in runs that executed it before.
func Change(ctx workflow.Context) (string, error) {
	if workflow.Version(ctx, "polite", workflow.DefaultVersion, 1) >= 1 {
		return workflow.Execute[string](ctx, Say, "good morning", "friend")
	}
	return workflow.Execute[string](ctx, Say, "hey", "friend")
}

// VersionOne and VersionTwo are two versions of one workflow.
func VersionOne(workflow.Context) (int, error) { return 1, nil }

// VersionTwo is the version of new runs.
func VersionTwo(workflow.Context) (int, error) { return 2, nil }

type requestKey struct{}

// Facts uses values that are the same in every replay.
func Facts(ctx workflow.Context) (string, error) {
	ctx = workflow.WithValue(ctx, requestKey{}, workflow.NewID(ctx)) // 26 letters and digits, globally unique
	// workflow ID, run ID, type, queue, run number, length of history
	info := workflow.Info(ctx)
	age := workflow.Now(ctx).Sub(info.StartedAt) // the time of the event that caused the workflow task
	workflow.Logger(ctx).Info("logged once, not in replays", "request", ctx.Value(requestKey{}))
	return fmt.Sprintf("%s, run %d, %t", info.WorkflowType, info.RunNumber, age < time.Hour), ctx.Err()
}

// Session runs activities on one worker.
func Session(ctx workflow.Context) (bool, error) {
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
	if err != nil {
		return false, err
	}
	a, err := workflow.Await[int64](ctx, s.Execute(ctx, "epoch"))
	if err != nil {
		return false, err
	}
	b, err := workflow.ExecuteIn[int64](ctx, s, Epoch) // the same, with a type; InSession(ctx, s.ID) is a context for it
	return a == b, errors.Join(err, s.End(ctx))
}

// Say is an activity.
func Say(_ context.Context, word, name string) (string, error) { return word + " " + name, nil }

// Charge is an activity that may fail for good.
func Charge(ctx context.Context, amount int) error {
	if amount > 100 {
		return activity.NewError("card_declined", "no credit", activity.NonRetryable, activity.Details(amount-100))
	}
	return activity.Heartbeat(ctx, activity.Progress{Message: "charging", Current: 1, Total: 2})
}

// Slow is an activity that runs until it is cancelled.
func Slow(ctx context.Context) (string, error) {
	<-ctx.Done()
	return "", context.Cause(ctx)
}

// Save is an activity that returns its partial result when it is cancelled.
func Save(ctx context.Context) (string, error) {
	<-ctx.Done()
	return "saved half of it", nil
}

// Epoch returns the epoch of the activity's session.
func Epoch(ctx context.Context) (int64, error) { return activity.SessionEpoch(ctx), nil }
