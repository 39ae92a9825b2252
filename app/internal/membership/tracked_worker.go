package membership

import (
	"encoding/json"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A TrackedWorker is in memory only and is lost with its app. Another app that adopts the worker has only the worker's
// row, so all state that must survive the app is stored in the row.

// TrackedWorker is one worker with the state that this app has in memory in addition to the worker's row.
type TrackedWorker struct {
	Worker  *engine.Worker
	signals map[string][]string // signals that the worker declared, by workflow type
	At      time.Time           // last heartbeat at this app; zero: the worker was only read from its row
	// Elsewhere is the AliveUntil of the row if another app received the last stored heartbeat; only a Roster sets it
	Elsewhere     history.Time
	StoredAt      time.Time // when this app last stored a heartbeat; zero: never, so it stores the next one
	Stored        time.Time // time of the heartbeat that this app stored last
	Machine       json.RawMessage
	Slots         json.RawMessage
	Process       json.RawMessage
	Gate          string    // why the release gate holds the worker
	Draining      bool      // drain state of the worker's last heartbeat, here or, by its row, at another app
	DrainUnstored bool      // the worker's row lacks the drain state that its heartbeat reported here
	UnknownPollAt time.Time // last time at which it was unknown whether a poll of the worker had leased tasks
	// Adopted is the time at which this app received the first heartbeat of a worker that it knew only from its row;
	// zero: the worker registered at this app since it started
	Adopted time.Time
	// When to check whether another app receives its heartbeats; zero: this app receives them, or never did.
	CheckAt    time.Time
	Beats      bool // the worker sends heartbeat requests; stored in its row
	PollsEnded bool // the worker's polls were ended because it missed too many heartbeats
	Skipped    bool // other workers may acquire its soft sessions: it missed two heartbeats at every app
	Orphaned   bool // the worker's app died: its leases end unless another app receives a heartbeat by CheckAt
	// IdleAt is the time of the last heartbeat that reported no running task of a kind; removed by a heartbeat that
	// reports one
	IdleAt map[protocol.TaskKind]time.Time
	// LastLeaseAt is the last time at which this app leased something to the worker, or received a request under a lease
	LastLeaseAt time.Time
	StoresEach  bool // StoresEachHeartbeat was true when the row was last stored: every later heartbeat is stored
	ExactExpiry bool // the row expires one Alive after Stored, so every later heartbeat must be stored
	// SingleTask are the kinds of polls whose last response with tasks could not be delivered. The next such poll returns
	// a single task, in case the response was too large.
	SingleTask map[string]bool

	// SentIntent is the operator's intent as this app sent it to the worker, SentIntentAt the time of the first notice
	// with this intent. LeasesCheckedAt is the time of the last check of a drained worker's leases, HadNoLeases whether it
	// had none.
	SentIntent                    protocol.Intent
	SentIntentAt, LeasesCheckedAt time.Time
	HadNoLeases                   bool
}

// TrackRow returns the state of a worker that its row contains.
func TrackRow(w *engine.Worker) TrackedWorker {
	return TrackedWorker{Worker: w, signals: w.Declares("signals"), Draining: w.Status == protocol.WorkerDraining}
}

// RecordHeartbeat records a heartbeat; the caller holds the lock of With. A worker that comes from another app may hold
// leases that it acquired there.
func (h *TrackedWorker) RecordHeartbeat() {
	now := time.Now()
	if h.At.IsZero() {
		h.Adopted, h.LastLeaseAt = now, now
	}
	h.At, h.CheckAt, h.Orphaned, h.PollsEnded = now, time.Time{}, false, false
}

// SendsHeartbeats reports whether a missing heartbeat means that the worker may be dead: the worker renews its leases
// itself, or sends heartbeat requests. A worker that only polls may be silent while it runs a task, and keeps its
// leases.
func (h *TrackedWorker) SendsHeartbeats() bool { return h.Beats || h.Worker.Beats }

// StoresEachHeartbeat reports whether every heartbeat of a worker is stored before it is answered, so that the other
// apps know the last one if the worker and this app die together. It is true for workers that acquired something within
// the last holds, whose leases are too long to wait for. Heartbeats of other workers are stored once per StoreAlive.
func (h *TrackedWorker) StoresEachHeartbeat(holds time.Duration) bool {
	return !h.Worker.Explicit && h.SendsHeartbeats() && !h.LastLeaseAt.IsZero() && time.Since(h.LastLeaseAt) < holds
}

// Full returns the kinds of tasks of which the worker runs its maximum, by its last heartbeat.
func (h *TrackedWorker) Full() map[protocol.TaskKind]bool {
	full := map[protocol.TaskKind]bool{}
	for kind, free := range h.free() {
		full[kind] = slotsOf(h.Worker, kind) > 0 && free <= 0
	}
	return full
}

// free returns the free slots of a worker by kind, from its last heartbeat or, before one, from its registration. Kinds
// that the worker does not report are missing.
func (h *TrackedWorker) free() map[protocol.TaskKind]int {
	reported := struct {
		Workflow *int `json:"workflow_available"`
		Activity *int `json:"activity_available"`
	}{}
	slots := h.Slots
	if len(slots) == 0 {
		slots = h.Worker.Slots
	}
	if len(slots) == 0 || json.Unmarshal(slots, &reported) != nil { // malformed slots of other SDKs are ignored
		return nil
	}
	free := map[protocol.TaskKind]int{}
	if reported.Workflow != nil {
		free[protocol.KindWorkflow] = *reported.Workflow
	}
	if reported.Activity != nil {
		free[protocol.KindActivity] = *reported.Activity
	}
	return free
}

// slotsOf returns how many tasks of a kind a worker runs at once.
func slotsOf(w *engine.Worker, kind protocol.TaskKind) int {
	if kind == protocol.KindWorkflow {
		return w.WorkflowSlots
	}
	return w.ActivitySlots
}
