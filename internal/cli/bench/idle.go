package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// fleetName is the first argument of a process that runs only idle workers.
const fleetName = "sojourn-bench-fleet"

// resting is the load under which an idle app is measured: numbers of workers, sessions and sleeping runs. Quick
// measurements use few.
type resting struct {
	workers, sessions, sleepers int
	settle                      time.Duration // time from the last activity until the app counts as idle
	tick                        time.Duration // one operation of the scenario: a tick of this length
}

func atRest(quick bool) resting {
	if quick {
		return resting{workers: 20, sessions: 200, sleepers: 200, settle: time.Second, tick: 100 * time.Millisecond}
	}
	// A minute after its start, and then once a day, an app deletes rows that are past their retention.
	return resting{workers: 200, sessions: 10_000, sleepers: 100_000, settle: 75 * time.Second, tick: time.Second}
}

// fleet returns the number of workers that stay connected while workflows sleep.
func (r resting) fleet() int {
	if r.sleepers > 10_000 {
		return 1000
	}
	return 20
}

// registerIdle registers one workflow for each idle state, such as a timer or a held session. Each run calls there when
// it has reached the state, and stays in it.
func registerIdle(r *worker.Registry, there func()) {
	const long = 30 * 24 * time.Hour
	r.Workflow("sleeper", func(ctx workflow.Context) error {
		there()
		return workflow.Sleep(ctx, long)
	})
	hold := func(o workflow.SessionOptions) func(workflow.Context) error {
		return func(ctx workflow.Context) error {
			s, err := workflow.StartSession(ctx, o)
			if err != nil {
				return err
			}
			if err := s.Execute(ctx, "take").Get(ctx, nil); err != nil {
				return err
			}
			return workflow.Sleep(ctx, long)
		}
	}
	r.Workflow("holder", hold(workflow.SessionOptions{}))
	r.Workflow("fail-fast-holder", hold(workflow.SessionOptions{FailFast: true}))
	r.Activity("take", func(context.Context) error {
		there()
		return nil
	})
}

