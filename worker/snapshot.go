package worker

import (
	"context"
	"errors"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/session"
)

// keepsSnapshots reports whether sessions of a definition are released with a snapshot of their state.
func (w *Worker) keepsSnapshots(definition string) bool {
	def, ok := w.definitions().FindSession(definition)
	return ok && def.Snapshots()
}

// snapshotFunctions matches the functions that store and restore the state in the file of a session definition.
var snapshotFunctions = map[string][2]*regexp.Regexp{
	sandbox.RuntimeNode: {regexp.MustCompile(`\bonHandOver\b`), regexp.MustCompile(`\brestore\b`)},
	sandbox.RuntimePython: {
		regexp.MustCompile(`(?m)^(async )?def on_hand_over\b`), regexp.MustCompile(`(?m)^(async )?def restore\b`),
	},
}

// storesSnapshots reports whether the file of a session definition has the functions that store and restore the state.
// It reads the source, because the worker registers before any executor runs.
func (w *Worker) storesSnapshots(h sandbox.Definition) bool {
	w.found.Lock()
	defer w.found.Unlock()
	if known, ok := w.storing[h.Hash]; ok {
		return known
	}
	source, err := os.ReadFile(h.Path)
	if err != nil {
		return false
	}
	both := snapshotFunctions[h.Runtime]
	found := both[0] != nil && both[0].Match(source) && both[1].Match(source)
	w.storing[h.Hash] = found
	return found
}

// goSnapshot calls f in the background, with a context that ends after the timeout of snapshots.
func (w *Worker) goSnapshot(f func(ctx context.Context)) {
	w.snapshots.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), w.opt.Sessions.SnapshotTimeout)
		defer cancel()
		f(ctx)
	})
}

// takeSnapshot stores a snapshot of a session at the app's request, in the background.
func (w *Worker) takeSnapshot(id string, epoch int64) {
	w.goSnapshot(func(ctx context.Context) { w.handBack(ctx, id, epoch) })
}

// releaseIdle releases an idle session with a snapshot, in the background. If the app refuses it, because a task is on
// its way, the session stays.
func (w *Worker) releaseIdle(id string, epoch int64) {
	w.goSnapshot(func(ctx context.Context) {
		err := w.releaseWithSnapshot(ctx, id, epoch, string(sandbox.CauseEvictedIdle))
		if err != nil && protocol.ReasonOf(err) == "" {
			w.log.Warn().Err(err).Str("session_id", id).Int64("epoch", epoch).Msg("failed to release an idle session")
		}
	})
}

// releaseWithSnapshot releases a session. If its definition has snapshots, it first asks the app to stop dispatching
// the session's tasks, and stores a snapshot.
func (w *Worker) releaseWithSnapshot(ctx context.Context, id string, epoch int64, reason string) error {
	in := protocol.SessionVerb{
		SessionID: id, Epoch: epoch, Reason: reason, SnapshotFollows: w.sessions.Snapshots(id, epoch),
	}
	out, err := w.link.ReleaseSession(ctx, in)
	switch {
	case err != nil:
		return err
	case out.Outcome == protocol.OutcomeSnapshotRequested:
		w.handBack(ctx, id, epoch)
	default:
		w.sessions.Drop(id, epoch, reason)
	}
	return nil
}

// repeatSnapshot is the pause before a snapshot that no app has received is sent again.
const repeatSnapshot = time.Second

