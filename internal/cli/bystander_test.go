package cli_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// Bad tasks run with innocent ones in real processes: a bad task must not fail the others, nor repeat them more often
// than the loss of its process requires. The tests assert only counts.

func registerBystanders(r *worker.Registry) {
	r.Activity("bystander.innocent", innocentItem)
	for kind, do := range badTasks {
		r.Activity("bystander."+kind, func(ctx context.Context) (string, error) {
			me := activity.Info(ctx).WorkerID
			if err := writeLedger(ctx, "bad"); err != nil {
				return "", err
			}
			for {
				if _, err := os.Stat(wordFor(os.Getenv(holdPath), "bad", me)); err == nil {
					return do(ctx)
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
}

// innocentItem is workItem under another name: workflow code that names workItem means "killed.work".
func innocentItem(ctx context.Context, item string, hold bool) (string, error) {
	return workItem(ctx, item, hold)
}

// badTasks are the functions of tasks that do harm while they run with others.
var badTasks = map[string]func(context.Context) (string, error){
	"kills its process": func(context.Context) (string, error) {
		return "", syscall.Kill(os.Getpid(), syscall.SIGKILL)
	},
	"exits in a goroutine": func(context.Context) (string, error) {
		go os.Exit(3)
		select {}
	},
	"runs out of memory": func(context.Context) (string, error) {
		// The test's check of output must not see the runtime's crash message.
		if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
			_ = syscall.Dup3(int(null.Fd()), 2, 0)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: 64 << 20, Max: 64 << 20}); err != nil {
			return "", err
		}
		var all [][]byte
		for {
			all = append(all, make([]byte, 64<<20))
			all[len(all)-1][0] = 1
		}
	},
	"deadlocks": func(context.Context) (string, error) {
		var mu sync.Mutex
		mu.Lock()
		mu.Lock()
		return "", nil
	},
	"returns 2 MB": func(context.Context) (string, error) { return strings.Repeat("x", 2<<20+1000), nil },
	"floods logs": func(ctx context.Context) (string, error) {
		for i := range 200_000 {
			activity.Logger(ctx).Info("a line of a flood", "number", i)
		}
		return "", nil
	},
	"reports an invalid outcome": func(context.Context) (string, error) {
		return "", errors.New("a NUL \x00 and no UTF-8 \xff\xfe")
	},
	"leaks goroutines": func(context.Context) (string, error) {
		for range 20_000 {
			go func() { select {} }()
		}
		return "", nil
	},
}

// endsProcesses are the bad tasks that end the process they run in.
var endsProcesses = map[string]bool{"kills its process": true, "exits in a goroutine": true, "runs out of memory": true}

// supervise restarts a worker whenever it ends, until the end of the test.
func (p *plant) supervise(id string) {
	p.t.Helper()
	p.begin(id, nil)
	first := p.node[id]
	over := make(chan struct{})
	var running sync.WaitGroup
	more := env{"SOJOURN_WORKER_ID": id, "SOJOURN_DATA_DIR": p.t.TempDir()}
	running.Go(func() {
		for w := first; ; w = p.startWorker(more) {
			select {
			case <-w.ended:
			case <-over:
				return
			}
			select {
			case <-over:
				return
			default:
			}
		}
	})
	p.t.Cleanup(func() {
		close(over)
		running.Wait()
	})
}

// activity starts an activity run.
func (p *plant) activity(id, typ string, input ...any) protocol.ActivityResponse {
	p.t.Helper()
	if input == nil {
		input = []any{}
	}
	var a protocol.ActivityResponse
	p.client.must(http.MethodPost, "/api/sojourn/activities", map[string]any{
		"workflow_id": id, "activity_type": typ, "input": input, "start_to_close_timeout": 20,
	}, &a)
	return a
}

func TestInnocentTasksNextToABadOne(t *testing.T) {
	t.Parallel()
	for kind := range badTasks {
		onDatabases(t, kind, func(p *plant) {
			const innocents = 20
			p.supervise("A")
			p.supervise("B")
			runs := map[string]string{}
			item := func(i int) string { return fmt.Sprint("innocent-", i) }
			for i := range innocents {
				runs[item(i)] = p.activity(item(i), "bystander.innocent", item(i), true).RunID
			}
			where := map[string]string{}
			for i := range innocents {
				where[item(i)] = p.noted(item(i), 1)[0].Worker
			}
			bad := p.activity("bad", "bystander."+kind)
			worker := p.noted("bad", 1)[0].Worker
			done := func(name string) []history.Event { return p.client.completed(name, runs[name]) }
			elsewhere := 0
			for name, w := range where { // the tasks in the other process end while the bad task is held back
				if w == worker {
					continue
				}
				elsewhere++
				p.let(name, w)
				done(name)
			}
			for _, w := range []string{"A", "B"} {
				p.let("bad", w)
			}
			// the other tasks of its process run again, and it does not run concurrently with them
			if endsProcesses[kind] {
				p.noted("bad", 2)
				for name, w := range where {
					if w == worker {
						p.noted(name, 2)
					}
				}
			}
			for name := range where {
				p.let(name, "A")
				p.let(name, "B")
			}
			for name, w := range where {
				events, ran := done(name), len(p.lines(name))
				most := 1
				if endsProcesses[kind] && w == worker {
					most = 2
				}
				if ran > most {
					p.t.Errorf("%s ran %d times on %s, the bad task on %s", name, ran, w, worker)
				}
				if got := types(events); got != "WorkflowStarted ActivityScheduled ActivityCompleted WorkflowCompleted" {
					p.t.Errorf("the history of %s: %s", name, got)
				}
				if second := p.lines(name + " done"); len(second) != 1 {
					p.t.Errorf("%s was done %d times", name, len(second))
				}
			}
			p.t.Logf("%d of %d ran in the other process", elsewhere, innocents)
			if !endsProcesses[kind] {
				return
			}
			events := p.client.history("bad", bad.RunID, func(events []history.Event) bool {
				return events[len(events)-1].Data.Type() == "WorkflowFailed"
			})
			failed, _ := events[len(events)-2].Data.(*history.ActivityFailed)
			if failed == nil || failed.Category != "poison" {
				p.t.Fatalf("the bad task ends with %+v", events[len(events)-2].Data)
			}
			blamed := 0
			for _, l := range failed.Lost {
				if l.Verdict == "blamed" {
					blamed++
				}
			}
			if blamed != 3 {
				p.t.Errorf("it is blamed %d times: %+v", blamed, failed.Lost)
			}
		})
	}
}
