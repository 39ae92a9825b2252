package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// In a drain, running tasks may finish within the drain timeout less deregisterTime, but at least within half of the
// drain timeout. deregisterTime is for returning tasks (backTime), the close hooks of sessions, and the last requests
// to the app (callsTime). If the tasks finish earlier, the hooks have up to hooksTime.
const (
	deregisterTime = 5 * time.Second
	backTime       = 1 * time.Second
	callsTime      = 1500 * time.Millisecond
	hooksTime      = 5 * time.Second
)

// ErrAborted reports that Abort ended a drain early.
var ErrAborted = errors.New("worker: the drain was aborted")

// Run runs the worker until ctx ends or the app drains the worker. Then it drains within the drain timeout: it stops
// polling, finishes or returns running tasks, closes executors, releases its sessions, deregisters and returns nil. It
// returns an error if the worker must not continue, such as link.ErrSuperseded, or ErrAborted.
func (w *Worker) Run(ctx context.Context) error {
	defer w.Close()
	if w.opt.Addr != "" {
		p, err := w.openPort(w.opt.Addr)
		if err != nil {
			return err
		}
		defer p.close()
	}
	linkCtx, unlink := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	defer func() { unlink(); watching.Wait() }()
	linked := make(chan error, 1)
	go func() { linked <- w.link.Run(linkCtx) }()
	watching.Go(func() { w.findHandOvers(linkCtx) })
	watching.Go(func() { w.snapshotFiles.KeepClean(linkCtx) })
	if w.opt.Watch {
		watching.Go(func() { w.watch(linkCtx) })
	}
	if w.pool != nil {
		w.pool.Install()
	}
	ran := make(chan struct{})
	go func() { defer close(ran); w.runner.Run() }()
	var err error
	select {
	case <-ctx.Done():
		err = w.shutdown()
	case <-w.drain:
		w.log.Info().Msg("app requested shutdown of this worker")
		err = w.shutdown()
	case <-w.abort:
		err = ErrAborted
	case err = <-linked:
		linked <- err
		w.log.Error().Err(err).Msg("worker stopped: connection to the app ended")
	}
	w.runner.Close()
	<-ran
	unlink()
	if fatal := <-linked; err == nil {
		err = fatal
	}
	return err
}

// Abort ends a drain early. The worker does not return its running tasks; their leases expire.
func (w *Worker) Abort() { w.aborting.Do(func() { close(w.abort) }) }

// shutdown drains the worker.
func (w *Worker) shutdown() error {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(
		context.Background(), w.opt.DrainTimeout, errors.New("the drain timeout was exceeded"),
	)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-w.abort:
			cancel()
		case <-stop:
		}
	}()
	w.log.Info().Dur("deadline", w.opt.DrainTimeout).Msg("draining")
	connected := w.link.Connected()
	work, done := context.WithDeadline(
		ctx, began.Add(max(w.opt.DrainTimeout-deregisterTime, w.opt.DrainTimeout/2)),
	)
	switch {
	case connected && w.handsOver():
		w.link.HandOver(work)
	case connected:
		w.link.Drain()
	}
	err := w.runner.Stop(work)
	done()
	if err != nil {
		w.log.Warn().Err(err).Msg("drain deadline reached; returning running tasks to the app")
		back, done := context.WithTimeout(ctx, min(backTime, w.opt.DrainTimeout/8))
		w.runner.HandBack(back)
		done()
	}
	w.runner.Close() // tasks that a poll still receives now are released by deregistering
	w.release(ctx)
	if w.link.EverRegistered() {
		if err := w.link.Deregister(ctx); err != nil {
			w.log.Warn().Err(err).Msg("failed to deregister this worker")
		}
	}
	select {
	case <-w.abort:
		return ErrAborted
	default:
	}
	w.log.Info().Dur("took", time.Since(began)).Msg("drained")
	return nil
}

// release closes the state of all sessions and releases the sessions at the app, so that their tasks need not wait
// until the leases expire.
func (w *Worker) release(ctx context.Context) {
	until := time.Now().Add(hooksTime)
	if end, ok := ctx.Deadline(); ok {
		if latest := end.Add(-min(callsTime, w.opt.DrainTimeout/8)); latest.Before(until) {
			until = latest // reserve time for the last requests to the app
		}
	}
	snapshots := w.takeLastSnapshots(ctx)
	hooks, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	held := w.sessions.DropAll(string(sandbox.CauseDrained))
	w.sessions.Wait(hooks)
	if w.pool != nil {
		if err := w.pool.Drain(hooks); err != nil {
			w.log.Warn().Err(err).Msg("failed to stop executors")
		}
	}
	if !w.link.Connected() {
		return
	}
	for _, s := range held {
		in := protocol.SessionVerb{SessionID: s.SessionID, Epoch: s.Epoch}
		if with, ok := snapshots[s.SessionID]; ok && with.Epoch == s.Epoch {
			in = with
		}
		in.Reason = "shutdown"
		switch _, err := w.link.ReleaseSession(ctx, in); {
		case err == nil:
			w.runner.SnapshotStored(s.SessionID, in.Snapshot)
		case protocol.ReasonOf(err) != "":
			w.runner.RemoveSnapshot(in.Snapshot)
		default: // the app may have stored the snapshot
			w.log.Warn().Err(err).Str("session_id", s.SessionID).Msg("failed to release a session")
		}
	}
}

