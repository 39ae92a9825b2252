package storetest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// kilobyte is a payload of about 1 KB as it is stored.
var kilobyte = func() string {
	b := make([]byte, 1024)
	for i := range b {
		b[i] = 'A' + byte(i%26)
	}
	return string(b)
}()

// inFlight is the number of callers that a benchmark runs at once.
const inFlight = 128

// Completions measures durable completions of plain activities that were claimed in order: ten activities per run, with
// arguments and results of 1 KB.
func Completions(b *testing.B, s Suite) {
	w := s.New(b)
	leased := w.backlog(b.N)
	worker := w.Worker("w")
	b.ResetTimer()
	each(leased, func(l store.Leased) { w.completeRun(b, l) })
	b.StopTimer()
	report(b, w)
	_ = worker
}

// Burn measures the whole life of a backlog of plain activities: claims of 64 at a time, and a completion of each
// activity.
func Burn(b *testing.B, s Suite) {
	w := s.New(b)
	w.schedule(b.N)
	worker := w.Worker("w")
	b.ResetTimer()
	tasks := make(chan store.Leased, 256)
	var claims, done sync.WaitGroup
	claims.Go(func() {
		for {
			list := w.LeaseTasks(protocol.KindActivity, worker, 64)
			if len(list) == 0 {
				break
			}
			for _, l := range list {
				tasks <- l
			}
		}
	})
	for range inFlight {
		done.Go(func() {
			for l := range tasks {
				w.completeRun(b, l)
			}
		})
	}
	claims.Wait()
	close(tasks)
	done.Wait()
	b.StopTimer()
	report(b, w)
}

// Flows measures workflows of five sequential activities whose steps all pass through the backlog: the work of the
// store alone.
func Flows(b *testing.B, s Suite) {
	w := s.New(b)
	worker := w.Worker("w")
	input := kilobyte
	b.ResetTimer()
	var starts sync.WaitGroup
	next := make(chan int)
	for range 50 {
		starts.Go(func() {
			for i := range next {
				_, err := w.S.Commit(b.Context(),
					StartChange(engine.Start{RunID: w.ID(), Number: 1, Arguments: input, Request: protocol.StartRequest{
						Namespace: Namespace, WorkflowID: fmt.Sprint("flow-", i), WorkflowType: "flow", TaskQueue: Queue,
					}}))
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	go func() {
		for i := range b.N {
			next <- i
		}
		close(next)
	}()
	var steps sync.WaitGroup
	for closed := 0; closed < b.N; {
		for _, kind := range []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity} {
			list := w.LeaseTasks(kind, worker, 128)
			for _, l := range list {
				if kind == protocol.KindWorkflow && l.Head.CommandSeq == 5 {
					closed++
				}
				steps.Go(func() { w.step(b, l) })
			}
		}
	}
	steps.Wait()
	starts.Wait()
	b.StopTimer()
	report(b, w)
}

// Wide measures one run whose thousand activities are claimed and finished.
func Wide(b *testing.B, s Suite) {
	w := s.New(b)
	worker := w.Worker("w")
	for i := range b.N {
		commands := make([]protocol.Command, 1000)
		for k := range commands {
			commands[k] = heavy()
		}
		w.Begun(fmt.Sprint("wide-", i), commands...)
		each(w.leaseAll(worker, len(commands)), func(l store.Leased) { w.completeRun(b, l) })
	}
	report(b, w)
}

func (w *Fixture) step(b *testing.B, l store.Leased) {
	switch {
	case l.Kind == protocol.KindActivity:
		w.completeRun(b, l)
	case l.Head.CommandSeq == 5:
		if _, err := w.S.Commit(b.Context(), Answering(l, protocol.Command{Type: protocol.CompleteWorkflow})); err != nil {
			b.Error(err)
		}
	default:
		if _, err := w.S.Commit(b.Context(), Answering(l, heavy())); err != nil {
			b.Error(err)
		}
	}
}

func heavy() protocol.Command {
	c := Activity("step", "")
	c.Arguments = payload.Payload{Blob: kilobyte}
	return c
}

func (w *Fixture) completeRun(b testing.TB, l store.Leased) {
	c := Step(l.Head.ID, engine.CompleteActivity{
		Seq: l.Activity.Seq, Holder: engine.Holder{Owner: l.Activity.Owner, Delivery: l.Activity.Delivery}, Result: kilobyte,
		Hash: "h",
	}, store.Keys{Activities: []int64{l.Activity.Seq}})
	if _, err := w.S.Commit(b.Context(), c); err != nil {
		b.Error(err)
	}
}

// schedule makes n ready activities, ten per run.
func (w *Fixture) schedule(n int) {
	runs := make([]int, (n+9)/10)
	each(runs, func(int) {
		id := w.ID()
		w.StartAs(engine.Start{RunID: id, Number: 1, Request: protocol.StartRequest{
			Namespace: Namespace, WorkflowID: id, WorkflowType: "flow", TaskQueue: Queue,
		}})
	})
	starter := NewWorker("starter")
	for left := n; left > 0; {
		list := w.LeaseTasks(protocol.KindWorkflow, starter, 256)
		each(list, func(l store.Leased) {
			commands := make([]protocol.Command, 10)
			for i := range commands {
				commands[i] = heavy()
			}
			if _, err := w.S.Commit(w.T.Context(), Answering(l, commands...)); err != nil {
				w.T.Error(err)
			}
		})
		left -= 10 * len(list)
	}
}

// backlog schedules n activities and leases all of them.
func (w *Fixture) backlog(n int) []store.Leased {
	w.schedule(n)
	worker := NewWorker("w")
	var leased []store.Leased
	for len(leased) < n {
		leased = append(leased, w.LeaseTasks(protocol.KindActivity, worker, min(256, n-len(leased)))...)
	}
	return leased
}

// each calls fn for every item, inFlight at a time, and starts them in order.
func each[V any](items []V, fn func(V)) {
	next := make(chan V)
	var wg sync.WaitGroup
	for range min(inFlight, len(items)) {
		wg.Go(func() {
			for v := range next {
				fn(v)
			}
		})
	}
	for _, v := range items {
		next <- v
	}
	close(next)
	wg.Wait()
}

func report(b *testing.B, w *Fixture) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	if st := w.S.Stats(); st.Commits > 0 {
		b.ReportMetric(float64(st.Changes)/float64(st.Commits), "changes/commit")
	}
}
