// Package record maps the engine's types to table rows and back: columns, encoding and the statements that commits and
// reads share.
package record

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Only this file maps fields of a row to columns. A field with a column is not repeated in the JSON document: it is
// read from the column.

// Document encodes the JSON part of a row. Encoding these structs fails only if they contain invalid raw JSON.
func Document(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// All functions below add values in the order of the table's columns, and readers access them by position.

// AddRun adds the row of a run.
func AddRun(r *db.Rowset, h *engine.Head) error {
	state, err := Document(h)
	if err != nil {
		return fmt.Errorf("state of run %s: %w", h.ID, err)
	}
	owner := ""
	// The owner is a column, so that an index of leased rows finds the tasks of a worker.
	if h.Status.Open() && h.Task != nil && h.Task.State == engine.LeasedState {
		owner = h.Task.Owner
	}
	r.S(h.ID).S(h.Namespace).S(h.WorkflowID).S(store.TypeColumn(h.Kind, h.Type)).I(h.Number).S(string(h.Status))
	r.S(h.Queue).I(h.StartedAt.Micros()).I(h.ClosedAt.Micros()).I(h.LastSeq).I(h.DueAt().Micros()).S(owner)
	r.S(h.BusinessKey).S(state).S(h.BuildID)
	if h.Status.Open() && h.Task != nil {
		r.I(suspectColumn(h.Task.Suspect, h.Task.State)).S(string(h.Held))
	} else {
		r.I(0).S("")
	}
	failing := ""
	if s := h.Failing(); s != nil {
		failing = string(s.Reason)
	}
	r.S(failing).S("").I(0).S("")
	inbox, from := "", int64(0)
	if b := h.Inbox; b != nil {
		inbox, from = b.ID, b.Lowest()
	}
	r.S(inbox).I(from)
	return nil
}

// StuckRun returns the condition on a row t of runs that the run is stuck. It contains the condition of the partial
// index runs_stuck with the same words, so that the planner uses the index.
func StuckRun(t string) string {
	return t + ".closed_at IS NULL AND (" + t + ".failing IS NOT NULL OR " + t + ".unserved IS NOT NULL)"
}

// ReadHead reads a row of Runs.
func ReadHead(v []any) (engine.Head, error) {
	var h engine.Head
	if err := json.Unmarshal([]byte(db.Str(v[13])), &h); err != nil {
		return h, fmt.Errorf("state of run %s: %w", db.Str(v[0]), err)
	}
	h.ID, h.Namespace, h.WorkflowID, h.Number = db.Str(v[0]), db.Str(v[1]), db.Str(v[2]), db.Int(v[4])
	h.Type = strings.TrimPrefix(db.Str(v[3]), store.TypeColumn(h.Kind, ""))
	h.Status, h.Queue = protocol.RunStatus(db.Str(v[5])), db.Str(v[6])
	h.StartedAt, h.ClosedAt, h.LastSeq = history.Micros(db.Int(v[7])), history.Micros(db.Int(v[8])), db.Int(v[9])
	if reason := db.Str(v[18]); reason != "" {
		h.Unserved = &engine.Stuck{
			Since: history.Micros(db.Int(v[19])), Reason: protocol.WaitReason(reason), Message: db.Str(v[20]),
		}
	}
	return h, nil
}

// SessionKey returns the key of a session as one text, as stored in rows of events.
func SessionKey(k engine.SessionKey) string { return k.Namespace + "\x1f" + k.ID }

// AddActivity adds the row of an open activity; route is empty unless it is ready.
func AddActivity(r *db.Rowset, run *engine.Head, a *engine.Activity, route string) error {
	body, err := Document(a)
	if err != nil {
		return fmt.Errorf("activity %s: %w", engine.StepID(run.ID, a.Seq), err)
	}
	owner := ""
	if a.State == engine.LeasedState {
		owner = a.Owner
	}
	r.S(run.ID).I(a.Seq).S(run.Namespace).S(a.Queue).S(string(protocol.KindActivity)).S(string(a.State)).S(route)
	r.I(int64(a.Priority)).I(a.ReadyAt.Micros()).I(a.DueAt().Micros()).S(owner).S(a.SessionID).S(body).I(a.Rank)
	r.I(suspectColumn(a.Suspect, a.State))
	return nil
}

// These are values of the column suspect; a task that is no suspect has NULL.
const (
	Suspect  = 1
	Isolated = 2 // blamed, and leased to a process that receives no other task
)

// suspectColumn is the value of the column suspect, on which the partial indexes of suspects are defined.
func suspectColumn(s *engine.Suspicion, state engine.TaskState) int64 {
	switch {
	case s == nil:
		return 0
	case s.Alone && state == engine.LeasedState:
		return Isolated
	}
	return Suspect
}

// AddReady adds the row of a ready workflow task. The state of the task is in its run's row. The body repeats the
// suspicion, because claims choose tasks by it.
func AddReady(r *db.Rowset, run *engine.Head, route string) error {
	body := ""
	if run.Task.Suspect != nil {
		var err error
		if body, err = Document(run.Task.Suspect); err != nil {
			return fmt.Errorf("suspicion of run %s: %w", run.ID, err)
		}
	}
	r.S(run.ID).I(0).S(run.Namespace).S(run.Queue).S(string(protocol.KindWorkflow)).S(string(engine.Ready)).S(route)
	r.I(int64(run.Priority)).I(run.Task.ReadyAt.Micros()).I(0).S("").S("").S(body).I(run.Task.Rank).I(0)
	return nil
}

// ReadActivity reads the document of an open activity.
func ReadActivity(run, namespace string, seq int64, body string) (engine.Activity, error) {
	a := engine.Activity{}
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		return a, fmt.Errorf("activity %s: %w", engine.StepID(run, seq), err)
	}
	a.RunID, a.Namespace, a.Seq = run, namespace, seq
	return a, nil
}