// startAndWaitAll starts size workflows and waits until all have reached their wait.
func startAndWaitAll(ctx context.Context, n *node, typ string, size int) error {
	n.there.Store(0)
	b := n.app.Broker()
	if _, err := runMany(size, 500, func() error {
		_, err := b.Start(ctx, protocol.StartRequest{WorkflowID: ulid.Make().String(), WorkflowType: typ})
		return err
	}); err != nil {
		return err
	}
	patience := time.Now().Add(10 * time.Minute)
	for n.there.Load() < int64(size) {
		if time.Now().After(patience) {
			return fmt.Errorf("%d of %d workflows reached their timer within 10 minutes", n.there.Load(), size)
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// heldSessions measures an app whose workers hold idle sessions. Its database load consists of renewals of session
// leases and heartbeats of workers. The first call acquires the sessions.
func heldSessions(ctx context.Context, n *node, ops int) (sample, error) {
	return measureWaiting(ctx, n, ops, "holder", atRest(n.quick).sessions)
}

// heldFailFast is like heldSessions, with fail-fast sessions.
func heldFailFast(ctx context.Context, n *node, ops int) (sample, error) {
	return measureWaiting(ctx, n, ops, "fail-fast-holder", atRest(n.quick).sessions)
}

// measureSleeping measures an app with sleeping workflows and one worker in its process.
func measureSleeping(ctx context.Context, n *node, ops int) (sample, error) {
	return measureWaiting(ctx, n, ops, "sleeper", atRest(n.quick).sleepers)
}

// measureWaiting measures an app once size workflows wait in their state.
func measureWaiting(ctx context.Context, n *node, ops int, workflow string, size int) (sample, error) {
	rest := atRest(n.quick)
	if !n.prepared {
		n.prepared = true
		if err := errors.Join(startAndWaitAll(ctx, n, workflow, size), pause(ctx, rest.settle)); err != nil {
			return sample{}, err
		}
	}
	return measureIdle(ctx, n, ops, rest.tick)
}

// asleepWithFleet is like asleep, with idle workers connected over sockets. The workers run in a separate process, so
// that their CPU time and memory do not count as the app's.
func asleepWithFleet(ctx context.Context, n *node, ops int) (sample, error) {
	rest := atRest(n.quick)
	if !n.prepared {
		n.prepared = true
		working, stop := context.WithCancel(context.WithoutCancel(ctx))
		err := n.work(working, nodeOptions{worker: "in-process", log: zerolog.Nop()}, "before")
		if err == nil {
			err = startAndWaitAll(ctx, n, "sleeper", rest.sleepers)
		}
		stop()
		if err == nil {
			err = n.startFleet(ctx, rest.fleet())
		}
		if err = errors.Join(err, pause(ctx, rest.settle)); err != nil {
			return sample{}, err
		}
	}
	return measureIdle(ctx, n, ops, rest.tick)
}

// measureIdle waits for ops ticks and counts the activity of the app during them.
func measureIdle(ctx context.Context, n *node, ops int, tick time.Duration) (s sample, err error) {
	debug.FreeOSMemory() // memory of the preparation is not part of an idle app
	stats, used, began := n.app.Store().Stats(), cpuTime(), time.Now()
	err = pause(ctx, time.Duration(ops)*tick)
	now := n.app.Store().Stats()
	s.elapsed, s.used = time.Since(began), cpuTime()-used
	s.statements = now.Statements + now.Reads - stats.Statements - stats.Reads
	if err == nil {
		s.resident, err = resident(os.Getpid())
	}
	return s, err
}

// startFleet starts workers in a separate process and returns when all are connected.
func (n *node) startFleet(ctx context.Context, workers int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	c := exec.Command(self) //nolint:noctx // it outlives the step that starts it, and ends with its input
	c.Args, c.Stderr = []string{fleetName, n.app.URL(), strconv.Itoa(workers)}, &stderr
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	n.atEnd = append(n.atEnd, func() error {
		_ = in.Close() // closing its input ends the process
		late := time.AfterFunc(30*time.Second, func() { _ = c.Process.Kill() })
		defer late.Stop()
		return c.Wait()
	})
	ready := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(out).ReadString('\n')
		ready <- err
	}()
	select {
	case err := <-ready:
		if err != nil {
			return fmt.Errorf("workers did not connect: %w: %s", err, stderr.String())
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// runFleet is the main function of a process of idle workers: it prints a line when all are connected, and ends at the
// end of its input.
func runFleet(url string, workers int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, workers)
	all := make([]*worker.Worker, workers)
	for i := range workers {
		registry := worker.NewRegistry()
		registry.Activity("wait", func(context.Context) error { return nil })
		w, err := worker.New(workeropt.Over(&link.Socket{URLs: []string{url}}, worker.Options{
			Queues: []string{"idle"}, Registry: registry, Release: "bench",
			WorkerID: fmt.Sprintf("idle-%d", i), NoMachine: true,
			DrainTimeout: 5 * time.Second, Logger: slogbridge.Slog(zerolog.New(os.Stderr).Level(zerolog.ErrorLevel)),
			Sessions:  worker.SessionOptions{Max: 10},
			Executors: worker.ExecutorOptions{Disabled: true},
		}))
		if err != nil {
			return err
		}
		all[i] = w
		go func() { ended <- w.Run(ctx) }()
	}
	for _, w := range all {
		if err := w.WaitReady(ctx); err != nil {
			return err
		}
	}
	fmt.Println("connected")
	_, err := io.Copy(io.Discard, os.Stdin)
	cancel()
	for range all {
		err = errors.Join(err, <-ended)
	}
	return err
}

// resident returns the resident memory of a process in bytes.
func resident(pid int) (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("memory of a process is read on Linux: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no memory", pid)
}

// These functions return figures of an idle app.
func statementsASecond(s sample) float64 { return float64(s.statements) / s.elapsed.Seconds() }
func statementsAMinute(s sample) float64 { return 60 * statementsASecond(s) }
func ofACore(s sample) float64           { return 100 * float64(s.used) / float64(s.elapsed) }
func megabytes(s sample) float64         { return float64(s.resident) / 1e6 }
