package sqldb

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Which member of a row is in which column stands here and nowhere else. What has a column is read from that and
// not from the document, so that there is one place for it.

// document encodes a row's JSON part. These are structs of ours, whose encoding fails only when raw JSON inside them is
// none.
func document(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// The order is that of the table's columns, in this and in all that follow; readers take them by number.
func addRun(r *rowset, h *engine.Head) error {
	state, err := document(h)
	if err != nil {
		return fmt.Errorf("state of run %s: %w", h.ID, err)
	}
	owner := ""
	// The owner is a column, so that what a worker holds is found by an index of those rows alone.
	if h.Status.Open() && h.Task != nil && h.Task.State == engine.LeasedState {
		owner = h.Task.Owner
	}
	r.s(h.ID).s(h.Namespace).s(h.WorkflowID).s(store.TypeColumn(h.Kind, h.Type)).i(h.Number).s(string(h.Status))
	r.s(h.Queue).i(h.StartedAt.Micros()).i(h.ClosedAt.Micros()).i(h.LastSeq).i(h.DueAt().Micros()).s(owner)
	r.s(h.BusinessKey).s(state)
	return nil
}

func readHead(v []any) (engine.Head, error) {
	var h engine.Head
	if err := json.Unmarshal([]byte(str(v[13])), &h); err != nil {
		return h, fmt.Errorf("state of run %s: %w", str(v[0]), err)
	}
	h.ID, h.Namespace, h.WorkflowID, h.Number = str(v[0]), str(v[1]), str(v[2]), integer(v[4])
	h.Type = strings.TrimPrefix(str(v[3]), store.TypeColumn(h.Kind, ""))
	h.Status, h.Queue = protocol.RunStatus(str(v[5])), str(v[6])
	h.StartedAt, h.ClosedAt, h.LastSeq = history.Micros(integer(v[7])), history.Micros(integer(v[8])), integer(v[9])
	return h, nil
}

// sessionKey names a session in one text, by which the rows of events have it.
func sessionKey(k engine.SessionKey) string { return k.Namespace + "\x1f" + k.ID }

// addActivity adds the row of an open activity; route is empty unless it is ready.
func addActivity(r *rowset, run *engine.Head, a *engine.Activity, route string) error {
	body, err := document(a)
	if err != nil {
		return fmt.Errorf("activity %s: %w", engine.StepID(run.ID, a.Seq), err)
	}
	owner := ""
	if a.State == engine.LeasedState {
		owner = a.Owner
	}
	r.s(run.ID).i(a.Seq).s(run.Namespace).s(a.Queue).s(string(protocol.KindActivity)).s(string(a.State)).s(route)
	r.i(int64(a.Priority)).i(a.ReadyAt.Micros()).i(a.DueAt().Micros()).s(owner).s(a.SessionID).s(body).i(a.Rank)
	return nil
}

// addReady adds the row of a ready workflow task: all that is known of it stands in its run's row.
func addReady(r *rowset, run *engine.Head, route string) {
	r.s(run.ID).i(0).s(run.Namespace).s(run.Queue).s(string(protocol.KindWorkflow)).s(string(engine.Ready)).s(route)
	r.i(int64(run.Priority)).i(run.Task.ReadyAt.Micros()).i(0).s("").s("").s("").i(run.Task.Rank)
}

func readActivity(run, namespace string, seq int64, body string) (engine.Activity, error) {
	a := engine.Activity{}
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		return a, fmt.Errorf("activity %s: %w", engine.StepID(run, seq), err)
	}
	a.RunID, a.Namespace, a.Seq = run, namespace, seq
	return a, nil
}

// The kinds of items.
const (
	timerItem  = "timer"
	waitItem   = "wait"
	signalItem = "signal"
	unreadItem = "unread"
	updateItem = "update"
	childItem  = "child"

	attachedItem = "attached"
)

// Items of all kinds share a table. They are asked for by their run, or by their time, whatever they are, and a
// new kind needs no migration.
func addItem(r *rowset, run, kind string, seq int64, due history.Time, v any) error {
	body, err := document(v)
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind, engine.StepID(run, seq), err)
	}
	r.s(run).s(kind).i(seq).i(due.Micros()).s(body)
	return nil
}

// readOpen puts one open row, as run_id, kind, seq, body, into its run.
func readOpen(run *engine.Run, v []any) error {
	kind, seq, body := str(v[1]), integer(v[2]), str(v[3])
	switch kind {
	case string(protocol.KindActivity):
		a, err := readActivity(run.ID, run.Namespace, seq, body)
		if err != nil {
			return err
		}
		run.Activities.Put(seq, a)
		return nil
	case timerItem:
		return readItem(&run.Timers, run.ID, kind, seq, body)
	case waitItem:
		return readItem(&run.Waits, run.ID, kind, seq, body)
	case signalItem:
		return readItem(&run.Signals, run.ID, kind, seq, body)
	case unreadItem:
		return readItem(&run.Unread, run.ID, kind, seq, body)
	case updateItem:
		return readItem(&run.Updates, run.ID, kind, seq, body)
	case childItem:
		return readItem(&run.Children, run.ID, kind, seq, body)
	case attachedItem:
		return readItem(&run.Attached, run.ID, kind, seq, body)
	case string(store.DueMessage):
		return readItem(&run.Owed, run.ID, kind, seq, body)
	}
	return nil // a ready workflow task: its run's row has it
}

