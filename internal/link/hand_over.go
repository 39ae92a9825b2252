package link

import (
	"context"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// While a worker drains, successors may set up its sessions. Until these are handed over, the worker polls only for
// tasks of these sessions, and sends heartbeats more often: each response has their number.

// handOverBeat is the interval of heartbeats during a hand-over, at both workers.
const handOverBeat = time.Second

// handOver is a hand-over of this worker's sessions; ctx ends with it.
type handOver struct {
	ctx  context.Context
	done context.CancelFunc
}

// restrict limits a poll to the tasks that a draining worker may receive. It returns false if none remain.
func (h *handOver) restrict(in protocol.PollRequest) (protocol.PollRequest, bool) {
	if !slices.Contains(in.Kinds, protocol.KindActivity) {
		return in, false
	}
	in.HandOver, in.Kinds = true, []protocol.TaskKind{protocol.KindActivity}
	return in, true
}

// wait waits for the end of the hand-over, at most for hold.
func (h *handOver) wait(ctx context.Context, hold time.Duration) {
	t := time.NewTimer(hold)
	defer t.Stop()
	select {
	case <-h.ctx.Done():
	case <-t.C:
	case <-ctx.Done():
	}
}

// HandOver drains the link, as Drain does, and waits until successors have acquired the sessions that they prepare, or
// until ctx ends.
func (l *Link) HandOver(ctx context.Context) {
	l.mu.Lock()
	l.draining = true
	l.beginHandOver()
	h := l.handOver
	l.mu.Unlock()
	l.Beat()
	select {
	case <-h.ctx.Done():
	case <-ctx.Done():
		l.mu.Lock()
		l.handedOver = true
		l.endHandOver()
		l.mu.Unlock()
	}
}

// recordHandOvers applies the number of sessions that successors prepare, according to the response to a heartbeat.
func (l *Link) recordHandOvers(draining bool, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case draining != l.draining: // the response is older than the drain
	case n > 0 && (draining || l.paused != nil) && !l.handedOver:
		l.beginHandOver()
	case n == 0:
		l.handedOver = l.handedOver || draining
		l.endHandOver()
	}
}

// beginHandOver and endHandOver have no effect if the hand-over has begun or ended. The caller must hold mu.
func (l *Link) beginHandOver() {
	if l.handOver != nil {
		return
	}
	h := &handOver{}
	h.ctx, h.done = context.WithCancel(context.Background())
	l.handOver = h
	close(l.handOverBegins)
	l.handOverBegins = make(chan struct{})
}

func (l *Link) endHandOver() {
	if l.handOver != nil {
		l.handOver.done()
		l.handOver = nil
	}
}

// currentHandOver returns the hand-over of this worker's sessions, or nil and a channel that is closed when one begins.
func (l *Link) currentHandOver() (now *handOver, begins <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.handOver, l.handOverBegins
}

// handsOver reports whether sessions of this worker are being handed over.
func (l *Link) handsOver() bool {
	h, _ := l.currentHandOver()
	return h != nil
}

// drainedPoll is how long a poll that the app refused because of a drain waits for a hand-over, which the response to
// the next heartbeat may begin.
const drainedPoll = 2 * time.Second

// awaitHandOver waits, for at most drainedPoll, until a hand-over begins. It returns false at once if this worker has
// no session that may be handed over.
func (l *Link) awaitHandOver(ctx context.Context, begins <-chan struct{}) bool {
	if l.opt.HandsOver == nil || !l.opt.HandsOver() {
		return false
	}
	l.Beat()
	t := time.NewTimer(drainedPoll)
	defer t.Stop()
	select {
	case <-begins:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}
