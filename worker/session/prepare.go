package session

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A successor sets a session up while another worker owns it. The holding then has no epoch: it is not in held, no
// attempt enters it, and it is not renewed like a held session. When the app reports the epoch under which this worker
// has acquired the session, the state moves to a holding of that epoch.

// Prepare returns a holding for the state of a session that another worker owns under this epoch. a has no epoch. An
// earlier preparation of the session is discarded.
func (s *Sessions) Prepare(a *protocol.SessionAffinity, epoch int64) *Holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropPrepared(a.SessionID, "prepared again")
	h := s.newHolding(a)
	h.Epoch, h.setUpArgs = epoch, a.Arguments.Blob
	if s.opt.NewState != nil {
		h.State = s.opt.NewState()
	}
	s.prepared[a.SessionID] = h
	return h
}

// SetUp records that the set-up of a prepared session has ended. It returns false if the preparation was discarded
// meanwhile; then the caller must close the state.
func (h *Holding) SetUp() bool {
	h.set.mu.Lock()
	defer h.set.mu.Unlock()
	h.rebuilds++
	return h.dropped == ""
}

// Discard drops the prepared state of a session. The caller of Prepare closes it if its set-up still runs.
func (s *Sessions) Discard(id string, epoch int64, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.prepared[id]; h != nil && h.Epoch == epoch {
		s.dropPrepared(id, reason)
	}
}

// dropPrepared drops the prepared state of a session, if there is any. While the set-up runs, the caller of Prepare
// closes the state. The caller must hold mu.
func (s *Sessions) dropPrepared(id, reason string) {
	h := s.prepared[id]
	if h == nil {
		return
	}
	delete(s.prepared, id)
	h.dropped = reason
	if h.rebuilds > 0 {
		s.closeState(h)
	}
}

// CloseState closes the state of a preparation that was discarded while its set-up ran, or whose set-up failed.
func (h *Holding) CloseState() {
	s := h.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prepared[h.ID] == h {
		delete(s.prepared, h.ID)
	}
	if h.dropped == "" {
		h.dropped = "not set up"
	}
	s.closeState(h)
}

// Discarded returns why the prepared state was dropped; empty: it exists, or became the state of an epoch.
func (h *Holding) Discarded() string {
	h.set.mu.Lock()
	defer h.set.mu.Unlock()
	return h.dropped
}

// Acquired adopts the state that was prepared for an epoch as the state of the epoch in a, which this worker has
// acquired. Without such a state the next heartbeat releases the epoch.
func (s *Sessions) Acquired(a *protocol.SessionAffinity, preparedFor int64, lease Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	highest, _ := s.epochs.of(a.SessionID)
	switch h := s.prepared[a.SessionID]; {
	case highest >= a.Epoch: // a task of the epoch arrived before
	case h == nil || h.Epoch != preparedFor || h.rebuilds == 0:
		s.givenUp[a.SessionID] = a.Epoch
	default:
		s.adopt(h, a).extend(lease.until(h.lease))
	}
}

// adopt makes prepared state the state of an epoch that this worker has acquired. The caller must hold mu.
func (s *Sessions) adopt(p *Holding, a *protocol.SessionAffinity) *Holding {
	delete(s.prepared, p.ID)
	if old := s.held[p.ID]; old != nil {
		s.remove(old, "superseded")
	}
	h := s.newHolding(a)
	h.Epoch, h.State, h.rebuilds, h.setUpArgs = a.Epoch, p.State, p.rebuilds, p.setUpArgs
	h.last = time.Now()
	if s.opt.Adopt != nil {
		s.opt.Adopt(p.ID, p.Epoch, h.Epoch)
	}
	s.hold(h)
	s.log.Debug().Str("session_id", h.ID).Int64("epoch", h.Epoch).Msg("session acquired with prepared state")
	return h
}

// dropAllPrepared drops all prepared state, because the worker ends.
func (s *Sessions) dropAllPrepared(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.prepared {
		s.dropPrepared(id, reason)
	}
}