// openRows selects the open rows of runs as readOpen takes them.
func openRows(d Dialect) string {
	const columns = "t.run_id, t.kind, t.seq, t.body"
	return once(d, d.probe(runsTable.key(), columns, "tasks", "t.seq > 0", "")+
		" UNION ALL "+d.probe(runsTable.key(), columns, "items", "", ""))
}

// A row that cannot be read fails its run with its name: to leave it out would have the run go on without it.
func readItem[V any](t *engine.Table[int64, V], run, kind string, seq int64, body string) error {
	var v V
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		return fmt.Errorf("%s %s: %w", kind, engine.StepID(run, seq), err)
	}
	t.Put(seq, v)
	return nil
}

// The word is given and not asked for here: it depends on the time, and all rows of a batch have to be of one.
func addSession(r *rowset, s *engine.Session, word string, behind []string) error {
	body, err := document(s)
	if err != nil {
		return fmt.Errorf("session %s: %w", s.ID, err)
	}
	workers := ""
	if len(behind) > 0 {
		if workers, err = document(behind); err != nil {
			return fmt.Errorf("session %s: %w", s.ID, err)
		}
	}
	r.s(s.Namespace).s(s.ID).s(string(s.Door)).s(s.WorkflowID).s(string(s.Status)).s(s.Owner).i(s.Epoch)
	r.i(s.LeaseUntil.Micros()).i(s.DueAt().Micros()).i(s.UpdatedAt.Micros()).s(s.Queue).i(flag(s.Claimed)).
		i(flag(s.Terminal)).s(word).s(body).s(workers)
	return nil
}

func readSession(v []any) (s engine.Session, word string, due int64, err error) {
	if err := json.Unmarshal([]byte(str(v[14])), &s); err != nil {
		return s, "", due, fmt.Errorf("session %s: %w", str(v[1]), err)
	}
	s.Namespace, s.ID, s.Door, s.WorkflowID = str(v[0]), str(v[1]), engine.Door(str(v[2])), str(v[3])
	s.Status, s.Owner, s.Epoch = protocol.SessionStatus(str(v[4])), str(v[5]), integer(v[6])
	s.LeaseUntil, s.UpdatedAt = history.Micros(integer(v[7])), history.Micros(integer(v[9]))
	return s, str(v[13]), integer(v[8]), nil
}

// readBehind reads who held a session before and may have attempts in it.
func readBehind(v []any) ([]string, error) {
	if v[15] == nil {
		return nil, nil
	}
	return undocument[[]string](str(v[15]))
}

func addWorker(r *rowset, w *engine.Worker) error {
	body, err := document(w)
	if err != nil {
		return fmt.Errorf("worker %s: %w", w.ID, err)
	}
	r.s(w.Namespace).s(w.ID).s(w.Incarnation).s(string(w.Status)).i(w.AliveUntil.Micros()).i(w.UpdatedAt.Micros()).s(body)
	return nil
}

func readWorker(v []any) (engine.Worker, error) {
	var w engine.Worker
	if err := json.Unmarshal([]byte(str(v[6])), &w); err != nil {
		return w, fmt.Errorf("worker %s: %w", str(v[1]), err)
	}
	w.Namespace, w.ID, w.Incarnation, w.Status = str(v[0]), str(v[1]), str(v[2]), protocol.WorkerStatus(str(v[3]))
	w.AliveUntil, w.UpdatedAt = history.Micros(integer(v[4])), history.Micros(integer(v[5]))
	return w, nil
}

func readWorkflow(v []any) engine.Workflow {
	return engine.Workflow{Namespace: str(v[0]), ID: str(v[1]), RunID: str(v[2]), Runs: integer(v[3])}
}

func addReceipt(r *rowset, c *store.Receipt) {
	r.s(c.Namespace).s(c.WorkflowID).s(c.RequestID).s(c.Hash).s(string(c.Body)).i(c.At.Micros())
}

func readReceipt(v []any) store.Receipt {
	return store.Receipt{
		ReceiptKey: store.ReceiptKey{Namespace: str(v[0]), WorkflowID: str(v[1]), RequestID: str(v[2])},
		Hash:       str(v[3]), Body: []byte(str(v[4])), At: history.Micros(integer(v[5])),
	}
}

// Neither database is asked for a boolean: one has none.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func undocument[V any](body string) (v V, err error) {
	err = json.Unmarshal([]byte(body), &v)
	return v, err
}
