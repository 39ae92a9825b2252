package session

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A session whose definition has OnHandOver and Restore is released with a snapshot of its state. No attempt runs while
// the snapshot is taken: the app has stopped dispatching tasks of the session, and the snapshot counts as an attempt,
// so that the state is not closed meanwhile.

// Snapshot returns the snapshot that must be restored after the set-up; nil: none.
func (h *Holding) Snapshot() *protocol.SessionSnapshot {
	h.set.mu.Lock()
	defer h.set.mu.Unlock()
	return h.snapshot
}

// DropSnapshot records that the snapshot was restored or cannot be restored.
func (h *Holding) DropSnapshot() {
	h.set.mu.Lock()
	defer h.set.mu.Unlock()
	h.snapshot, h.snapshotLost = nil, true
}

// ShowLostSnapshot returns true to its first caller in this epoch. That caller must fail its task, because the snapshot
// of the previous epoch could not be restored.
func (h *Holding) ShowLostSnapshot() bool {
	h.set.mu.Lock()
	defer h.set.mu.Unlock()
	first := !h.lossShown
	h.lossShown = true
	return first
}

// signalUnused wakes the callers that wait until no attempt runs. The caller must hold mu.
func (h *Holding) signalUnused() {
	if h.active == 0 && h.unused != nil {
		close(h.unused)
		h.unused = nil
	}
}

// BeginSnapshot waits until no attempt runs in a held session and returns it. The caller must call EndSnapshot. ok is
// false if the worker does not hold the session under this epoch. If another caller takes a snapshot, ok is false, or
// with again BeginSnapshot waits for that snapshot and then returns the session if it is still held.
func (s *Sessions) BeginSnapshot(ctx context.Context, id string, epoch int64, again bool) (h *Holding, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h = s.held[id]; h == nil || h.Epoch != epoch {
		return nil, false
	}
	if h.leaving && !again {
		h.requested = true
		return nil, false
	}
	for h.active > 0 && h.dropped == "" && ctx.Err() == nil {
		h.leaving = true
		if h.unused == nil {
			h.unused = make(chan struct{})
		}
		unused := h.unused
		s.mu.Unlock()
		select {
		case <-unused:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	if h.dropped != "" {
		return nil, false
	}
	h.leaving, h.used, h.requested = true, false, false
	h.active++
	return h, true
}

// UsedSinceSnapshot reports whether an attempt began after BeginSnapshot.
func (h *Holding) UsedSinceSnapshot() bool {
	h.set.mu.Lock()
	defer h.set.mu.Unlock()
	return h.used
}

// EndSnapshot ends what BeginSnapshot began. It reports whether the app requested a snapshot meanwhile.
func (h *Holding) EndSnapshot() (requested bool) {
	s := h.set
	s.mu.Lock()
	defer s.mu.Unlock()
	h.active--
	h.leaving = false
	h.signalUnused()
	if h.active == 0 && h.dropped != "" {
		s.closeState(h)
	}
	return h.requested && h.dropped == ""
}

// SetUpDone reports whether the session has state: a set-up ran, or its result was prepared.
func (h *Holding) SetUpDone() bool { return h.Rebuilds() > 0 }

// Snapshots reports whether a held session is released with a snapshot.
func (s *Sessions) Snapshots(id string, epoch int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[id]
	return h != nil && h.Epoch == epoch && h.snapshots && h.rebuilds > 0
}

// releaseIdle starts the release of an idle session with a snapshot, once until its next activity. The caller must hold
// mu.
func (s *Sessions) releaseIdle(h *Holding, now time.Time) {
	if !h.snapshots || h.rebuilds == 0 || h.leaving || s.opt.ReleaseIdle == nil || h.idleReleased.Equal(h.last) ||
		!h.until.After(now) {
		return
	}
	h.idleReleased = h.last
	s.opt.ReleaseIdle(h.ID, h.Epoch)
}
