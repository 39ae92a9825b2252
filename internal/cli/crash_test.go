package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// checkLedger compares the activities in a run's history with the ledger. An activity has exactly one outcome; the
// ledger contains its attempt under the number in history; this is the activity's last attempt, and no attempt ran
// twice.
func checkLedger(t *testing.T, events []history.Event, lines []line) {
	t.Helper()
	ran := map[string][]line{}
	seen := map[string]bool{}
	for _, l := range lines {
		ran[l.Execution] = append(ran[l.Execution], l)
		if seen[l.AttemptID] {
			t.Errorf("attempt %s was run twice", l.AttemptID)
		}
		seen[l.AttemptID] = true
	}
	ended := outcomes(events)
	for _, e := range events {
		d, ok := e.Data.(*history.ActivityScheduled)
		if !ok {
			continue
		}
		if n := len(ended[d.ExecutionID]); n != 1 {
			t.Errorf("activity %s has %d outcomes, want 1", d.ExecutionID, n)
			continue
		}
		mine := ran[d.ExecutionID]
		switch o := ended[d.ExecutionID][0].(type) {
		case *history.ActivityCompleted:
			if len(mine) == 0 {
				t.Errorf("activity %s is recorded as completed and never ran", d.ExecutionID)
				continue
			}
			last := mine[len(mine)-1]
			if last.AttemptID != o.AttemptID || last.Attempt != o.Number {
				t.Errorf("activity %s is recorded as completed by attempt %d (%s), and the last one that ran is %d (%s)",
					d.ExecutionID, o.Number, o.AttemptID, last.Attempt, last.AttemptID)
			}
			for i, l := range mine {
				if i > 0 && l.Attempt <= mine[i-1].Attempt {
					t.Errorf("activity %s: attempt %d ran after attempt %d", d.ExecutionID, l.Attempt, mine[i-1].Attempt)
				}
			}
			if o.Number > len(o.Lost)+1 || len(mine) > o.Number {
				t.Errorf(
					"activity %s: attempt %d with %d lost ones, and the ledger has %d lines", d.ExecutionID, o.Number, len(o.Lost),
					len(mine),
				)
			}
		case *history.ActivityFailed:
			if o.Category != "poison" || len(o.Lost) < 3 {
				t.Errorf("activity %s failed: %+v", d.ExecutionID, o)
			}
		case *history.ActivityCancelled: // a handler waited for it and starts again in the next run
			if _, continued := events[len(events)-1].Data.(*history.WorkflowContinuedAsNew); !continued {
				t.Errorf("activity %s was cancelled", d.ExecutionID)
			}
		default:
			t.Errorf("activity %s ended with %s", d.ExecutionID, o.Type())
		}
	}
}

// kills returns the number of kills of a crash test.
func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv(crashes)
	if text == "" {
		return 5
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// load runs clients that start and signal workflows, and records acknowledged calls.
type load struct {
	c       client
	stop    context.CancelFunc
	clients sync.WaitGroup

	mu       sync.Mutex        // guards the fields below
	started  map[string]string // workflow ID → run ID as acknowledged; empty without a response
	signals  map[string]bool   // request id → whether the signal was acknowledged
	answered int
	moved    chan struct{} // closed and replaced at each response
}

const (
	loadSteps   = 4
	loadSignals = 2
)

// press starts the load.
func press(c client, clients int) *load {
	ctx, stop := context.WithCancel(c.t.Context())
	l := &load{c: c, stop: stop, started: map[string]string{}, signals: map[string]bool{}, moved: make(chan struct{})}
	for i := range clients {
		l.clients.Go(func() { l.client(ctx, i) })
	}
	return l
}

// client starts a workflow, signals it and waits for its end, repeatedly.
func (l *load) client(ctx context.Context, i int) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("load-%d-%d", i, n)
		var a struct {
			RunID string `json:"run_id"`
		}
		ok := l.send(
			ctx, "/api/workflows",
			map[string]any{"workflow_id": id, "workflow_type": "ledger", "input": []any{loadSteps, loadSignals}}, &a,
		)
		l.record(func() { l.started[id] = a.RunID })
		if !ok {
			continue
		}
		for _, request := range requests(id) {
			ok := false
			for !ok && ctx.Err() == nil { // with a request ID it is safe to repeat it
				ok = l.send(
					ctx, "/api/workflows/"+id+"/signal/go", map[string]any{"input": []any{request}, "request_id": request}, nil,
				)
			}
			l.record(func() { l.signals[request] = ok })
		}
		l.follow(ctx, id, a.RunID)
	}
}

// requests returns the IDs of the signals that a workflow receives.
func requests(id string) []string {
	all := make([]string, loadSignals)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%d", id, i)
	}
	return all
}

// follow waits for the end of a run, or of the process.
func (l *load) follow(ctx context.Context, id, run string) {
	for token := ""; ctx.Err() == nil; {
		status, raw, err := l.c.call(ctx, http.MethodGet,
			"/api/workflows/"+id+"/runs/"+run+"/history?wait_new_event=true&next_page_token="+url.QueryEscape(token), nil)
		var page struct {
			Next *string `json:"next_page_token"`
		}
		if err != nil || status != http.StatusOK || json.Unmarshal(raw, &page) != nil || page.Next == nil {
			return
		}
		token = *page.Next
	}
}

func (l *load) record(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn()
	l.answered++
	close(l.moved)
	l.moved = make(chan struct{})
}

