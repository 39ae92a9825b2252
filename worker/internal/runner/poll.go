package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker polls only for tasks for which it has a free slot: the lease of a task that it cannot start would expire.
// Each loop polls for one or several kinds of tasks. The liveness probe fails if a loop makes no progress.

// If a response without tasks arrives sooner than this, the app did not wait for a task. The loop then pauses.
const heldAtLeast = time.Second

// pollSeconds is how long the app may wait for a task before it responds. It is well below the time after which a loop
// without an iteration counts as stuck.
const pollSeconds = 50

// pageSize is the maximum number of events on a page of history. The first page is part of the task and comes from the
// app's memory; each further page costs a call and a read from the store.
const pageSize = 1000

// loop is one of the loops that poll for tasks.
type loop struct {
	r *Runner
	// kinds are the task kinds that this loop polls for. They are fixed: if every loop polled for all kinds with free
	// slots, all loops could wait for one kind, and slots of another kind that become free would have no poll until
	// one of these polls ends.
	kinds []protocol.TaskKind
	back  retry.Backoff
	seen  atomic.Int64 // time of the last iteration, in Unix nanoseconds
	idle  atomic.Bool  // the loop waits for a slot and does not count as stuck
	id    string       // ID of a poll whose response was lost; the next poll repeats it
	sent  time.Time    // when the poll with that ID was first sent
}

// loopsFor returns n loops that share the task kinds round-robin. If n is less than the number of kinds, every loop
// polls for all kinds. A worker with workflows has one more loop for queries, and one for validations if it registers
// validators.
func loopsFor(r *Runner, n int) (loops []*loop, pollers slotCounts) {
	kinds, pollers := r.kinds(), slotCounts{}
	for i := range n {
		l := &loop{r: r, kinds: kinds, back: retry.Backoff{Min: 50 * time.Millisecond, Max: 5 * time.Second}}
		if n >= len(kinds) {
			l.kinds = kinds[i%len(kinds) : i%len(kinds)+1]
		}
		for _, k := range l.kinds {
			pollers[k]++
		}
		loops = append(loops, l)
	}
	var readOnly []protocol.TaskKind
	if r.opt.WorkflowSlots > 0 {
		readOnly = append(readOnly, protocol.KindQuery)
		if r.opt.Validates {
			readOnly = append(readOnly, protocol.KindValidation)
		}
	}
	for _, k := range readOnly {
		loops = append(
			loops,
			&loop{r: r, kinds: []protocol.TaskKind{k}, back: retry.Backoff{Min: 50 * time.Millisecond, Max: 5 * time.Second}},
		)
		pollers[k] = 1
	}
	return loops, pollers
}

// kinds returns the task kinds that the runner has slots for.
func (r *Runner) kinds() (kinds []protocol.TaskKind) {
	if r.opt.ActivitySlots > 0 {
		kinds = append(kinds, protocol.KindActivity)
	}
	if r.opt.WorkflowSlots > 0 {
		kinds = append(kinds, protocol.KindWorkflow)
	}
	return kinds
}

// run polls for tasks until the runner stops. After a failure it backs off, because polls without a pause from many
// workers would keep an overloaded app from recovering. The pause ends early when the worker connects to another app
// or reconnects to the same one, and when an operator resumes the worker.
func (l *loop) run() {
	for {
		l.seen.Store(time.Now().UnixNano())
		// Waiting for a slot may take as long as the activities that use the slots, so it does not count as stuck. The
		// time of an iteration starts with the poll.
		l.idle.Store(true)
		got, err := l.r.slots.acquire(l.r.pollCtx, l.kinds)
		l.idle.Store(false)
		l.seen.Store(time.Now().UnixNano())
		if err != nil {
			return
		}
		// Read Changed before the poll, so that a reconnect or resume during the poll ends the pause after it.
		changed := l.r.opt.Link.Changed()
		if pause := l.poll(got); pause > 0 {
			t := time.NewTimer(pause)
			select {
			case <-t.C:
			case <-changed:
			case <-l.r.slots.stop:
			case <-l.r.pollCtx.Done():
			}
			t.Stop()
		}
	}
}