// These are the kinds of items.
const (
	TimerItem  = "timer"
	WaitItem   = "wait"
	SignalItem = "signal"
	UnreadItem = "unread"
	UpdateItem = "update"
	ChildItem  = "child"

	AttachedItem = "attached"
)

// AddItem adds an open item of a run, such as a timer. Activities have a table of their own. Items of all kinds share
// one table, because queries select them by run or by due time, regardless of their kind, and because a new kind then
// needs no migration.
func AddItem(r *db.Rowset, run, kind string, seq int64, due history.Time, v any) error {
	body, err := Document(v)
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind, engine.StepID(run, seq), err)
	}
	r.S(run).S(kind).I(seq).I(due.Micros()).S(body)
	return nil
}

// ReadOpen adds one open row, given as run_id, kind, seq, body, to its run.
func ReadOpen(run *engine.Run, v []any) error {
	kind, seq, body := db.Str(v[1]), db.Int(v[2]), db.Str(v[3])
	switch kind {
	case string(protocol.KindActivity):
		a, err := ReadActivity(run.ID, run.Namespace, seq, body)
		if err != nil {
			return err
		}
		run.Activities.Put(seq, a)
		return nil
	case TimerItem:
		return readItem(&run.Timers, run.ID, kind, seq, body)
	case WaitItem:
		return readItem(&run.Waits, run.ID, kind, seq, body)
	case SignalItem:
		return readItem(&run.Signals, run.ID, kind, seq, body)
	case UnreadItem:
		return readItem(&run.Unread, run.ID, kind, seq, body)
	case UpdateItem:
		return readItem(&run.Updates, run.ID, kind, seq, body)
	case ChildItem:
		return readItem(&run.Children, run.ID, kind, seq, body)
	case AttachedItem:
		return readItem(&run.Attached, run.ID, kind, seq, body)
	case string(store.DueMessage):
		return readItem(&run.Undelivered, run.ID, kind, seq, body)
	}
	return nil // a ready workflow task, which is part of its run's row
}

// OpenRows returns the query of the open rows of runs, with the columns that ReadOpen reads.
func OpenRows(d db.Dialect) string {
	const columns = "t.run_id, t.kind, t.seq, t.body"
	return db.ReuseParameter(d, d.Probe(Runs.Key(), columns, "tasks", "t.seq > 0", "")+
		" UNION ALL "+d.Probe(Runs.Key(), columns, "items", "", ""))
}

// readItem decodes an item. An unreadable row is an error that names the row and fails the load of the run; if it were
// skipped, the run would continue without the item.
func readItem[V any](t *engine.Table[int64, V], run, kind string, seq int64, body string) error {
	var v V
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		return fmt.Errorf("%s %s: %w", kind, engine.StepID(run, seq), err)
	}
	t.Put(seq, v)
	return nil
}

