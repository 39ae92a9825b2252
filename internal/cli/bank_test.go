package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func registerBank(r *worker.Registry) {
	r.Workflow("bank", bank)
	r.Workflow("bank.branch", bankBranch)
}

// bankBooks is the input of the bank's next run: the number of times that the bank received each message.
type bankBooks struct {
	Signals, Updates, Children map[string]int
}

// bank handles signals and updates, starts a child in each of its runs and ends the child of the previous run. Every
// three steps it continues as new. When it is closed, it returns the messages that it received.
func bank(ctx workflow.Context, books bankBooks) (bankBooks, error) {
	if books.Signals == nil {
		books = bankBooks{map[string]int{}, map[string]int{}, map[string]int{}}
	}
	closed := false
	workflow.HandleUpdate(ctx, "quick", func(_ workflow.Context, id string) (string, error) {
		books.Updates[id]++
		return id, nil
	})
	workflow.HandleUpdate(ctx, "slow", func(ctx workflow.Context, id string) (string, error) {
		if err := workflow.ExecuteActivity(ctx, "ledger.append", 0).Get(ctx, nil); err != nil {
			return "", err
		}
		books.Updates[id]++
		return id, nil
	})
	workflow.HandleUpdate(ctx, "close", func(workflow.Context) error {
		closed = true
		return nil
	})
	signals := func() error {
		for {
			var id string
			if ok, err := workflow.Signal(ctx, "deposit").ReceiveAsync(&id); err != nil || !ok {
				return err
			}
			books.Signals[id]++
		}
	}
	n := workflow.Info(ctx).RunNumber
	branch := func(n int64) string { return fmt.Sprint(workflow.Info(ctx).WorkflowID, "-branch-", n) }
	workflow.StartChild(workflow.WithChild(ctx, workflow.ChildOptions{
		WorkflowID: branch(n), ParentClose: workflow.TerminateHard,
	}), "bank.branch", branch(n), 0)
	if n > 1 {
		before := workflow.AttachChild(ctx, branch(n-1))
		if err := before.Signal(ctx, "end"); err != nil {
			return books, err
		}
		id, err := workflow.Await[string](ctx, before)
		if err != nil {
			return books, err
		}
		books.Children[id]++
	}
	for range 3 {
		if err := workflow.ExecuteActivity(ctx, "ledger.append", 1).Get(ctx, nil); err != nil {
			return books, err
		}
		if err := signals(); err != nil {
			return books, err
		}
	}
	if !closed {
		return books, workflow.ContinueAsNew(ctx, books)
	}
	if err := workflow.Until(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		return books, err
	}
	return books, signals()
}

// bankBranch continues as new once and then waits for the end signal.
func bankBranch(ctx workflow.Context, id string, run int) (string, error) {
	if run == 0 {
		return "", workflow.ContinueAsNew(ctx, id, 1)
	}
	return id, workflow.Signal(ctx, "end").Receive(ctx, nil)
}

// banks sends messages to chains of runs while the test kills their workers and apps.
type banks struct {
	*plant
	apps         []*process
	at           []client
	ids          []string
	mu           sync.Mutex          // guards the fields below
	acknowledged map[string][]string // acknowledged messages by bank
	updates      map[string][]string
	known        map[string]bool // all sent messages, acknowledged or not
}

func (b *banks) serves(i int) {
	b.t.Helper()
	b.apps[i] = launch(b.t, b.dir, b.fleet.app.with(env{
		"SOJOURN_ADDR": b.at[i].base[len("http://"):], "SOJOURN_DATA_DIR": fmt.Sprint(b.dir, "/app-", i),
	}), "app")
	b.at[i].up()
}

