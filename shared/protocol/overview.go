package protocol

import (
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
)

// Overview is the state of one app and of the cluster as this app knows it, for the dashboard's first page.
type Overview struct {
	Release    string                    `json:"release"`
	Unreadable bool                      `json:"release_unreadable,omitempty"` // no release could be read: 0.0.0
	App        string                    `json:"app_id"`
	Store      string                    `json:"store"`
	Uptime     int64                     `json:"uptime_seconds"`
	Counts     map[string]map[string]int `json:"counts"` // runs, sessions, workers, each by status
	// maximum of the counts of runs, sessions, and ready or delayed tasks; the maximum plus one means "more"
	UpTo   int         `json:"runs_counted_up_to,omitempty"`
	Queues []QueueView `json:"queues"`
	// ClockJump is the last jump of the database's clock that this app found since its start
	ClockJump *ClockJump `json:"clock_jump,omitempty"`
}

// ClockJump is a jump of the database's clock.
type ClockJump struct {
	Direction string       `json:"direction"` // forward, back
	By        float64      `json:"by_seconds"`
	At        history.Time `json:"at"` // time at which the jump was detected, by the clock after the jump
	// number of rows whose leases and back-offs were shifted by the jump
	Rows int `json:"rows"`
	// error because of which some rows may not have been shifted
	Error string `json:"error,omitempty"`
}

// String describes the jump and what the apps changed after it.
func (j ClockJump) String() string {
	by := time.Duration(j.By * float64(time.Second)).Round(time.Second)
	text := fmt.Sprintf("the database's clock went %s by %s at %s; leases, back-offs and schedules follow it, timers, "+
		"start delays and timeouts keep their times", j.Direction, by, j.At.UTC().Format(time.RFC3339))
	if j.Error != "" {
		text += "; some rows may not follow it: " + j.Error
	}
	return text
}

// RunCounts are the runs of a namespace by status, counted up to a maximum; the maximum plus one means "more".
type RunCounts struct {
	Runs map[string]int `json:"runs"`
	UpTo int            `json:"counted_up_to"`
	// stuck runs: open runs that make no progress and need an operator; Runs counts them as running
	Stuck int `json:"stuck"`
}

// QueueView is the backlog of one queue and kind of task.
type QueueView struct {
	Namespace   string       `json:"namespace"`
	Queue       string       `json:"queue"`
	Kind        TaskKind     `json:"kind"`
	Ready       int          `json:"ready"`
	Leased      int          `json:"leased"`
	Delayed     int          `json:"delayed"`
	OldestReady history.Time `json:"oldest_ready"`
}
