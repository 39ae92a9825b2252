package broker_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The benchmark runs 64 concurrent workflows of five sequential activities without encoding the broker's responses. It
// measures only app and store.
func BenchmarkFiveActivities(b *testing.B) {
	a := newApp(b)
	a.register("w")
	text, _ := payload.EncodeArgs(string(make([]byte, 1024)))
	step := protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "greet", Arguments: text}
	both := []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity}
	wait := int64(30)
	next := make(chan int)
	go func() {
		for i := range b.N {
			next <- i
		}
		close(next)
	}()
	b.ResetTimer()
	var group sync.WaitGroup
	finished := make(chan struct{}, b.N)
	stop := make(chan struct{})
	for range 64 {
		group.Go(func() {
			for i := range next {
				if _, err := a.Start(b.Context(), protocol.StartRequest{
					WorkflowID: fmt.Sprint("wf-", i), WorkflowType: "wf",
				}); err != nil {
					b.Error(err)
				}
			}
		})
		group.Go(func() {
			var have []protocol.Task
			for {
				select {
				case <-stop:
					return
				default:
				}
				if len(have) == 0 {
					p, err := a.Poll(b.Context(), protocol.PollRequest{WorkerID: "w", Kinds: both, Timeout: &wait, Max: 1})
					if err != nil {
						return
					}
					have = p.Tasks
					continue
				}
				item := protocol.CompleteItem{Owner: "w"}
				if t := have[0].Workflow; t != nil {
					item.Kind, item.TaskID, item.Attempt = protocol.KindWorkflow, t.TaskID, t.Attempt
					item.Commands = []protocol.Command{step}
					if t.LastSequence >= 11 {
						item.Commands = []protocol.Command{done()}
						finished <- struct{}{}
					}
				} else {
					t := have[0].Activity
					item.Kind, item.TaskID, item.AttemptID, item.Result = protocol.KindActivity, t.TaskID, t.AttemptID, text
				}
				out, err := a.Complete(b.Context(), protocol.CompleteRequest{
					Items: []protocol.CompleteItem{item}, Next: &protocol.PollRequest{WorkerID: "w", Kinds: both, Max: 1},
				})
				if err != nil || out.Items[0].Err != nil {
					b.Error(err, out.Items[0].Err)
					return
				}
				have = out.Next.Tasks
			}
		})
	}
	for range b.N {
		<-finished
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "workflows/s")
	close(stop)
	a.Drain()
	group.Wait()
}
