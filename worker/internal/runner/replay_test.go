package runner

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sojourn-run/sojourn/shared/history"
)

func kilobytes(n int) []history.Event {
	return []history.Event{{Seq: 1, Data: &history.WorkflowStarted{Arguments: strings.Repeat("x", n<<10)}}}
}

func TestReplaysAreBoundedInNumberAndSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newReplays()
		p.maxReplays, p.maxBytes = 2, 100<<10
		old, err := p.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		young, err := p.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		third, held := make(chan *replaySlot, 1), make(chan error, 1)
		go func() {
			r, _ := p.begin(t.Context())
			third <- r
		}()
		for range 3 { // the oldest replay continues, whatever its size
			if err := old.reserve(t.Context(), kilobytes(60)); err != nil {
				t.Fatal(err)
			}
		}
		go func() { held <- young.reserve(t.Context(), kilobytes(1)) }()
		synctest.Wait()
		if len(third) > 0 || len(held) > 0 {
			t.Fatal("a third replay began, or a younger one continued although the oldest uses all memory")
		}
		old.release()
		if err := <-held; err != nil {
			t.Fatal(err)
		}
		(<-third).release()
		young.release()
		if p.used != 0 || len(p.all) != 0 {
			t.Errorf("%d bytes and %d replays are still counted", p.used, len(p.all))
		}
	})
}

func TestReplayThatWaitsEndsWithTheWorker(t *testing.T) {
	p := newReplays()
	p.maxReplays = 1
	first, err := p.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.begin(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	first.release()
}
