package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func (p *program) activityCommand() *cobra.Command {
	c := p.group(
		"activity", "Run activities without a workflow, complete pending ones, and print activity logs", nil,
		p.runActivity(), p.activityLogs(), p.completeActivity(), p.failActivity(), p.heartbeatActivity(),
	)
	c.Long = "Run activities without a workflow, complete pending ones, and print activity logs.\n\n" +
		"An activity run has a workflow ID, which workflow describe, history, result, cancel and terminate accept."
	return c
}

func (p *program) runActivity() *cobra.Command {
	var in protocol.ActivityRequest
	var limits activityLimits
	var shared starting
	var detach bool
	var delay time.Duration
	c := &cobra.Command{
		Use:   "run TYPE [ARGUMENTS]",
		Short: "Run an activity, wait for its result and print it; exits with an error if it fails",
		Long: "Run an activity without a workflow, wait for its result and print it. Exits with an error if it fails.\n\n" +
			"ARGUMENTS are a JSON array; @FILE reads a file, - standard input. The run is durable: it continues if this command,\n" +
			"the app or the worker ends. With --detach the command prints the workflow ID and exits once the run is stored.\n" +
			"While no worker runs the activity, the reason is printed to standard error. If the app becomes unreachable, the\n" +
			"command retries for one minute; after that, get the result with: sojourn workflow result ID",
		Example: "  sojourn activity run resize '[\"photo.jpg\", 300]'\n" +
			"  sojourn activity run turn '[\"hello\"]' --session chat-17 --max-attempts 5 --backoff 1s,10s --detach",
		ValidArgsFunction: first(p.activityTypes),
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usageErr(c, fmt.Errorf(
					"%s requires an activity type and accepts one JSON array (arguments given: %d)", c.CommandPath(), len(args),
				))
			}
			return nonEmptyArgs(c, args, "activity type", "ARGUMENTS")
		},
		RunE: func(c *cobra.Command, args []string) error {
			run, err := shared.read(p, c)
			if err != nil {
				return err
			}
			in.ActivityType = args[0]
			in.WorkflowID, in.TaskQueue, in.DuplicatePolicy = run.WorkflowID, run.TaskQueue, run.DuplicatePolicy
			in.ReusePolicy, in.ConflictPolicy, in.IdempotencyKey = run.ReusePolicy, run.ConflictPolicy, run.IdempotencyKey
			in.BusinessKey, in.Memo, in.SearchAttributes = run.BusinessKey, run.Memo, run.SearchAttributes
			in.Headers = run.Headers
			in.Priority, in.FairnessKey, in.FairnessWeight = run.Priority, run.FairnessKey, run.FairnessWeight
			if len(args) > 1 {
				if in.Input, err = p.array(c, "ARGUMENTS", args[1]); err != nil {
					return err
				}
			}
			if err := limits.apply(c, &in.ActivityOptions); err != nil {
				return err
			}
			if in.StartDelay, err = seconds("delay", delay); err != nil {
				return err
			}
			const path = "/api/sojourn/activities"
			if detach {
				return send(p, c, http.MethodPost, path, in, func(v protocol.ActivityResponse) error {
					return p.printf("%s %s, run %s", v.Outcome, v.WorkflowID, v.RunID)
				})
			}
			var out protocol.ActivityResponse
			if err := p.call(c, http.MethodPost, path, in, &out); err != nil {
				return err
			}
			defer p.printWaits(c, runPath(out.WorkflowID, out.RunID))()
			return p.result(c, out.WorkflowID, out.RunID)
		},
	}
	shared.flags(c)
	f := c.Flags()
	limits.flags(c)
	f.DurationVar(&delay, "delay", 0, "start after this delay; timeouts count from then")
	f.BoolVar(&detach, "detach", false, "print the workflow ID once the run is stored, without waiting for the result")
	return c
}

