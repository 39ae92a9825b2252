package broker_test

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker without a name of its own is another one at each start. Those that are long gone are removed; one that only
// polls, and whose signs of life nobody stores, is not.
func TestWorkersThatAreLongGoneAreRemoved(t *testing.T) {
	for name, shared := range map[string]bool{"alone": false, "with other apps": true} {
		inBubble(t, name, func(o *harness) {
			a, _ := o.app("one", shared)
			o.join(a, "gone", "p1")
			o.join(a, "polls", "p1")
			ids := func() (out []string) {
				err := o.store.View(o.t.Context(), func(r store.Reader) error {
					list, err := r.Workers(o.t.Context(), store.WorkerQuery{Namespace: store.DefaultNamespace})
					for _, w := range list {
						out = append(out, w.ID)
					}
					return err
				})
				if err != nil {
					o.t.Error(err)
				}
				return out
			}
			for range 6 { // half days
				if got := len(ids()); got != 2 {
					o.t.Fatalf("after %v there are %d workers, want both", o.at(), got)
				}
				time.Sleep(12 * time.Hour)
				must[protocol.PollAnswer](o.t)(a.Poll(
					o.t.Context(), protocol.PollRequest{WorkerID: "polls", Incarnation: "p1", Timeout: new(int64)},
				))
				if _, err := a.Prune(o.t.Context()); err != nil {
					o.t.Fatal(err)
				}
			}
			if got := ids(); len(got) != 1 || got[0] != "polls" {
				o.t.Errorf("after %v there are the workers %v, want the one that polls", o.at(), got)
			}
		})
	}
}