// AddSession adds the row of a session. word is the routing word, which depends on the time: all rows of a batch must
// use the same time.
func AddSession(r *db.Rowset, s *engine.Session, word string, behind []string) error {
	body, err := Document(s)
	if err != nil {
		return fmt.Errorf("session %s: %w", s.ID, err)
	}
	workers := ""
	if len(behind) > 0 {
		if workers, err = Document(behind); err != nil {
			return fmt.Errorf("session %s: %w", s.ID, err)
		}
	}
	r.S(s.Namespace).S(s.ID).S(string(s.Origin)).S(s.WorkflowID).S(string(s.Status)).S(s.Owner).I(s.Epoch)
	r.I(s.LeaseUntil.Micros()).I(s.DueAt().Micros()).I(s.UpdatedAt.Micros()).S(s.Queue).I(Flag(s.EverAcquired)).
		I(Flag(s.Terminal)).S(word).S(body).S(workers)
	successor, until := s.PreparedBy()
	r.S(successor).I(until.Micros())
	used, err := heldResources(s.Incarnation, s.Used)
	if err != nil {
		return fmt.Errorf("session %s: %w", s.ID, err)
	}
	reserved := ""
	if p := s.Prepare; p != nil {
		if reserved, err = heldResources(p.Incarnation, p.Resources); err != nil {
			return fmt.Errorf("session %s: %w", s.ID, err)
		}
	}
	r.S(used).S(reserved)
	return nil
}

// heldResources returns the column for the resources that a session uses at a process; empty if it uses none.
func heldResources(incarnation string, r protocol.Resources) (string, error) {
	if len(r) == 0 {
		return "", nil
	}
	return Document(engine.HeldResources{Incarnation: incarnation, Resources: r})
}

// ReadHeldResources reads the column of the resources that a session uses at a process.
func ReadHeldResources(v any) (engine.HeldResources, error) {
	if v == nil {
		return engine.HeldResources{}, nil
	}
	return Undocument[engine.HeldResources](db.Str(v))
}

// ReadSession reads a row of Sessions: the session, its routing word and its due time.
func ReadSession(v []any) (s engine.Session, word string, due int64, err error) {
	if err := json.Unmarshal([]byte(db.Str(v[14])), &s); err != nil {
		return s, "", due, fmt.Errorf("session %s: %w", db.Str(v[1]), err)
	}
	s.Namespace, s.ID, s.Origin, s.WorkflowID = db.Str(v[0]), db.Str(v[1]), engine.Origin(db.Str(v[2])), db.Str(v[3])
	s.Status, s.Owner, s.Epoch = protocol.SessionStatus(db.Str(v[4])), db.Str(v[5]), db.Int(v[6])
	s.LeaseUntil, s.UpdatedAt = history.Micros(db.Int(v[7])), history.Micros(db.Int(v[9]))
	return s, db.Str(v[13]), db.Int(v[8]), nil
}

// ReadBehind reads the former owners of a session that may still have attempts in it.
func ReadBehind(v []any) ([]string, error) {
	if v[15] == nil {
		return nil, nil
	}
	return Undocument[[]string](db.Str(v[15]))
}

// AddWorker adds the row of a worker.
func AddWorker(r *db.Rowset, w *engine.Worker) error {
	body, err := Document(w)
	if err != nil {
		return fmt.Errorf("worker %s: %w", w.ID, err)
	}
	r.S(w.Namespace).S(w.ID).S(w.Incarnation).S(string(w.Status)).I(w.AliveUntil.Micros()).I(w.UpdatedAt.Micros()).S(body)
	return nil
}

// ReadWorker reads a row of Workers.
func ReadWorker(v []any) (engine.Worker, error) {
	var w engine.Worker
	if err := json.Unmarshal([]byte(db.Str(v[6])), &w); err != nil {
		return w, fmt.Errorf("worker %s: %w", db.Str(v[1]), err)
	}
	w.Namespace, w.ID, w.Incarnation = db.Str(v[0]), db.Str(v[1]), db.Str(v[2])
	w.Status = protocol.WorkerStatus(db.Str(v[3]))
	w.AliveUntil, w.UpdatedAt = history.Micros(db.Int(v[4])), history.Micros(db.Int(v[5]))
	return w, nil
}

// ReadWorkflow reads a row of Workflows.
func ReadWorkflow(v []any) engine.Workflow {
	return engine.Workflow{Namespace: db.Str(v[0]), ID: db.Str(v[1]), RunID: db.Str(v[2]), Runs: db.Int(v[3])}
}

// AddReceipt adds the row of a receipt.
func AddReceipt(r *db.Rowset, c *store.Receipt) {
	r.S(c.Namespace).S(c.WorkflowID).S(c.RequestID).S(c.Hash).S(string(c.Body)).I(c.At.Micros())
}