// handBack takes a snapshot of a session and releases the session with it. The session stays held if a prepared
// successor has to restore the snapshot first. ctx limits the snapshot and its delivery.
func (w *Worker) handBack(ctx context.Context, id string, epoch int64) {
	h, ok := w.sessions.BeginSnapshot(ctx, id, epoch, false)
	if !ok {
		return
	}
	outdated := false
	defer func() {
		if h.EndSnapshot() && outdated {
			w.takeSnapshot(id, epoch) // for the later request
		}
	}()
	in := w.snapshotOf(ctx, h)
	in.Reason = protocol.ReasonSnapshot
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.opt.Sessions.SnapshotTimeout)
	defer cancel()
	unknown := false // the app may have stored the snapshot although the worker received no response
	for {
		// The app withdrew its request; after a later one the snapshot would be outdated.
		if outdated = h.UsedSinceSnapshot(); outdated {
			if !unknown {
				w.runner.RemoveSnapshot(in.Snapshot)
			}
			w.log.Debug().Str("session_id", id).Int64("epoch", epoch).
				Msg("discarded a session's snapshot: an activity began meanwhile")
			return
		}
		out, err := w.link.ReleaseSession(sending, in)
		if err == nil {
			w.runner.SnapshotStored(id, in.Snapshot)
		}
		switch reason := protocol.ReasonOf(err); {
		case err == nil && out.Outcome == protocol.OutcomeSnapshotStored:
			w.log.Debug().Str("session_id", id).Int64("epoch", epoch).Msg("stored a session's snapshot for its successor")
			return
		case err == nil:
			w.sessions.Drop(id, epoch, protocol.ReasonSnapshot)
			return
		case reason != "":
			if !unknown {
				w.runner.RemoveSnapshot(in.Snapshot)
			}
			w.log.Debug().Str("session_id", id).Int64("epoch", epoch).Str("reason", string(reason)).
				Msg("the app no longer needs a session's snapshot")
			return
		}
		unknown = true
		if errors.Is(err, link.ErrLeft) { // the worker ends, so no later call can succeed
			cancel()
		}
		select {
		case <-time.After(repeatSnapshot):
		case <-sending.Done():
			w.log.Warn().Err(err).Str("session_id", id).Int64("epoch", epoch).Msg("failed to store a session's snapshot")
			return
		}
	}
}

// snapshotOf takes a snapshot and returns the release that carries it, or the reason why there is none.
func (w *Worker) snapshotOf(ctx context.Context, h *session.Holding) protocol.SessionVerb {
	in := protocol.SessionVerb{SessionID: h.ID, Epoch: h.Epoch}
	if ctx.Err() != nil {
		in.SnapshotFailed = "activities of the session still run"
		return in
	}
	began := time.Now()
	type result struct {
		snap *protocol.SessionSnapshot
		err  error
	}
	taken := make(chan result, 1)
	go func() { // not in w.snapshots: the code may never return
		snap, err := w.runner.Snapshot(ctx, h)
		taken <- result{snap, err}
	}()
	var r result
	select {
	case r = <-taken:
	case <-ctx.Done(): // the code ignores the end of its context
		r.err = context.Cause(ctx)
	}
	if r.err != nil {
		in.SnapshotFailed = protocol.ErrorText(r.err.Error())
		w.log.Warn().Str("error", in.SnapshotFailed).Str("session_id", h.ID).Int64("epoch", h.Epoch).
			Msg("failed to take a snapshot of a session; its state is lost")
		return in
	}
	in.Snapshot = r.snap
	w.log.Info().Str("session_id", h.ID).Int64("epoch", h.Epoch).Int64("bytes", r.snap.Bytes).
		Float64("seconds", time.Since(began).Seconds()).Msg("took a snapshot of a session")
	return in
}

// takeLastSnapshots takes snapshots of the held sessions before the worker closes their state.
func (w *Worker) takeLastSnapshots(ctx context.Context) map[string]protocol.SessionVerb {
	if !w.link.Connected() {
		return nil
	}
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-min(2*callsTime, w.opt.DrainTimeout/4)))
		defer cancel()
	}
	return w.snapshotAll(ctx)
}

// snapshotAll takes snapshots of the held sessions at the end of the worker, and returns the releases that carry them,
// by session. No task runs any more.
func (w *Worker) snapshotAll(ctx context.Context) map[string]protocol.SessionVerb {
	all := map[string]protocol.SessionVerb{}
	ctx, cancel := context.WithTimeout(ctx, w.opt.Sessions.SnapshotTimeout)
	defer cancel()
	var mu sync.Mutex // guards all
	var wait sync.WaitGroup
	for _, s := range w.sessions.List() {
		if !w.sessions.Snapshots(s.SessionID, s.Epoch) {
			continue
		}
		wait.Go(func() {
			h, ok := w.sessions.BeginSnapshot(ctx, s.SessionID, s.Epoch, true)
			if !ok {
				return
			}
			defer h.EndSnapshot()
			in := w.snapshotOf(ctx, h)
			mu.Lock()
			defer mu.Unlock()
			all[s.SessionID] = in
		})
	}
	wait.Wait()
	return all
}