// printWaits prints to standard error what a run waits for, and each change of it, while no worker runs its code:
// installing packages takes time, and there may be no worker. The returned function stops the output.
func (p *program) printWaits(c *cobra.Command, path string) (stop func()) {
	const interval = time.Second
	app, err := p.client(c)
	if err != nil {
		return func() {} // the wait for the result reports this error
	}
	ctx, cancel := context.WithCancel(c.Context())
	var printing sync.WaitGroup
	printing.Go(func() {
		for last := ""; ; {
			select {
			case <-time.After(interval):
			case <-ctx.Done():
				return
			}
			var v protocol.RunView
			var now, text string
			switch err := app.Call(ctx, http.MethodGet, path, nil, &v); {
			case ctx.Err() != nil:
				return
			case err != nil && protocol.ReasonOf(err) == "":
				now, text = "away", "no app answers, retrying for one minute; the run is stored and continues"
			case err == nil && v.Wait != nil && v.Wait.Reason != protocol.WaitRunning:
				now, text = string(v.Wait.Reason)+v.Wait.Detail, waitText(v.Wait, nil)
			default:
				continue
			}
			if now != last {
				last = now
				fmt.Fprintln(p.err, text)
			}
		}
	})
	return func() {
		cancel()
		printing.Wait()
	}
}

// activityLimits holds the flags for the timeouts, the retries and the session of an activity.
type activityLimits struct {
	startToClose, scheduleToStart, scheduleToClose, heartbeat time.Duration
	attempts                                                  int
	blamed                                                    int
	backoff                                                   []time.Duration
	session, affinity                                         string
	definition, setUp                                         string
}

func (l *activityLimits) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&l.session, "session", "", "worker session of the activity; it runs on the session's owner")
	f.StringVar(&l.affinity, "affinity", "", "session affinity: hard, or soft (other workers may acquire the session after a while); default: hard")
	f.StringVar(&l.definition, "session-definition", "", "name of the definition by which workers set the session up")
	f.StringVar(&l.setUp, "session-arguments", "", "arguments of the set-up, a JSON array; those of the session's first use apply")
	f.DurationVar(&l.startToClose, "start-to-close", 0, "maximum duration of one attempt")
	f.DurationVar(&l.scheduleToStart, "schedule-to-start", 0, "maximum wait for a worker")
	f.DurationVar(&l.scheduleToClose, "schedule-to-close", 0, "maximum duration of all attempts together")
	f.DurationVar(&l.heartbeat, "heartbeat", 0, "maximum time between heartbeats of an attempt")
	f.IntVar(&l.blamed, "max-blamed-losses", 0,
		"lost worker processes that the activity may be blamed for before it fails as poison; 0: the app's setting")
	f.IntVar(&l.attempts, "max-attempts", 1, "maximum number of attempts; 0: unlimited")
	f.DurationSliceVar(&l.backoff, "backoff", nil, "waits before the second, third … attempt, comma separated; the last one repeats")
}

// apply sets the members of a request to the values of the flags.
func (l *activityLimits) apply(c *cobra.Command, in *protocol.ActivityOptions) error {
	in.SessionID, in.Affinity = l.session, l.affinity
	switch {
	case l.definition != "" && l.session == "":
		return usageError{errors.New("--session-definition requires --session")}
	case l.setUp != "" && l.definition == "":
		return usageError{errors.New("--session-arguments requires --session-definition")}
	case l.definition != "":
		in.SessionDefinition = &protocol.ActivitySession{Name: l.definition, Arguments: []byte(l.setUp)}
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
		to    *protocol.Timeout
	}{
		{"start-to-close", l.startToClose, &in.StartToClose},
		{"schedule-to-start", l.scheduleToStart, &in.ScheduleToStart},
		{"schedule-to-close", l.scheduleToClose, &in.ScheduleToClose},
		{"heartbeat", l.heartbeat, &in.Heartbeat},
	} {
		n, err := seconds(d.flag, d.value)
		if err != nil {
			return err
		}
		*d.to = protocol.Timeout(n)
	}
	in.MaxBlamedLosses = l.blamed
	if !c.Flags().Changed("max-attempts") {
		if len(l.backoff) > 0 {
			return usageError{errors.New("--backoff requires --max-attempts")}
		}
		return nil
	}
	in.RetryPolicy = &retry.Policy{}
	if l.attempts != 0 {
		in.RetryPolicy.MaxAttempts = &l.attempts
	}
	for _, wait := range l.backoff {
		n, err := seconds("backoff", wait)
		if err != nil {
			return err
		}
		in.RetryPolicy.BackoffSeconds = append(in.RetryPolicy.BackoffSeconds, int(n))
	}
	return nil
}

// typeOf returns a run's type for lists, with a prefix for activity runs.
func typeOf(kind, typ string) string {
	if kind == protocol.RunOfActivity {
		return "activity " + typ
	}
	return typ
}

// typeWithKind returns a run's type for detailed views.
func typeWithKind(kind, typ string) string {
	if kind == protocol.RunOfActivity {
		return typ + " (activity run)"
	}
	return typ
}
