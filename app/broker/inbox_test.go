package broker_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// signalled is a signal of a test, with its name and value.
type signalled struct{ name, value string }

// chainOfRuns is one workflow whose runs continue as new, driven like a Go worker. It tracks which signals the code has
// not received.
type chainOfRuns struct {
	*app
	other   *app // the app that receives the signals
	id      string
	backlog []signalled // signals not received, in the order of their arrival
	sent    int
	ranges  int                    // signals that each run inherited, by run
	runs    map[string][]signalled // the ID of each signal, which must not change
	ids     map[signalled]string   // signal IDs, which do not change
}

func (a *app) chainOfRuns(other *app, id string) *chainOfRuns {
	a.t.Helper()
	must[protocol.RegisterResponse](a.t)(a.Register(a.t.Context(), protocol.RegisterRequest{
		WorkerID: "go", TaskQueue: "default", WorkflowTypes: []string{"wf"}, AnyActivity: true, Runtime: "go",
	}))
	run := a.start(id).RunID
	return &chainOfRuns{
		app: a, other: other, id: id, runs: map[string][]signalled{run: nil}, ids: map[signalled]string{},
	}
}

// signal sends n signals of a name, with values of the given size.
func (c *chainOfRuns) signal(name string, n, size int) {
	c.t.Helper()
	for range n {
		c.sent++
		s := signalled{name, fmt.Sprintf("%d%s", c.sent, strings.Repeat("x", size))}
		must[protocol.CommandReceipt](c.t)(c.other.Signal(c.t.Context(), protocol.SignalRequest{
			Target: protocol.Target{WorkflowID: c.id}, SignalName: name, Input: fmt.Appendf(nil, `[%q]`, s.value),
		}))
		c.backlog = append(c.backlog, s)
	}
}

// receive removes the first n signals of a name from the backlog, as if the code received them.
func (c *chainOfRuns) receive(name string, n int) {
	c.backlog = slices.DeleteFunc(c.backlog, func(s signalled) bool {
		if s.name != name || n == 0 {
			return false
		}
		n--
		return true
	})
}

// next leases the workflow task, calls meanwhile, which sends and receives signals, then continues as new and checks
// the history of the new run.
func (c *chainOfRuns) next(meanwhile func()) (run string) {
	c.t.Helper()
	task := c.lease()
	of := task.Workflow.RunID
	meanwhile()
	events := c.historyOf(of)
	var left []int64
	unreceived := c.backlog
	for _, e := range events {
		d, ok := e.Data.(*history.SignalReceived)
		if !ok || len(unreceived) == 0 || e.Seq > task.Workflow.TotalEvents || signalOf(c.t, d) != unreceived[0] {
			continue
		}
		left, unreceived = append(left, e.Seq), unreceived[1:]
	}
	command := protocol.Command{Type: protocol.ContinueAsNew, Buffers: true, Unreceived: left}
	// A worker that has fetched none of the omitted signals names them as a range.
	if o := task.Workflow.OmittedSignals; o != nil {
		isOmitted := func(e int64) bool { return e >= o.First && e <= o.Last }
		rest := slices.DeleteFunc(slices.Clone(left), isOmitted)
		if int64(len(left)-len(rest)) == o.Last-o.First+1 {
			command.Unreceived, command.UnreceivedRange = rest, o
			c.ranges++
		}
	}
	c.ok(c.decide(task, command))
	run = must[protocol.RunView](c.t)(c.Describe(c.t.Context(), protocol.Target{WorkflowID: c.id})).RunID
	c.runs[run] = slices.Clone(c.backlog)
	c.check(run)
	return run
}