// Close stops all activity of the worker immediately. Run calls it at its end; call it for a worker that never ran.
// Further calls have no effect.
func (w *Worker) Close() {
	if w.runner != nil {
		w.runner.Close()
	}
	if w.pool != nil {
		w.pool.Close()
	}
	if w.sessions != nil {
		w.sessions.DropAll("closed")
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		w.sessions.Wait(ctx)
		cancel()
		w.snapshots.Wait() // each has a timeout
	}
	if w.machine != nil {
		w.machine.Close()
	}
	if w.lock != nil {
		_ = w.lock.Close() // closing the file releases its lock
		w.lock = nil
	}
}

// endSession closes the executors and the state of a session that the worker no longer holds.
func (w *Worker) endSession(ctx context.Context, id string, epoch int64, reason string) {
	if w.pool == nil {
		return
	}
	if err := w.pool.CloseSession(ctx, sandbox.Session{ID: id, Epoch: epoch}, reason); err != nil {
		w.log.Warn().Err(err).Str("session_id", id).Int64("epoch", epoch).Msg("failed to close session state")
	}
}

// handsOver reports whether the worker holds sessions that may be handed over in a drain.
func (w *Worker) handsOver() bool {
	return len(w.preparedDefinitions()) > 0 && len(w.sessions.List()) > 0
}

// adoptSession makes the executors in which the worker prepared a session those of the epoch that it has acquired.
func (w *Worker) adoptSession(id string, from, to int64) {
	if w.pool != nil {
		w.pool.AdoptSession(id, from, to)
	}
}

// lost is called by the executor pool when the executor of a session has ended.
func (w *Worker) lost(l sandbox.SessionLost) {
	w.sessions.Died(l.Session, l.EpochRequested, string(l.Cause), l.Message)
}

// evict releases a session whose executor the pool wants to end. It releases the session at the app first.
func (w *Worker) evict(ctx context.Context, l sandbox.SessionLost) bool {
	return w.sessions.Evict(l.Session, l.EpochRequested, string(l.Cause), func() error {
		err := w.releaseWithSnapshot(ctx, l.Session, l.EpochRequested, string(l.Cause))
		if reason := protocol.ReasonOf(err); reason != "" {
			w.log.Debug().Str("session_id", l.Session).Int64("epoch", l.EpochRequested).Str("reason", string(reason)).
				Msg("evicted session was not held")
			return nil
		}
		return err
	})
}

// yield releases an idle session at the app's request, so that the worker can hold another session. It does not release
// a session in use.
func (w *Worker) yield(ctx context.Context, n protocol.SessionNotice) {
	if n.Reason == protocol.ReasonSnapshot {
		w.takeSnapshot(n.SessionID, n.Epoch)
		return
	}
	if w.sessions.Snapshots(n.SessionID, n.Epoch) {
		w.goSnapshot(func(ctx context.Context) {
			if err := w.releaseWithSnapshot(ctx, n.SessionID, n.Epoch, n.Reason); err != nil {
				w.log.Debug().Err(err).Str("session_id", n.SessionID).Msg("an idle session was not released")
			}
		})
		return
	}
	w.sessions.Yield(n.SessionID, n.Epoch, n.Reason, func() error {
		_, err := w.link.ReleaseSession(ctx, protocol.SessionVerb{SessionID: n.SessionID, Epoch: n.Epoch, Reason: n.Reason})
		return err
	})
}

// releaseSession releases a held session at the app. The app refuses the release only if the worker does not hold the
// session.
func (w *Worker) releaseSession(ctx context.Context, id string, epoch int64, reason string) error {
	_, err := w.link.ReleaseSession(ctx, protocol.SessionVerb{SessionID: id, Epoch: epoch, Reason: reason})
	if protocol.ReasonOf(err) != "" {
		return nil
	}
	return err
}

// sessionFailed reports to the app that a session's state was lost at this worker.
func (w *Worker) sessionFailed(ctx context.Context, id string, epoch int64, cause, detail string) {
	_, err := w.link.ReleaseSession(
		ctx, protocol.SessionVerb{SessionID: id, Epoch: epoch, Reason: protocol.ErrorText(detail), Failed: cause},
	)
	switch reason := protocol.ReasonOf(err); {
	case reason == protocol.ReasonSessionOwner || reason == protocol.ReasonSessionNotActive:
		// The app already recorded the failure, with the outcome of an attempt in the session.
	case err != nil:
		w.log.Warn().Err(err).Str("session_id", id).Int64("epoch", epoch).Str("cause", cause).
			Msg("failed to report the failure of a session")
	}
}

// giveUpSession releases an epoch of a session under which this worker starts no work. The app refuses the release only
// if the worker does not own the session under that epoch; then nothing is left to release.
func (w *Worker) giveUpSession(ctx context.Context, id string, epoch, known int64) error {
	_, err := w.link.ReleaseSession(ctx, protocol.SessionVerb{
		SessionID: id, Epoch: epoch, Known: known, Reason: protocol.ReasonGivenUp,
	})
	if protocol.ReasonOf(err) != "" {
		return nil
	}
	return err
}
