package cli_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func registerFused(r *worker.Registry) {
	r.Workflow("fused.steps", fusedSteps)
	r.Activity("fused.step", fusedStep)
}

// fusedSteps runs sequential steps without a session, in an implicit session and in a session of the workflow, until a
// step reports that it was the last. There are no pauses, so every step that can use an eager workflow task does.
func fusedSteps(ctx workflow.Context, id string) (done int, err error) {
	ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{
		StartToClose: time.Minute, Retry: &workflow.RetryPolicy{Backoff: []time.Duration{time.Second}},
	})
	own, err := workflow.StartSession(ctx, workflow.SessionOptions{})
	if err != nil {
		return 0, err
	}
	counts := 0
	for more := true; more; done++ {
		for open := true; open; { // receive all signals, so that the commands depend on those that arrived meanwhile
			if open, err = workflow.Signal(ctx, "go").ReceiveAsync(); err != nil {
				return done, err
			}
			if open {
				counts++
			}
		}
		step := fmt.Sprint("step ", done, " with ", counts, " signals")
		switch done % 4 {
		case 0:
			more, err = workflow.Execute[bool](ctx, fusedStep, step)
		case 1:
			more, err = workflow.Execute[bool](workflow.InSession(ctx, id), fusedStep, step)
		default:
			more, err = workflow.Await[bool](ctx, own.Execute(ctx, fusedStep, step))
		}
		if errors.Is(err, workflow.ErrPoison) { // its worker was disturbed three times during it
			more, err = true, nil
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func fusedStep(ctx context.Context, step string) (bool, error) {
	return notedStep(ctx, step, 100*time.Millisecond)
}

// fused runs workflows with eager workflow tasks on workers of every kind and on apps with a worker, and kills, stops
// and disconnects them.
type fused struct {
	*plant
	leases  env
	apps    []*process
	at      []client
	wires   map[string][]*wire // of each worker in a separate process, one to each app
	runs    map[string]string
	lost    *atomic.Int64 // deliveries lost in all variants
	mu      sync.Mutex    // guards the fields below
	signals map[string]string
}

// serves starts an app that has a worker in its own process.
func (f *fused) serves(i int) {
	f.t.Helper()
	e := f.fleet.worker.with(f.leases).with(f.fleet.app).with(env{
		"SOJOURN_ADDR": f.at[i].base[len("http://"):], "SOJOURN_DATA_DIR": fmt.Sprint(f.dir, "/app-", i),
		"SOJOURN_WORKER_ID": fmt.Sprint("inside-", i),
	})
	delete(e, "SOJOURN_APP_URL")
	delete(e, "SOJOURN_LINK")
	f.apps[i] = launch(f.t, f.dir, e)
	f.at[i].up()
}

// begins starts a worker behind its wires.
func (f *fused) begins(id string) {
	f.t.Helper()
	var to []string
	for i, c := range f.at {
		if len(f.wires[id]) <= i {
			f.wires[id] = append(f.wires[id], newWire(f.t, c.base[len("http://"):]))
		}
		to = append(to, "http://"+f.wires[id][i].addr)
	}
	f.begin(id, f.leases.with(env{"SOJOURN_APP_URL": strings.Join(to, ",")}))
}

// stepped returns the runs in which a step started since a time.
func (f *fused) stepped(since time.Time) (runs map[string]bool) {
	runs = map[string]bool{}
	for _, l := range ledger(f.t, f.ledger) {
		if l.At.After(since) {
			runs[l.Run] = true
		}
	}
	return runs
}

func (f *fused) resume() {
	f.t.Helper()
	since := time.Now()
	until(f.t, "every run goes on", func() bool {
		time.Sleep(200 * time.Millisecond)
		return len(f.stepped(since)) == len(f.runs)
	})
}

// fusedWorkers are the workers that run in separate processes.
var fusedWorkers = []string{"one", "two", "three"}

// inStep waits until a worker in a separate process has begun a step, and returns the worker. The step takes another
// 60 ms or more.
func (f *fused) inStep() (id string) {
	f.t.Helper()
	until(f.t, "a worker runs a step", func() bool {
		for _, l := range ledger(f.t, f.ledger) {
			if slices.Contains(fusedWorkers, l.Worker) && time.Since(l.At) < 40*time.Millisecond {
				id = l.Worker
			}
		}
		return id != ""
	})
	return id
}

// strike stops a worker during a step, so that its delivery is lost, disconnects a second worker, kills and restarts
// the third, and kills the apps one by one or stops one of two apps. The restarted worker runs all tasks meanwhile.
func (f *fused) strike(round int, still time.Duration) {
	f.t.Helper()
	send := func(p *process, s syscall.Signal) {
		f.t.Helper()
		if err := p.cmd.Process.Signal(s); err != nil {
			f.t.Fatal(err)
		}
	}
	over := time.After(still)
	frozen := f.inStep()
	send(f.node[frozen], syscall.SIGSTOP)
	others := slices.DeleteFunc(slices.Clone(fusedWorkers), func(id string) bool { return id == frozen })
	cut, killed := others[round%2], others[1-round%2]
	for _, w := range f.wires[cut] {
		w.cut()
	}
	f.node[killed].kill()
	f.begins(killed)
	time.Sleep(still / 4)
	thawed := -1
	for i := range f.apps {
		if len(f.apps) > 1 && i == round%len(f.apps) {
			send(f.apps[i], syscall.SIGSTOP)
			thawed = i
			continue
		}
		f.apps[i].kill()
		f.serves(i)
	}
	<-over
	if thawed >= 0 {
		send(f.apps[thawed], syscall.SIGCONT)
	}
	send(f.node[frozen], syscall.SIGCONT)
	for _, w := range f.wires[cut] {
		w.mend()
	}
	f.resume()
}

// talk signals runs, at any app, until the test ends it.
func (f *fused) talk(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		id, request := fmt.Sprint("fused-", rand.IntN(len(f.runs))), fmt.Sprint("request-", n)
		patience, done := context.WithTimeout(ctx, 5*time.Second)
		status, _, err := f.at[n%len(f.at)].call(
			patience, http.MethodPost, "/api/workflows/"+id+"/signal/go",
			map[string]any{"input": []any{request}, "request_id": request},
		)
		done()
		if err == nil && status < 300 {
			f.mu.Lock()
			f.signals[request] = id
			f.mu.Unlock()
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Steps follow each other without pauses, so that most workflow tasks are eager, while the test kills, disconnects and
// stops workers for longer than their leases, and kills and stops apps with a worker. No step is lost or recorded
// twice, none starts after its lease, no session has two owners, and workflow code can replay each history. With
// SOJOURN_TEST_CRASHES workers have their default leases.
func TestEagerTasksUnderKillsFreezesAndDisconnects(t *testing.T) {
	t.Parallel()
	// In one variant the workers in the processes of the apps may execute nearly all steps, so that no other worker has
	// one when it is killed.
	var lost atomic.Int64
	t.Cleanup(func() {
		if lost.Load() == 0 {
			t.Error("no delivery was lost in any variant")
		}
	})
	for _, way := range []string{"socket", "http"} {
		for _, kind := range []string{"sqlite", "postgres"} {
			t.Run(way+"/"+kind, func(t *testing.T) {
				t.Parallel()
				f := &fused{
					lost: &lost, runs: map[string]string{}, signals: map[string]string{}, wires: map[string][]*wire{},
				}
				f.leases = env{"SOJOURN_ATTEMPT_LEASE": "3s", "SOJOURN_SESSION_LEASE": "3s", "SOJOURN_SESSION_BUFFER": "1s"}
				runs, rounds, lease := 6, 1, 3*time.Second
				if os.Getenv(crashes) != "" {
					f.leases, runs, rounds, lease = env{}, 12, 4, 30*time.Second
				}
				f.plant = byDefault(t, kind == "postgres")
				f.plant.app.kill() // apps of this test have a worker in their process
				f.fleet.worker["SOJOURN_LINK"] = way
				f.at = []client{f.client}
				if kind == "postgres" {
					second := f.client
					second.base = "http://" + address(t)
					f.at = append(f.at, second)
				}
				f.apps = make([]*process, len(f.at))
				for i := range f.at {
					f.serves(i)
				}
				for _, id := range fusedWorkers {
					f.begins(id)
				}
				for i := range runs {
					id := fmt.Sprint("fused-", i)
					f.runs[id] = f.client.start(id, "fused.steps", id).RunID
				}
				ctx, stop := context.WithCancel(t.Context())
				var talk sync.WaitGroup
				talk.Go(func() { f.talk(ctx) })
				f.resume()
				for n := range rounds {
					f.strike(n, lease+lease/3)
				}
				stop()
				talk.Wait()
				f.release()
				f.judge()
			})
		}
	}
}

// judge compares the histories of all runs with the ledger.
func (f *fused) judge() {
	t := f.t
	t.Helper()
	names := worker.NewRegistry()
	register(names)
	def, err := workflow.NewDefinition("fused.steps", fusedSteps)
	if err != nil {
		t.Fatal(err)
	}
	histories := map[string][]history.Event{}
	for id, run := range f.runs {
		histories[run] = f.client.completed(id, run)
	}
	byRun, bySession := map[string][]line{}, map[string][]line{}
	began := map[string]time.Time{}
	for _, l := range ledger(t, f.ledger) {
		byRun[l.Run] = append(byRun[l.Run], l)
		if l.Session != "" {
			bySession[l.Session] = append(bySession[l.Session], l)
		}
		began[l.AttemptID] = l.At
	}
	for session, lines := range bySession {
		slices.SortStableFunc(lines, func(a, b line) int { return a.At.Compare(b.At) })
		for i, l := range lines[1:] {
			if before := lines[i]; l.Epoch < before.Epoch ||
				l.Epoch == before.Epoch && (l.Worker != before.Worker || l.Process != before.Process) {
				t.Errorf("session %s has two owners: %+v began after %+v", session, l, before)
			}
		}
	}
	turns, inside, steps, lost, workers := 0, 0, 0, 0, map[string]int{}
	for id, run := range f.runs {
		events := histories[run]
		checkLedger(t, events, byRun[run])
		if err := replay.Events(def, replay.Options{Names: names, CompareArguments: true}, events); err != nil {
			t.Errorf("replay of %s: %v", id, err)
		}
		counts := map[string]int{}
		for _, e := range events {
			switch d := e.Data.(type) {
			case *history.SignalReceived:
				counts[d.RequestID]++
			case *history.ActivityCompleted:
				steps++
				if workers[d.Worker]++; d.EagerHash != "" {
					if turns++; d.SessionEpoch != 0 {
						inside++
					}
				}
			}
			sequence, last, ok := ended(e)
			if !ok {
				continue
			}
			for _, l := range last.Lost {
				lost++
				attempt := fmt.Sprintf("%s-%d-%d", run, sequence, l.Delivery)
				if at, ok := began[attempt]; ok && at.After(l.At.Time) {
					t.Errorf("attempt %s began at %s, and was lost at %s (%s)", attempt, at, l.At, cmp.Or(l.Why, "?"))
				}
			}
		}
		for request, to := range f.signals {
			if to == id && counts[request] != 1 {
				t.Errorf("signal %s was acknowledged and is recorded %d times", request, counts[request])
			}
		}
	}
	t.Logf(
		"%d runs, %d steps, %d with the turn that followed, %d of them in a session; %d deliveries lost; %d signals; on %v",
		len(f.runs), steps, turns, inside, lost, len(f.signals), workers,
	)
	f.lost.Add(int64(lost))
	if turns == 0 || inside == 0 {
		t.Error("no activity result came with an eager workflow task")
	}
}