// asks repeats a request at any app until it is acknowledged. Its ID makes the repetition safe.
func (b *banks) asks(ctx context.Context, path string, body map[string]any) (protocol.UpdateResponse, bool) {
	for ctx.Err() == nil {
		var a protocol.UpdateResponse
		patience, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		status, raw, err := b.at[rand.IntN(len(b.at))].call(patience, http.MethodPost, path, body)
		done()
		switch {
		case err == nil && status < 300:
			if err := json.Unmarshal(raw, &a); err != nil {
				b.t.Errorf("%s: %s: %v", path, raw, err)
			}
			return a, true
		case err == nil && status != http.StatusServiceUnavailable:
			b.t.Errorf("%s: %d %.300s", path, status, raw)
			return a, false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return protocol.UpdateResponse{}, false
}

// customer sends messages to a bank.
func (b *banks) customer(ctx context.Context, bank string) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprint(bank, "-", n)
		path, body := "/api/workflows/"+bank+"/signal/deposit", map[string]any{"input": []any{id}, "request_id": id}
		verb := []string{"", "quick", "slow"}[n%3]
		if verb != "" {
			path = "/api/workflows/" + bank + "/update/" + verb
			body["wait_for"], body["wait_timeout_seconds"] = "accepted", 5
		}
		b.mu.Lock()
		b.known[id] = true
		b.mu.Unlock()
		if _, ok := b.asks(ctx, path, body); ok {
			b.mu.Lock()
			if verb == "" {
				b.acknowledged[bank] = append(b.acknowledged[bank], id)
			} else {
				b.updates[bank] = append(b.updates[bank], id)
			}
			b.mu.Unlock()
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// closes ends a bank and compares its result with the acknowledged messages.
func (b *banks) closes(id string) {
	t := b.t
	t.Helper()
	ctx, done := context.WithTimeout(t.Context(), ceiling)
	defer done()
	if _, ok := b.asks(ctx, "/api/workflows/"+id+"/update/close", map[string]any{
		"input": []any{}, "request_id": id + "-close", "wait_for": "accepted",
	}); !ok {
		t.Fatalf("%s was not told to close", id)
	}
	until(t, id+" has ended", func() bool { return b.at[0].describe(id).Terminal })
	v := b.at[0].describe(id)
	var books bankBooks
	if err := json.Unmarshal(v.Output, &books); err != nil || v.Status != "completed" {
		t.Fatalf("%s is %s with %s: %v", id, v.Status, v.Output, err)
	}
	for what, c := range map[string]struct {
		acknowledged []string
		seen         map[string]int
	}{"signal": {b.acknowledged[id], books.Signals}, "update": {b.updates[id], books.Updates}} {
		for _, request := range c.acknowledged {
			if c.seen[request] != 1 {
				t.Errorf("%s %s was acknowledged, and %s has seen it %d times", what, request, id, c.seen[request])
			}
		}
		for request, n := range c.seen {
			if n != 1 || !b.known[request] {
				t.Errorf("%s has seen %s %s %d times", id, what, request, n)
			}
		}
	}
	for n := int64(1); n <= v.RunCount; n++ {
		child := fmt.Sprint(id, "-branch-", n)
		wants, times := "completed", 1
		if n == v.RunCount { // the close policy ended it
			wants, times = "terminated", 0
		}
		until(t, child+" has ended", func() bool { return b.at[0].describe(child).Terminal })
		if got := b.at[0].describe(child).Status; got != wants || books.Children[child] != times {
			t.Errorf("%s is %s, and its parent has seen it end %d times", child, got, books.Children[child])
		}
	}
	steps, lines := 0, map[string][]line{}
	for _, l := range ledger(t, b.ledger) {
		lines[l.Run] = append(lines[l.Run], l)
	}
	names := worker.NewRegistry()
	register(names)
	def, err := workflow.NewDefinition("bank", bank)
	if err != nil {
		t.Fatal(err)
	}
	var all struct{ Runs []protocol.RunView }
	b.at[0].must(http.MethodGet, "/api/workflows/"+id+"/runs", nil, &all)
	for _, r := range all.Runs {
		events := b.at[0].history(id, r.RunID, nil)
		checkLedger(t, events, lines[r.RunID])
		steps += len(lines[r.RunID])
		if err := replay.Events(def, replay.Options{Names: names, CompareArguments: true}, events); err != nil {
			t.Errorf("replay of run %d of %s: %v", r.RunNumber, id, err)
		}
	}
	t.Logf("%s: %d runs, %d steps, %d signals and %d updates", id, len(all.Runs), steps, len(books.Signals), len(books.Updates))
}

// Banks are chains of runs that continue as new all the time, with children, signals and updates, while the test kills
// their workers and apps. Each acknowledged message is received once, each child ends once and is reported once, and
// the open child at the end of the chain ends with the chain. SOJOURN_TEST_CRASHES increases the number of kills.
func TestChainsUnderKills(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := &banks{acknowledged: map[string][]string{}, updates: map[string][]string{}, known: map[string]bool{}}
			b.plant = byDefault(t, kind == "postgres")
			b.plant.app.kill()
			b.at = []client{b.client}
			if kind == "postgres" {
				second := b.client
				second.base = "http://" + address(t)
				b.at = append(b.at, second)
			}
			var to []string
			b.apps = make([]*process, len(b.at))
			for i, c := range b.at {
				b.serves(i)
				to = append(to, c.base)
			}
			workers := []string{"one", "two"}
			for _, id := range workers {
				b.begin(id, env{"SOJOURN_APP_URL": strings.Join(to, ",")})
			}
			ctx, stop := context.WithCancel(t.Context())
			var customers sync.WaitGroup
			for i := range 3 {
				id := fmt.Sprint("bank-", i)
				b.ids = append(b.ids, id)
				b.client.start(id, "bank", bankBooks{})
				customers.Go(func() { b.customer(ctx, id) })
			}
			for n := range kills(t) {
				time.Sleep(time.Duration(200+rand.IntN(500)) * time.Millisecond)
				if i := n % (len(workers) + len(b.apps)); i < len(workers) {
					b.node[workers[i]].kill()
					b.begin(workers[i], env{"SOJOURN_APP_URL": strings.Join(to, ",")})
				} else {
					b.apps[i-len(workers)].kill()
					b.serves(i - len(workers))
				}
			}
			stop()
			customers.Wait()
			for _, id := range b.ids {
				b.closes(id)
			}
		})
	}
}
