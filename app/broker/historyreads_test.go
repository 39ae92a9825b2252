package broker_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// wholeRuns is a store that counts how often a run is read with everything that is open in it.
type wholeRuns struct {
	store.Store
	n atomic.Int64
}

type wholeRunReader struct {
	store.Reader
	n *atomic.Int64
}

func (s *wholeRuns) View(ctx context.Context, read func(store.Reader) error) error {
	return s.Store.View(ctx, func(r store.Reader) error { return read(wholeRunReader{r, &s.n}) })
}

func (r wholeRunReader) Run(ctx context.Context, id string) (*engine.Run, error) {
	r.n.Add(1)
	return r.Reader.Run(ctx, id)
}

// A request for a history reserves memory before it reads payloads: to find the size, it reads nothing that contains
// payloads. Otherwise every waiting request would load a run with many unread signals.
func TestTheSizeOfAHistoryIsReadWithoutItsOpenSignals(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		run := a.start("large").RunID
		for range 3 {
			must[protocol.CommandReceipt](t)(a.Signal(t.Context(), protocol.SignalRequest{
				Target: protocol.Target{WorkflowID: "large"}, SignalName: "s",
				Input: []byte(`["` + strings.Repeat("x", 1000) + `"]`),
			}))
		}
		reads := &wholeRuns{Store: a.store}
		v := view.New(reads, view.Options{
			Dispatch: a.Dispatch(), AppState: &resultWait{begun: make(chan struct{})},
			Shared: !strings.HasPrefix(database, "sqlite:"),
		})
		for _, target := range []protocol.Target{{WorkflowID: "large"}, {WorkflowID: "large", RunID: run}} {
			ctx, err := v.ReserveHistory(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			page, err := v.History(ctx, protocol.HistoryQuery{Target: target, PageSize: 100})
			if err != nil || len(page.Events) != 4 {
				t.Fatalf("%d events: %v", len(page.Events), err)
			}
		}
		if n := reads.n.Load(); n != 0 {
			t.Errorf("the run was read %d times with its open signals", n)
		}
	})
}
