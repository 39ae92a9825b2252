package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// beatPace is the minimum time between two heartbeats of one attempt. If the code reports several values within it,
// only the last one is sent.
const beatPace = time.Second

// beats sends the heartbeats that the code of an attempt requests. Code may report progress in a tight loop and must
// not wait for the network, so a separate goroutine sends the latest value.
type beats struct {
	a   *attempt
	ctx context.Context

	mu      sync.Mutex // guards the fields below
	pending bool
	value   json.RawMessage
	rebuild *rebuildReport // to be sent; nil: nothing
	sending bool
	unsent  json.RawMessage // value of a heartbeat to which no app responded; nil: none
	last    time.Time
	closed  bool
	ended   chan struct{} // closed when the code has ended
	wait    sync.WaitGroup
	stop    context.CancelFunc
}

// rebuildReport is the progress of a rebuild or a set-up; received is closed when the app has responded to it.
type rebuildReport struct {
	protocol.Recovered
	received chan struct{}
}

// lastValueTime is the maximum time for which the outcome of an attempt waits for the heartbeat with its last value.
const lastValueTime = 5 * time.Second

func newBeats(ctx context.Context, a *attempt) *beats {
	b := &beats{a: a, ended: make(chan struct{})}
	b.ctx, b.stop = context.WithCancel(ctx)
	return b
}

// silentBeats returns beats that send nothing: for code that runs in no attempt.
func silentBeats() *beats { return &beats{closed: true} }

// add records a heartbeat, which is sent soon.
func (b *beats) add(progress json.RawMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.pending = true
	if progress != nil {
		b.value = progress
	}
	b.begin()
}

// reportRebuild reports the progress of a rebuild to the app. If the attempt ends without a received outcome, history
// contains this progress.
func (b *beats) reportRebuild(r protocol.Recovered) {
	b.report(&rebuildReport{r, make(chan struct{})})
}

// awaitRebuildReport reports the progress of a rebuild and waits until the app has responded, but not for longer than
// lastValueTime.
func (b *beats) awaitRebuildReport(ctx context.Context, r protocol.Recovered) {
	report := &rebuildReport{r, make(chan struct{})}
	ctx, cancel := context.WithTimeout(ctx, lastValueTime)
	defer cancel()
	b.report(report)
	select {
	case <-report.received:
	case <-ctx.Done():
	}
}

func (b *beats) report(r *rebuildReport) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.rebuild = r
	b.begin()
}

// begin starts the goroutine that sends, unless it runs. The caller must hold mu.
func (b *beats) begin() {
	if !b.sending {
		b.sending = true
		b.wait.Go(b.send)
	}
}

// pace returns the minimum time between two heartbeats. It is shorter than beatPace if the heartbeat timeout of the
// activity requires it.
func (b *beats) pace() time.Duration {
	if every := b.a.info.HeartbeatEvery; every > 0 {
		return min(beatPace, every/3)
	}
	return beatPace
}

func (b *beats) send() {
	for {
		b.mu.Lock()
		if rebuild := b.rebuild; rebuild != nil && !b.closed {
			b.rebuild = nil
			b.mu.Unlock()
			// Sent separately: it is not a heartbeat of the code.
			if b.one(b.ctx, nil, &rebuild.Recovered) {
				close(rebuild.received)
			} else {
				b.retryRebuild(rebuild)
			}
			continue
		}
		if !b.pending || b.closed {
			b.sending = false
			b.mu.Unlock()
			return
		}
		// Newer values replace the pending value during the pause, so the app receives the latest one.
		wait := time.Until(b.last.Add(b.pace()))
		if wait > 0 {
			b.mu.Unlock()
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-b.ended:
			case <-b.ctx.Done():
			}
			t.Stop()
			if b.ctx.Err() != nil {
				return
			}
			continue
		}
		value := b.value
		b.pending, b.value, b.last = false, nil, time.Now()
		b.mu.Unlock()
		answered := b.one(b.ctx, value, nil)
		b.mu.Lock()
		switch {
		case answered && value != nil:
			b.unsent = nil
		case value != nil:
			b.unsent = value
		}
		b.mu.Unlock()
	}
}

// retryRebuild sends the report of a rebuild again after a pause, unless a newer report exists.
func (b *beats) retryRebuild(rebuild *rebuildReport) {
	t := time.NewTimer(beatPace)
	defer t.Stop()
	select {
	case <-t.C:
	case <-b.ended: // the outcome contains the progress of the rebuild
		return
	case <-b.ctx.Done():
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rebuild == nil {
		b.rebuild = rebuild
	}
}

// one sends a heartbeat and reports whether the app responded.
func (b *beats) one(ctx context.Context, value json.RawMessage, rebuild *protocol.Recovered) (answered bool) {
	t := b.a.task
	h := protocol.HeartbeatRequest{
		Kind: protocol.KindActivity, TaskID: t.TaskID, Owner: t.LeaseOwner, AttemptID: t.AttemptID, Progress: value,
		Rebuild: rebuild,
		Beat:    rebuild == nil,
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	sent := time.Now()
	answer, err := b.a.r.opt.Link.HeartbeatTask(ctx, h)
	answer.TaskID, answer.AttemptID = t.TaskID, t.AttemptID
	answered = err == nil || protocol.ReasonOf(err) != ""
	answer.Session = nil // ignore the lease: the worker's own heartbeats renew the session
	if reason := protocol.ReasonOf(err); reason != "" {
		text := string(reason)
		answer.Renewed, answer.CanContinue, answer.Reason = false, false, &text
		err = nil
	} else if err != nil {
		// After a lost connection the next renewal must wait, as after a failed renewal. Other errors do not affect the
		// lease.
		if !link.Lost(err) || errors.Is(err, context.Canceled) {
			return answered
		}
		err = fmt.Errorf("heartbeat: %w", err)
	}
	b.a.r.leases.renewed(
		sent, time.Time{}, []protocol.HeartbeatRequest{h}, []protocol.HeartbeatResponse{answer}, err, b.a.r.opt.Sessions,
	)
	return answered
}

// close stops the sending goroutine and waits for it. With last, it first sends the last value of the code if the app
// has not received it, because the next attempt of the activity may continue from this value.
func (b *beats) close(last bool) {
	b.mu.Lock()
	// Set closed before waiting, so that later heartbeats of the code start no new request.
	b.closed = true
	close(b.ended)
	value := b.value
	b.mu.Unlock()
	if !last {
		b.stop()
		b.wait.Wait()
		return
	}
	defer b.stop()
	// If a drain stopped the attempt, its context has ended; send its last value nevertheless.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), lastValueTime)
	defer cancel()
	defer context.AfterFunc(ctx, b.stop)()
	b.wait.Wait()
	if value == nil {
		b.mu.Lock()
		value = b.unsent
		b.mu.Unlock()
	}
	if value != nil && ctx.Err() == nil {
		b.one(ctx, value, nil)
	}
}
