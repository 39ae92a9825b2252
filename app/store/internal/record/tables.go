package record

import "github.com/sojourn-run/sojourn/app/store/internal/db"

// These are the tables that the committer writes. Rows are filled and read in the order of the columns.
var (
	Workflows = &db.Table{Name: "workflows", Keys: 2, Versioned: true, Columns: []db.Column{
		db.Text("namespace"), db.Text("workflow_id"), db.Text("run_id"), db.Num("runs"),
	}}
	Runs = &db.Table{Name: "runs", Keys: 1, Versioned: true, Columns: []db.Column{
		db.Text("run_id"), db.Text("namespace").Immutable(), db.Text("workflow_id").Immutable(), db.Text("type").Immutable(),
		db.Num("number").Immutable(),
		db.Text("status"),
		db.Text("queue").Immutable(), db.Num("started_at").Immutable(), db.Num("closed_at").Opt(), db.Num("last_seq"),
		db.Num("due_at").Opt(),
		db.Text("owner").Opt(),
		db.Text("business_key").Opt().Immutable(), db.Text("state"), db.Text("build_id").Opt().Immutable(),
		db.Num("suspect").Opt(), db.Text("held").Opt(),
		// The committer writes failing with the run. The pass that finds tasks without a worker writes the other three
		// columns, and a write of the run leaves them unchanged.
		db.Text("failing").Opt(), db.Text("unserved").Opt().Immutable(), db.Num("unserved_at").Opt().Immutable(),
		db.Text("unserved_why").Opt().Immutable(),
		db.Text("inbox").Opt().Immutable(), db.Num("inbox_from").Opt().Immutable(),
	}}
	Events = &db.Table{Name: "events", Keys: 2, Columns: []db.Column{
		db.Text("run_id"), db.Num("seq"), db.Num("at"), db.Text("type"), db.Text("task_id").Opt(),
		db.Num("seen_through").Opt(),
		db.Text("payload"), db.Text("session").Opt(), db.Num("last").Opt(), db.Num("ended").Opt(),
		db.Text("heads").Opt(),
		db.Num("follows").Opt(),
	}}
	Tasks = &db.Table{Name: "tasks", Keys: 2, Prune: true, Columns: []db.Column{
		db.Text("run_id"), db.Num("seq"), db.Text("namespace").Immutable(), db.Text("queue").Immutable(),
		db.Text("kind").Immutable(), db.Text("state"),
		db.Text("route").Opt(),
		db.Num("priority").Immutable(), db.Num("ready_at").Opt(), db.Num("due_at").Opt(), db.Text("owner").Opt(),
		db.Text("session_id").Opt().Immutable(), db.Text("body"), db.Num("rank"), db.Num("suspect").Opt(),
	}}
	Items = &db.Table{Name: "items", Keys: 3, Prune: true, Columns: []db.Column{
		db.Text("run_id"), db.Text("kind"), db.Num("seq"), db.Num("due_at").Opt(), db.Text("body"),
	}}
	Sessions = &db.Table{Name: "sessions", Keys: 2, Prune: true, Many: true, Versioned: true, Columns: []db.Column{
		db.Text("namespace"), db.Text("session_id"), db.Text("door").Immutable(),
		db.Text("workflow_id").Opt(), db.Text("status"),
		db.Text("owner").Opt(), db.Num("epoch"),
		db.Num("lease_until").Opt(), db.Num("due_at").Opt(), db.Num("updated_at"), db.Text("queue"),
		db.Num("claimed"), db.Num("terminal"),
		db.Text("word"), db.Text("body"), db.Text("behind").Opt(),
		db.Text("prepare_for").Opt(), db.Num("prepare_until").Opt(),
		db.Text("units").Opt(), db.Text("prepare_units").Opt(),
	}}
	Timeline = &db.Table{Name: "session_events", Columns: []db.Column{
		db.Text("namespace"), db.Text("session_id"), db.Num("at"), db.Text("body"),
	}}
	SessionArguments = &db.Table{Name: "session_arguments", Keys: 2, Columns: []db.Column{
		db.Text("namespace"), db.Text("session_id"), db.Text("payload"),
	}}
	SessionSnapshots = &db.Table{Name: "session_snapshots", Keys: 2, Columns: []db.Column{
		db.Text("namespace"), db.Text("session_id"), db.Text("payload"),
	}}
	Epochs  = &db.Table{Name: "epochs", Keys: 1, Columns: []db.Column{db.Text("namespace"), db.Num("floor")}}
	Workers = &db.Table{Name: "workers", Keys: 2, Prune: true, Columns: []db.Column{
		db.Text("namespace"), db.Text("worker_id"), db.Text("incarnation"), db.Text("status"),
		db.Num("alive_until"), db.Num("updated_at"),
		db.Text("body"),
	}}
	Receipts = &db.Table{Name: "receipts", Keys: 3, Columns: []db.Column{
		db.Text("namespace"), db.Text("workflow_id"), db.Text("request_id"), db.Text("hash"), db.Text("body"),
		db.Num("at"),
	}}
	Tokens = &db.Table{Name: "tokens", Keys: 1, Prune: true, Columns: []db.Column{
		db.Text("token_id"), db.Text("hash"), db.Num("created_at"), db.Num("expires_at").Opt(),
		db.Num("revoked_at").Opt(), db.Text("body"),
	}}
	Audit = &db.Table{Name: "audit", Columns: []db.Column{
		db.Num("at"), db.Text("identity"), db.Text("action"), db.Text("namespace"), db.Text("target"),
		db.Text("detail"),
	}}
	RoutingKeys = &db.Table{
		Name: "lanes", Keys: 4, Columns: []db.Column{
			db.Text("namespace"), db.Text("queue"), db.Text("kind"), db.Text("lane"), db.Num("used_at"),
		},
	}
)

