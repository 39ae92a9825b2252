package presence

import (
	"encoding/json"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// What is known of a worker next to its row is lost with the app. Whoever takes its workers up has their rows alone, so
// what must outlive the app is stored.

// Heard is one worker, and what is known of it next to its row.
type Heard struct {
	Worker  *engine.Worker
	signals map[string][]string // that the worker declared, by workflow type
	At      time.Time           // last sign of life at this app; zero: only read from the store
	// Elsewhere is the AliveUntil of the row if another app received the last stored heartbeat; only a Roster sets it
	Elsewhere history.Time
	StoredAt  time.Time // when this app last stored one; zero: never, so the next one is stored
	Stored    time.Time // the sign of life that it stored then
	Machine   json.RawMessage
	Slots     json.RawMessage
	Process   json.RawMessage
	Gate      string    // why the release gate holds it
	Draining  bool      // as it said last, here or by its row at another app
	Unsaid    bool      // it said so here, and its row does not know
	Unsure    time.Time // last time at which it was unknown whether a poll of the worker had leased tasks
	// when this app read a registration that another app took, or itself before it restarted; zero: it took it
	Adopted time.Time
	LookAt  time.Time // when to look whether another app hears it still; zero: this app hears it, or never did
	Beats   bool      // it sends heartbeats, as its row says as well once that is stored
	Hushed  bool      // it missed so many heartbeats that its polls were ended
	Skipped bool      // its soft sessions do not wait for it, because it missed two heartbeats at every app
	Left    bool      // by an app that is gone: what it holds is taken away if no other app hears it by lookAt
	// when the last of its heartbeats said that it runs nothing of a kind; without one that it runs some
	Rested map[protocol.TaskKind]time.Time
	// when this app gave it something last that it may hold for minutes, or heard it of that
	Gave  time.Time
	Close bool // the row was last stored while Closely was true: it allows for no heartbeat that is not stored
	Exact bool // the row expires one Alive after Stored: it allows for no later heartbeat at this app
	// polls, by the kinds that they ask for, of which the last response with tasks could not be delivered: the next one
	// gets a single task, in case it was the size of the response
	Narrow map[string]bool

	// what an operator wants of it, as this app told it, and since when; of a drained one, when it was looked what it had
	// left, and whether that was nothing
	Told           protocol.Intent
	ToldAt, Looked time.Time
	Emptied        bool
}

// Read is what a worker's row says of it.
func Read(w *engine.Worker) Heard {
	return Heard{Worker: w, signals: w.Declares("signals"), Draining: w.Status == protocol.WorkerDraining}
}

// Hear notes a heartbeat; within With alone. Who comes from another app may hold what that one gave it.
func (h *Heard) Hear() {
	now := time.Now()
	if h.At.IsZero() {
		h.Adopted, h.Gave = now, now
	}
	h.At, h.LookAt, h.Left, h.Hushed = now, time.Time{}, false, false
}

// Missed says whether the worker's silence means anything: it renews what it holds by itself, or sends heartbeats. Who
// only polls may be silent as long as it works, and keeps its leases.
func (h *Heard) Missed() bool { return h.Beats || h.Worker.Beats }

// Closely says whether every heartbeat of a worker is stored before it is answered: should it die together with this
// app, the others know when it was heard last. It is for those that hold something whose leases are too long to wait
// for; who rests is stored twice a minute.
func (h *Heard) Closely(holds time.Duration) bool {
	return !h.Worker.Explicit && h.Missed() && !h.Gave.IsZero() && time.Since(h.Gave) < holds
}

// Full are the kinds of tasks that the worker runs its most of, as its last heartbeat said.
func (h *Heard) Full() map[protocol.TaskKind]bool {
	full := map[protocol.TaskKind]bool{}
	for kind, free := range h.free() {
		full[kind] = most(h.Worker, kind) > 0 && free <= 0
	}
	return full
}

// free are the slots of each kind that the worker has free, as its last heartbeat said, or its registration before it;
// a kind of which it says nothing is not among them.
func (h *Heard) free() map[protocol.TaskKind]int {
	said := struct {
		Workflow *int `json:"workflow_available"`
		Activity *int `json:"activity_available"`
	}{}
	slots := h.Slots
	if len(slots) == 0 {
		slots = h.Worker.Slots
	}
	if len(slots) == 0 || json.Unmarshal(slots, &said) != nil { // what a foreign worker sends is its own affair
		return nil
	}
	free := map[protocol.TaskKind]int{}
	if said.Workflow != nil {
		free[protocol.KindWorkflow] = *said.Workflow
	}
	if said.Activity != nil {
		free[protocol.KindActivity] = *said.Activity
	}
	return free
}

// most is how many tasks of a kind a worker runs at once.
func most(w *engine.Worker, kind protocol.TaskKind) int {
	if kind == protocol.KindWorkflow {
		return w.WorkflowSlots
	}
	return w.ActivitySlots
}