// ReadReceipt reads a row of Receipts.
func ReadReceipt(v []any) store.Receipt {
	return store.Receipt{
		ReceiptKey: store.ReceiptKey{Namespace: db.Str(v[0]), WorkflowID: db.Str(v[1]), RequestID: db.Str(v[2])},
		Hash:       db.Str(v[3]), Body: []byte(db.Str(v[4])), At: history.Micros(db.Int(v[5])),
	}
}

// Flag returns a boolean as a number, because SQLite has no boolean type.
func Flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Undocument reads the JSON part of a row.
func Undocument[V any](body string) (v V, err error) {
	err = json.Unmarshal([]byte(body), &v)
	return v, err
}

// ReadInherited reads a row of InheritedChildren.
func ReadInherited(v []any) (engine.InheritedChild, error) {
	f := engine.InheritedChild{Chain: engine.WorkflowKey{Namespace: db.Str(v[0]), ID: db.Str(v[1])}}
	if err := json.Unmarshal([]byte(db.Str(v[4])), &f); err != nil {
		return f, fmt.Errorf("child %s of workflow %s: %w", db.Str(v[2]), db.Str(v[1]), err)
	}
	return f, nil
}

// ReadNamespace reads a row of Namespaces. Members that a newer release added are preserved; see decodeOpen.
func ReadNamespace(v []any) (n store.Namespace, err error) {
	if n.Unknown, err = decodeOpen(db.Str(v[2]), &n, namespaceMembers); err != nil {
		return n, fmt.Errorf("namespace %s: %w", db.Str(v[0]), err)
	}
	n.Name, n.CreatedAt = db.Str(v[0]), history.Micros(db.Int(v[1]))
	return n, nil
}

// ReadQueue reads a row of Queues.
func ReadQueue(v []any) (q engine.Queue, err error) {
	if q.Unknown, err = decodeOpen(db.Str(v[3]), &q, queueMembers); err != nil {
		return q, fmt.Errorf("queue %s: %w", db.Str(v[1]), err)
	}
	q.Namespace, q.Name, q.UpdatedAt = db.Str(v[0]), db.Str(v[1]), history.Micros(db.Int(v[2]))
	return q, nil
}

// ReadSchedule reads a row of Schedules. The status is read from its column, which listings use.
func ReadSchedule(v []any) (engine.Schedule, error) {
	var s engine.Schedule
	if err := json.Unmarshal([]byte(db.Str(v[4])), &s); err != nil {
		return s, fmt.Errorf("schedule %s: %w", db.Str(v[1]), err)
	}
	s.Namespace, s.ID, s.Status = db.Str(v[0]), db.Str(v[1]), db.Str(v[2])
	return s, nil
}

// AddBatchJob adds the row of a batch job.
func AddBatchJob(r *db.Rowset, j *engine.BatchJob) error {
	body, err := Document(j)
	if err != nil {
		return fmt.Errorf("batch job %s: %w", j.ID, err)
	}
	r.S(j.Namespace).S(j.ID).I(j.CreatedAt.Micros()).I(j.ClosedAt.Micros()).S(body)
	return nil
}

// ReadBatchJob reads a row of BatchJobs.
func ReadBatchJob(v []any) (engine.BatchJob, error) {
	var j engine.BatchJob
	if err := json.Unmarshal([]byte(db.Str(v[4])), &j); err != nil {
		return j, fmt.Errorf("batch job %s: %w", db.Str(v[1]), err)
	}
	j.Namespace, j.ID, j.CreatedAt = db.Str(v[0]), db.Str(v[1]), history.Micros(db.Int(v[2]))
	if closed := db.Int(v[3]); closed != 0 {
		j.ClosedAt = history.Micros(closed)
	}
	return j, nil
}

// AddBatchRun adds the row of a run of a batch job.
func AddBatchRun(r *db.Rowset, b *engine.BatchRun) {
	r.S(b.Namespace).S(b.ID).I(b.Number).S(b.Run).S(b.WorkflowID).S(string(b.State)).I(b.At.Micros()).
		S(string(b.Reason)).S(b.Message)
}

// ReadBatchRun reads a row of BatchRuns.
func ReadBatchRun(v []any) engine.BatchRun {
	b := engine.BatchRun{
		BatchJobKey: engine.BatchJobKey{Namespace: db.Str(v[0]), ID: db.Str(v[1])}, Number: db.Int(v[2]),
		Run: db.Str(v[3]), WorkflowID: db.Str(v[4]), State: protocol.BatchRunState(db.Str(v[5])),
		Reason: protocol.Reason(db.Str(v[7])), Message: db.Str(v[8]),
	}
	if at := db.Int(v[6]); at != 0 {
		b.At = history.Micros(at)
	}
	return b
}
