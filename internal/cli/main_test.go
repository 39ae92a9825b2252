package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/examples"
	"github.com/sojourn-run/sojourn/internal/cli"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Environment variables with which a test configures the processes that it starts.
const (
	asSojourn  = "SOJOURN_TEST_AS_SOJOURN" // set: this process is the command line and not a test
	ledgerPath = "SOJOURN_TEST_LEDGER"     // the file activities write to
	holdPath   = "SOJOURN_TEST_HOLD"       // a hold activity waits until this file exists
	crashes    = "SOJOURN_TEST_CRASHES"    // how often a crash test kills
	freezes    = "SOJOURN_TEST_FREEZES"    // number of freezes of a worker with default leases
	// activitiesOnly, set: this worker runs no workflows.
	activitiesOnly = "SOJOURN_TEST_ACTIVITIES_ONLY"
	// refusedFor is the time after which an app exits when PostgreSQL rejects its credentials; unset: 5 min.
	refusedFor = "SOJOURN_TEST_REFUSED_FOR"
)

// TestMain makes this binary also serve as the program under test: the tests start it as real processes with additional
// activities.
func TestMain(m *testing.M) {
	if os.Getenv(asSojourn) != "" {
		if d, err := time.ParseDuration(os.Getenv(refusedFor)); err == nil {
			cli.SetRefusedFor(d)
		}
		os.Exit(cli.Main(register))
	}
	r := worker.NewRegistry()
	register(r)
	worker.RunExecutor(r)
	flag.Parse()
	if n := flag.Lookup("test.parallel"); n.Value.String() == n.DefValue {
		_ = n.Value.Set("4") // most of these tests wait: for leases, for processes
	}
	os.Exit(m.Run())
}

func register(r *worker.Registry) {
	if os.Getenv(activitiesOnly) != "" {
		r.Activity("killed.work", workItem)
		return
	}
	examples.Register(r)
	r.Workflow("ledger", ledgerWorkflow)
	r.Activity("ledger.append", appendToLedger)
	r.Activity("rollout.step", appendToLedger)
	r.Workflow("stay", stayWorkflow)
	r.Workflow("one", oneWorkflow)
	lost := &activity.SessionRecoveryPolicy{RebuildActivity: "stay.build"}
	r.Activity("stay.build", buildState)
	r.Activity("stay.count", countState, activity.Options{Recovery: lost})
	r.Activity("stay.hold", holdState, activity.Options{Recovery: lost})
	registerKilled(r)
	registerParents(r)
	registerPolicies(r)
	registerRollout(r)
	registerTakeover(r)
	registerLastHeartbeat(r)
	registerHandOver(r)
	registerHeaders(r)
	registerAwakeables(r)
	registerPending(r)
	registerInherit(r)
	registerStorm(r)
	registerSetUps(r)
	registerHandOverKills(r)
	registerTallies(r)
	registerFenced(r)
	registerFailFast(r)
	registerHandlers(r)
	registerShown(r)
	registerLogs(r)
	registerFused(r)
	registerBank(r)
	registerRebuilt(r)
	registerBystanders(r)
	registerChaos(r)
}

// line is one line of the ledger, a file outside of Sojourn to which activities write when they run.
type line struct {
	Run       string    `json:"run"`
	Task      string    `json:"task"`
	Execution string    `json:"execution"`
	AttemptID string    `json:"attempt_id"`
	Attempt   int       `json:"attempt"`
	Process   int       `json:"process"`
	Worker    string    `json:"worker"`
	Session   string    `json:"session"`
	Epoch     int64     `json:"epoch"`
	At        time.Time `json:"at"`
	What      string    `json:"what"`
}

// writeLedger writes the running attempt to the ledger, durably, before it returns.
func writeLedger(ctx context.Context, what string) error {
	path := os.Getenv(ledgerPath)
	if path == "" {
		return nil
	}
	i := activity.Info(ctx)
	raw, err := json.Marshal(line{
		Run: i.RunID, Task: i.TaskID, Execution: i.ExecutionID, AttemptID: i.AttemptID, Attempt: i.Attempt,
		Process: os.Getpid(), Worker: i.WorkerID,
		Session: activity.SessionID(ctx), Epoch: activity.SessionEpoch(ctx), At: time.Now(), What: what,
	})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(raw, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

// ledgerWorkflow appends to the ledger steps times, half of them in a session, and receives signals in between.
func ledgerWorkflow(ctx workflow.Context, steps, signals int) (int, error) {
	ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{
		StartToClose: time.Minute, Retry: &workflow.RetryPolicy{Backoff: []time.Duration{time.Second}},
	})
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
	if err != nil {
		return 0, err
	}
	done := 0
	for i := range steps {
		run := workflow.ExecuteActivity
		if i%2 == 1 {
			run = s.Execute
		}
		err := run(ctx, "ledger.append", i).Get(ctx, nil)
		if errors.Is(err, workflow.ErrPoison) { // killed three times during it: these tests cause this outcome
			continue
		}
		if err != nil {
			return done, err
		}
		done++
	}
	if err := s.End(ctx); err != nil {
		return done, err
	}
	for range signals {
		if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
			return done, err
		}
	}
	return done, nil
}

func appendToLedger(ctx context.Context, step int) error {
	return writeLedger(ctx, fmt.Sprint("append ", step))
}

// stayWorkflow counts in the state of its session: twice without a pause, and a third time after the hold.
func stayWorkflow(ctx workflow.Context) ([]int, error) {
	ctx = workflow.WithActivity(
		ctx,
		workflow.ActivityOptions{
			StartToClose: time.Minute, Retry: &workflow.RetryPolicy{Backoff: []time.Duration{time.Second}},
		},
	)
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
	if err != nil {
		return nil, err
	}
	if err := s.Execute(ctx, "stay.build").Get(ctx, nil); err != nil {
		return nil, err
	}
	var all []int
	for _, name := range []string{"stay.count", "stay.hold", "stay.count"} {
		var n int
		if err := s.Execute(ctx, name).Get(ctx, &n); err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, s.End(ctx)
}

// counted is session state: it exists in one process and can be set up again.
type counted struct{ n int }

func buildState(ctx context.Context) error {
	activity.SessionState(ctx).Set("counted", &counted{})
	return writeLedger(ctx, "build")
}

func countState(ctx context.Context) (int, error) {
	c, err := activity.Get[*counted](ctx, "counted")
	if err != nil {
		return 0, err
	}
	c.n++
	return c.n, writeLedger(ctx, "count")
}

// holdState uses the state, records that it runs, and waits for the file that ends the hold.
func holdState(ctx context.Context) (int, error) {
	if _, err := activity.Get[*counted](ctx, "counted"); err != nil {
		return 0, err
	}
	if err := writeLedger(ctx, "hold"); err != nil {
		return 0, err
	}
	for path := os.Getenv(holdPath); path != ""; {
		if _, err := os.Stat(path); err == nil {
			break
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return countState(ctx)
}

// workflowIDArg runs one activity.
func oneWorkflow(ctx workflow.Context, v string) (string, error) {
	return v, workflow.ExecuteActivity(ctx, "ledger.append", 0).Get(ctx, nil)
}