// lease leases the workflow task of the chain, as a worker that fetches inherited signals. It checks that the events in
// the task and the omitted signals together are the history.
func (c *chainOfRuns) lease() *protocol.Task {
	c.t.Helper()
	wait := int64(30)
	p := must[protocol.PollResponse](c.t)(c.Poll(c.t.Context(), protocol.PollRequest{
		WorkerID: "go", Kinds: []protocol.TaskKind{protocol.KindWorkflow}, Timeout: &wait, PagedSignals: true, PageSize: 1000,
	}))
	if len(p.Tasks) != 1 || p.Tasks[0].Workflow.WorkflowID != c.id {
		c.t.Fatalf("the poll gets %+v", p)
	}
	task := p.Tasks[0].Workflow
	events := slices.Clone(task.Events)
	if o := task.OmittedSignals; o != nil {
		at := slices.IndexFunc(events, func(e history.Event) bool { return e.Seq > o.Last })
		if at < 0 {
			at = len(events)
		}
		for after := o.First - 1; after < o.Last; after = events[at-1].Seq {
			page := must[protocol.HistoryPage](c.t)(c.HistoryPage(c.t.Context(), protocol.HistoryRequest{
				TaskID: task.TaskID, Owner: "go", Attempt: task.Attempt, After: after, PageSize: int(min(11, o.Last-after)),
			}))
			events = slices.Insert(events, at, page.Events...)
			at += len(page.Events)
		}
	}
	if all := c.historyOf(task.RunID); !reflect.DeepEqual(events, all[:len(events)]) || len(events) != len(all) {
		c.t.Fatalf("the task has %d events, omitting %+v; the history has %d", len(task.Events), task.OmittedSignals, len(all))
	}
	return &p.Tasks[0]
}

// check compares the history of a run with the signals that it inherited.
func (c *chainOfRuns) check(run string) {
	c.t.Helper()
	want, events := c.runs[run], c.historyOf(run)
	started, _ := events[0].Data.(*history.WorkflowStarted)
	if started == nil || started.CarriedSignals != len(want) || len(events) < len(want)+1 {
		c.t.Fatalf("run %s starts with %+v and %d events, want %d signals", run, started, len(events), len(want))
	}
	for i, e := range events {
		if e.Seq != int64(i+1) {
			c.t.Fatalf("event %d is at place %d", e.Seq, i+1)
		}
	}
	for i, s := range want {
		e := events[i+1]
		d, ok := e.Data.(*history.SignalReceived)
		if !ok || signalOf(c.t, d) != s || d.SignalID == "" || !e.At.Equal(events[0].At.Time) || e.TaskID != "" ||
			d.PayloadCodec == "" {
			c.t.Fatalf("event %d of run %s is %+v, want signal %+v", e.Seq, run, e.Data, s)
		}
		if id := c.ids[s]; id != "" && id != d.SignalID {
			c.t.Fatalf("signal %+v has the ID %s, in an earlier run %s", s, d.SignalID, id)
		}
		c.ids[s] = d.SignalID
	}
}

func signalOf(t testing.TB, d *history.SignalReceived) signalled {
	t.Helper()
	var value string
	if err := payload.DecodeArgs(payload.Payload{Blob: d.Value}, &value); err != nil {
		t.Fatal(err)
	}
	return signalled{d.SignalName, value}
}

// historyOf reads the whole history in pages of several sizes and as outlines, and checks that all agree.
func (c *chainOfRuns) historyOf(run string) (all []history.Event) {
	c.t.Helper()
	for _, size := range []int{1000, 7} {
		var events []history.Event
		q := protocol.HistoryQuery{Target: protocol.Target{WorkflowID: c.id, RunID: run}, PageSize: size}
		for {
			page := must[protocol.HistoryPage](c.t)(c.History(c.t.Context(), q))
			events = append(events, page.Events...)
			if page.NextPageToken == nil {
				break
			}
			q.PageToken = *page.NextPageToken
		}
		if all != nil && !reflect.DeepEqual(all, events) {
			c.t.Fatalf("run %s has %d events in large pages and other %d events in small pages", run, len(all), len(events))
		}
		all = events
	}
	outlines, _, err := c.Outlines(c.t.Context(), protocol.HistoryQuery{
		Target: protocol.Target{WorkflowID: c.id, RunID: run}, PageSize: 1000,
	}, protocol.ValuesPreview)
	if err != nil || len(outlines) != min(len(all), 1000) {
		c.t.Fatalf("run %s has %d events and %d outlines: %v", run, len(all), len(outlines), err)
	}
	for i, o := range outlines {
		if o.Seq != all[i].Seq || o.Type != all[i].Type() || !o.At.Equal(all[i].At.Time) {
			c.t.Fatalf("the outline of event %d is %+v", all[i].Seq, o)
		}
	}
	return all
}

