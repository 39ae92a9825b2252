package protocol

import "github.com/sojourn-run/sojourn/shared/history"

// Overview is the state of one app and of what it sees, for the dashboard's first page.
type Overview struct {
	Release    string                    `json:"release"`
	Unreadable bool                      `json:"release_unreadable,omitempty"` // no release could be read: 0.0.0
	App        string                    `json:"app_id"`
	Store      string                    `json:"store"`
	Uptime     int64                     `json:"uptime_seconds"`
	Counts     map[string]map[string]int `json:"counts"` // runs, sessions, workers, each by status
	// of runs and sessions, and of tasks that are ready or delayed; one more stands for any number that is larger
	UpTo   int         `json:"runs_counted_up_to,omitempty"`
	Queues []QueueView `json:"queues"`
}

// RunCounts are the runs of a namespace by status, counted up to a number; one more stands for any that is larger.
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