// poll sends one poll and returns the pause before the next poll.
func (l *loop) poll(got slotCounts) time.Duration {
	req := l.r.request(got)
	if l.r.opt.PollIDs {
		if l.id == "" {
			l.id, l.sent = rand.Text(), time.Now()
		}
		req.PollID = l.id
	} else {
		l.sent = time.Now()
	}
	seconds := int64(pollSeconds)
	req.Timeout = &seconds
	began := time.Now()
	// The timeout also ends polls without a connection, so that the loop does not count as stuck.
	ctx, cancel := context.WithTimeout(l.r.pollCtx, (pollSeconds+30)*time.Second)
	a, err := l.r.opt.Link.Poll(ctx, req)
	cancel()
	// The response arrived. Only a poll whose response may be lost is repeated under the same ID; it then receives the
	// same tasks.
	if err == nil || !link.Lost(err) {
		l.id = ""
	}
	if err != nil {
		l.r.slots.endPoll(l.kinds, got)
		// The link already logs the end of a connection, once for all polls.
		if l.r.pollCtx.Err() == nil && !errors.Is(err, link.ErrNotConnected) && !errors.Is(err, link.ErrConnectionEnded) {
			l.r.log.Warn().Err(err).Msg("poll failed")
		}
		return l.back.Next()
	}
	l.r.slots.endPoll(l.kinds, l.r.accept(a, got, l.sent))
	pause := time.Duration(a.RetryAfter) * time.Millisecond
	switch {
	case len(a.Tasks) > 0:
		l.back.Reset()
		return 0
	case a.Status == protocol.PollEmpty && time.Since(began) >= heldAtLeast:
		l.back.Reset()
		return pause
	}
	// The loop must pause after an immediate response without tasks.
	return max(pause, l.back.Next())
}

// request returns a poll for as many tasks as slots are reserved.
func (r *Runner) request(got slotCounts) protocol.PollRequest {
	req := protocol.PollRequest{
		WorkerID: r.opt.WorkerID, Queues: r.opt.Queues, Free: map[protocol.TaskKind]int{}, Max: got.total(),
		EagerTasks: r.opt.WorkflowSlots > 0, PageSize: pageSize, PagedSignals: true,
	}
	for _, k := range []protocol.TaskKind{
		protocol.KindWorkflow, protocol.KindActivity, protocol.KindQuery, protocol.KindValidation,
	} {
		if got[k] > 0 {
			req.Kinds = append(req.Kinds, k)
			req.Free[k] = got[k]
		}
	}
	return req
}

// accept runs the tasks of a poll that was sent at the given time on its reserved slots, and returns the unused slots.
func (r *Runner) accept(a protocol.PollResponse, got slotCounts, sent time.Time) slotCounts {
	received := r.leases.arrived(sent, a.StoreTime)
	unused := slotCounts{}
	for k, n := range got {
		unused[k] = n
	}
	for _, t := range a.Tasks {
		unused[t.Kind]--
		r.spawn(t, received)
	}
	for k, n := range unused {
		if n < 0 { // the app returned more tasks than requested: run them, and make up for their slots later
			unused[k] = 0
			r.slots.borrow(k, -n)
			r.log.Warn().Str("kind", string(k)).Int("more", -n).Msg("app returned more tasks than this worker requested")
		}
	}
	return unused
}

// stuckAfter is the maximum duration of one iteration of a loop.
const stuckAfter = 180 * time.Second

// Alive returns an error if a loop with free slots has made no iteration for three minutes. It also returns an error
// while workflow code loops or blocks outside package workflow, because that code uses a CPU core until the process
// ends.
func (r *Runner) Alive() error {
	if run, n := r.deadlocks.firstOf(); n > 0 {
		return fmt.Errorf(
			"the code of %d runs, of run %s first, loops or blocks outside package workflow; only a restart ends it", n, run,
		)
	}
	for i, l := range r.loops {
		seen := l.seen.Load()
		if seen == 0 || l.idle.Load() || r.stopped.Load() {
			continue
		}
		if silent := time.Since(time.Unix(0, seen)); silent > stuckAfter {
			return fmt.Errorf("poll loop %d has been stuck for %s", i, silent.Round(time.Second))
		}
	}
	return nil
}