func (c *chainOfRuns) deleteRun(run string) {
	c.t.Helper()
	must[protocol.DeletedRun](c.t)(c.DeleteRun(c.t.Context(), protocol.RunDeletion{
		Target: protocol.Target{WorkflowID: c.id, RunID: run},
	}))
	delete(c.runs, run)
}

// stored returns the number of rows, and of bytes in the columns, of a table.
func stored(t *testing.T, database, columns, table string) (rows, bytes int64) {
	t.Helper()
	err := separateConnection(t, database).QueryRow(
		"SELECT count(*), coalesce(sum(length("+columns+")), 0) FROM "+table,
	).Scan(&rows, &bytes)
	if err != nil {
		t.Fatal(err)
	}
	return rows, bytes
}

// The size of what a run that continues as new stores does not depend on the number of signals that the next run
// inherits.
func TestARunStoresInheritedSignalsIndependentlyOfTheirNumber(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		var rows, bytes, added [2]int64
		for i, backlog := range []int{50, 400} {
			c := a.chainOfRuns(a, fmt.Sprint("of", backlog))
			c.signal("s", backlog, 100)
			c.next(func() {}) // this run adds the signals to the inbox
			c.next(func() { c.receive("s", 1) })
			size := func() (n int64) {
				_, events := stored(t, database, "payload) + length(coalesce(heads, '')", "events")
				_, runs := stored(t, database, "state", "runs")
				_, items := stored(t, database, "body", "items")
				_, inbox := stored(t, database, "body", "signal_inbox")
				return events + runs + items + inbox
			}
			before, was := a.store.Stats().Rows, size()
			inbox, _ := stored(t, database, "body", "signal_inbox")
			for range 3 {
				c.next(func() { c.receive("s", 1) })
			}
			rows[i], bytes[i] = a.store.Stats().Rows-before, size()-was
			added[i], _ = stored(t, database, "body", "signal_inbox")
			added[i] -= inbox
			c.ok(c.decide(c.task("go", protocol.KindWorkflow, c.id), done()))
		}
		// Allow a few more digits in the numbers of signals and events, and a few rows that the app writes for other
		// reasons.
		if rows[1]-rows[0] > 10 || bytes[1]-bytes[0] > 200 || added != [2]int64{} {
			t.Errorf("three runs with a backlog of 50 wrote %d rows and %d bytes, with 400 %d and %d; added %v",
				rows[0], bytes[0], rows[1], bytes[1], added)
		}
	})
}

// Signals of several names arrive and are received in any order, also while a run continues as new. Each run inherits
// exactly the signals that were not received, also if earlier runs are deleted and another app receives the signals.
func TestEachRunInheritsTheSignalsThatWereNotReceived(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := twoApps(t, database)
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 1))
		t.Log("seed", seed)
		c := a.chainOfRuns(b, "random")
		names := []string{"x", "y", "z"}
		act := func() {
			for range random.IntN(3) {
				c.signal(names[random.IntN(3)], random.IntN(12), random.IntN(300))
			}
			c.receive(names[random.IntN(3)], random.IntN(6))
		}
		c.signal("y", 40, 10)
		for step := range 25 {
			act()
			run := c.next(func() {
				if step%9 == 8 {
					c.backlog = nil
				}
				if random.IntN(2) == 0 {
					c.signal(names[random.IntN(3)], random.IntN(4), 10)
				}
			})
			closed := slices.DeleteFunc(slices.Sorted(maps.Keys(c.runs)), func(id string) bool { return id == run })
			if random.IntN(2) == 0 {
				c.deleteRun(closed[random.IntN(len(closed))])
			}
			for id := range c.runs {
				c.check(id)
			}
		}
		if c.ranges == 0 {
			t.Error("no run passed on a range of signals")
		}
	})
}