// Attributes contains a row for each value of the search attributes of runs. The key of a value sorts like the value.
var Attributes = &db.Table{Name: "run_attributes", Keys: 3, Columns: []db.Column{
	db.Text("run_id"), db.Text("name"), db.Text("value"), db.Text("namespace"), db.Num("started_at"),
}}

// Fairness contains the tags of fairness classes. The row of the class "" contains the fairness clock of a queue in
// which a task ever had a fairness key.
var Fairness = &db.Table{Name: "fairness", Keys: 5, Columns: []db.Column{
	db.Text("namespace"), db.Text("queue"), db.Text("kind"), db.Num("tier"), db.Text("class"), db.Num("tag"),
}}

// InheritedChildren holds the open children that earlier runs of a workflow id started. Its key is the chain, so the
// rows do not change when the chain continues. A writer holds the lock of the chain's current run.
var InheritedChildren = &db.Table{Name: "former_children", Keys: 3, Prune: true, Columns: []db.Column{
	db.Text("namespace"), db.Text("workflow_id"), db.Text("child_id"), db.Num("bound").Immutable(), db.Text("body"),
}}

// Logs holds the log lines of activities. They are neither loaded for a decision nor locked; a repeated part changes
// nothing. Since writing log lines does not lock their run, the run may have been removed with its namespace; later
// parts are then omitted by the statement that writes them.
var Logs = &db.Table{Name: "activity_logs", Keys: 4, Columns: []db.Column{
	db.Text("run_id"), db.Num("seq"), db.Num("delivery"), db.Num("part"), db.Num("at"), db.Num("size"),
	db.Text("body"),
}}

// SignalInbox holds signals that runs inherit without copies. Its rows never change.
var SignalInbox = &db.Table{Name: "signal_inbox", Keys: 2, Prune: true, Columns: []db.Column{
	db.Text("inbox"), db.Num("number"), db.Text("body"), db.Num("bytes"),
}}

// Namespaces contains the namespaces with their settings and usage.
var Namespaces = &db.Table{
	Name: "namespaces", Keys: 1, Prune: true, Columns: []db.Column{
		db.Text("name"), db.Num("created_at").Immutable(),
		db.Text("body"),
	},
}

// Queues contains operators' settings of queues and namespaces, and the counts for limits.
var Queues = &db.Table{Name: "queues", Keys: 2, Prune: true, Columns: []db.Column{
	db.Text("namespace"), db.Text("queue"), db.Num("updated_at"), db.Text("body"),
}}

// BatchJobs contains the batch jobs; BatchRuns contains a row for each run that a job concerns.
var (
	BatchJobs = &db.Table{Name: "batch_jobs", Keys: 2, Prune: true, Columns: []db.Column{
		db.Text("namespace"), db.Text("job_id"), db.Num("created_at").Immutable(), db.Num("closed_at").Opt(),
		db.Text("body"),
	}}
	BatchRuns = &db.Table{Name: "batch_runs", Keys: 3, Prune: true, Many: true, Columns: []db.Column{
		db.Text("namespace"), db.Text("job_id"), db.Num("number"), db.Text("run_id").Immutable(),
		db.Text("workflow_id").Immutable(), db.Text("state"), db.Num("at").Opt(), db.Text("reason").Opt(),
		db.Text("message").Opt(),
	}}
)

// Schedules contains the schedules; ScheduleEvents contains their histories.
var (
	Schedules = &db.Table{Name: "schedules", Keys: 2, Prune: true, Columns: []db.Column{
		db.Text("namespace"), db.Text("schedule_id"), db.Text("status"), db.Num("due_at").Opt(), db.Text("body"),
	}}
	ScheduleEvents = &db.Table{Name: "schedule_events", Columns: []db.Column{
		db.Text("namespace"), db.Text("schedule_id"), db.Num("seq"), db.Num("at"), db.Text("body"),
	}}
)