// send makes one call and reports whether it was acknowledged. If it was not, send waits until the app is ready again.
func (l *load) send(ctx context.Context, path string, body, out any) bool {
	status, raw, err := l.c.call(context.WithoutCancel(ctx), http.MethodPost, path, body)
	if err == nil && status < 300 && (out == nil || json.Unmarshal(raw, out) == nil) {
		return true
	}
	if err == nil && status != http.StatusServiceUnavailable {
		l.c.t.Errorf("POST %s: %d %.300s", path, status, raw)
	}
	for ctx.Err() == nil {
		if status, _, err := l.c.call(ctx, http.MethodGet, "/readyz", nil); err == nil && status == http.StatusOK {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// progress waits for n more responses.
func (l *load) progress(n int) {
	l.c.t.Helper()
	late := time.After(ceiling)
	l.mu.Lock()
	want := l.answered + n
	for l.answered < want {
		moved := l.moved
		l.mu.Unlock()
		select {
		case <-moved:
		case <-late:
			l.c.t.Fatal("the load does not go on")
		}
		l.mu.Lock()
	}
	l.mu.Unlock()
}

// end stops the load and checks that no acknowledged call is lost, and that the ledger agrees.
func (l *load) end(path string) {
	t := l.c.t
	t.Helper()
	l.stop()
	l.clients.Wait()
	l.c.up()
	until(t, "a worker is there", func() bool {
		for _, w := range l.c.workers() {
			if w.Status == protocol.WorkerActive {
				return true
			}
		}
		return false
	})
	ended := map[string][]history.Event{} // events by run
	repaired, unanswered, repeated := 0, 0, 0
	for id, run := range l.started {
		status, raw, err := l.c.call(t.Context(), http.MethodGet, "/api/workflows/"+id, nil)
		if run == "" {
			unanswered++
			if status == http.StatusNotFound {
				continue // its start was not acknowledged
			}
		}
		var v protocol.RunView
		if err != nil || status != http.StatusOK || json.Unmarshal(raw, &v) != nil || run != "" && v.RunID != run {
			t.Errorf("start of %s was acknowledged as run %q, and is: %d %.300s %v", id, run, status, raw, err)
			continue
		}
		if v.Quarantined != nil { // its worker was killed three times during one workflow task
			l.c.must(http.MethodPost, "/api/workflows/"+id+"/repair", map[string]any{}, nil)
			repaired++
		}
		recorded := l.signalsOf(l.c.history(id, v.RunID, func([]history.Event) bool { return true }))
		for _, request := range requests(id) {
			if l.signals[request] && recorded[request] != 1 {
				t.Errorf("signal %s was acknowledged and is recorded %d times", request, recorded[request])
			}
			if !v.Terminal { // a repeated signal is recorded once
				l.c.must(
					http.MethodPost, "/api/workflows/"+id+"/signal/go", map[string]any{"input": []any{request}, "request_id": request},
					nil,
				)
			}
		}
		events := l.c.completed(id, v.RunID)
		for request, n := range l.signalsOf(events) {
			if n != 1 {
				t.Errorf("signal %s is recorded %d times", request, n)
			}
		}
		ended[v.RunID] = events
	}
	lines := map[string][]line{}
	for _, x := range ledger(t, path) {
		lines[x.Run] = append(lines[x.Run], x)
	}
	for run, events := range ended {
		checkLedger(t, events, lines[run])
		repeated += len(lines[run]) - loadSteps
	}
	t.Logf(
		"%d runs, %d of them without an answer, %d repaired; %d attempts cut off and made again", len(l.started), unanswered,
		repaired, repeated,
	)
}

func (l *load) signalsOf(events []history.Event) map[string]int {
	n := map[string]int{}
	for _, e := range events {
		if d, ok := e.Data.(*history.SignalReceived); ok {
			n[d.RequestID]++
		}
	}
	return n
}

// killer is a process that is killed and started again.
type killer struct {
	start func() *process
	p     *process
}

func (k *killer) strike() {
	k.p.kill()
	k.p = k.start()
}

// crash kills the processes one after the other under load, at random points, and sometimes a process that has just
// been started.
func crash(t *testing.T, c client, path string, processes ...*killer) {
	for _, k := range processes {
		k.p = k.start()
	}
	c.up()
	l := press(c, 6)
	for n := range kills(t) {
		l.progress(1 + rand.IntN(60))
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // any point between two responses
		k := processes[n%len(processes)]
		k.strike()
		if rand.IntN(4) == 0 {
			time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond) // during its start
			k.strike()
		}
		c.up()
		// Let the interrupted tasks complete before the next kill. A task that several kills interrupt is failed as
		// poison, which another test covers.
		l.progress(12)
	}
	l.end(path)
}

func TestCrashUnderLoadLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	t.Run("sqlite, app and worker in one process", func(t *testing.T) {
		t.Parallel()
		dir, addr := t.TempDir(), address(t)
		path := filepath.Join(dir, "ledger")
		e := env{ledgerPath: path, "SOJOURN_AUTH": "none", "SOJOURN_ADDR": addr, "SOJOURN_ISOLATION": "none"}
		crash(t, client{t: t, base: "http://" + addr}, path, &killer{start: func() *process { return launch(t, dir, e) }})
	})
	t.Run("postgres, app and worker apart", func(t *testing.T) {
		t.Parallel()
		dir, addr := t.TempDir(), address(t)
		path := filepath.Join(dir, "ledger")
		app := env{"SOJOURN_AUTH": "none", "SOJOURN_ADDR": addr, "SOJOURN_DATABASE_URL": apptest.Postgres(t)}
		worker := env{
			ledgerPath: path, "SOJOURN_APP_URL": "http://" + addr, "SOJOURN_WORKER_ID": "w", "SOJOURN_ISOLATION": "none",
		}
		crash(t, client{t: t, base: "http://" + addr}, path,
			&killer{start: func() *process { return launch(t, dir, app, "app") }},
			&killer{start: func() *process { return launch(t, dir, worker, "worker") }})
	})
}