// A range of signals that the run did not inherit, or that overlaps the listed ones, is refused.
func TestOnlyInheritedSignalsArePassedOnAsARange(t *testing.T) {
	a := newApp(t)
	c := a.chainOfRuns(a, "ranges")
	goOnWith := func(unreceived []int64, first, last int64) error {
		return c.decide(c.lease(), protocol.Command{
			Type: protocol.ContinueAsNew, Buffers: true, Unreceived: unreceived,
			UnreceivedRange: &protocol.EventRange{First: first, Last: last},
		}).Err
	}
	if err := goOnWith(nil, 1, 1); protocol.ReasonOf(err) != protocol.ReasonValidation {
		t.Errorf("a run without inherited signals: %v", err)
	}
	a = newApp(t)
	c = a.chainOfRuns(a, "ranges")
	c.signal("s", 40, 1)
	c.next(func() {})
	task := c.lease()
	for _, r := range [][3]int64{{0, 1, 41}, {0, 2, 42}, {0, 5, 4}, {3, 3, 41}} {
		var listed []int64
		if r[0] > 0 {
			listed = []int64{r[0]}
		}
		err := c.decide(task, protocol.Command{
			Type: protocol.ContinueAsNew, Buffers: true, Unreceived: listed,
			UnreceivedRange: &protocol.EventRange{First: r[1], Last: r[2]},
		}).Err
		if protocol.ReasonOf(err) != protocol.ReasonValidation {
			t.Errorf("listed %v, range %d to %d: %v", listed, r[1], r[2], err)
		}
	}
	c.ok(c.decide(task, protocol.Command{
		Type: protocol.ContinueAsNew, Buffers: true, Unreceived: []int64{2},
		UnreceivedRange: &protocol.EventRange{First: 4, Last: 41},
	}))
}

// The signals of an inbox are stored until the last run whose history contains them is deleted.
func TestSignalsOfAnInboxAreDeletedWithTheLastRunThatInheritsThem(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		c := a.chainOfRuns(a, "chain")
		c.signal("s", 100, 10)
		first := must[protocol.RunView](t)(c.Describe(t.Context(), protocol.Target{WorkflowID: "chain"})).RunID
		second := c.next(func() {})
		third := c.next(func() { c.receive("s", 60) })
		last := c.next(func() { c.backlog = nil })
		left := func(want int64) {
			t.Helper()
			if n, _ := stored(t, database, "body", "signal_inbox"); n != want {
				t.Errorf("%d signals are stored, want %d", n, want)
			}
		}
		left(100)
		c.deleteRun(first)
		c.check(second)
		left(100)
		c.deleteRun(second)
		c.check(third)
		left(40)
		c.deleteRun(third)
		left(0)
		c.ok(c.decide(c.task("go", protocol.KindWorkflow, "chain"), done()))
		c.check(last)
	})
}

// For code that does not buffer signals, inherited signals resolve its waits, also if the run inherited them by an
// inbox. The signals that the code has not handled are passed on to the next run.
func TestWaitsOfOtherRuntimesAreResolvedFromTheInbox(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		c := a.chainOfRuns(a, "waits")
		c.signal("x", 30, 5)
		c.signal("y", 30, 5)
		c.next(func() {})
		c.next(func() { c.receive("x", 2) })
		must[protocol.RegisterResponse](t)(a.Register(t.Context(), protocol.RegisterRequest{
			WorkerID: "go", TaskQueue: "default", WorkflowTypes: []string{"wf"}, AnyActivity: true, Runtime: "rust",
		}))
		for range 2 {
			task := c.task("go", protocol.KindWorkflow, "waits")
			wait := protocol.Command{Type: protocol.OpenSignalWait, SignalName: "y"}
			c.ok(c.decide(task, wait))
			task = c.task("go", protocol.KindWorkflow, "waits")
			if got := task.Workflow.SignalName; got == nil || *got != "y" {
				t.Fatalf("the task is for signal %v", got)
			}
			of := task.Workflow.RunID
			c.receive("y", 1)
			c.ok(c.decide(task, goOn))
			applied := false
			for _, e := range c.historyOf(of) {
				_, is := e.Data.(*history.SignalApplied)
				applied = applied || is
			}
			run := must[protocol.RunView](t)(c.Describe(t.Context(), protocol.Target{WorkflowID: c.id})).RunID
			c.runs[run] = slices.Clone(c.backlog)
			c.check(run)
			if !applied {
				t.Errorf("the signal did not resolve the wait")
			}
		}
	})
}
