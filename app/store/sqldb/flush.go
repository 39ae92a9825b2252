package sqldb

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A batch writes each table with one statement for any number of transactions. This makes batches cheap under
// load.

// flush contains rows that were collected while the transactions were applied; the other rows to write are marked as
// changed.
type flush struct {
	audit          *db.Rowset
	goneAudits     *db.Rowset
	logs, goneLogs *db.Rowset
	receipts       map[store.ReceiptKey]*store.Receipt
	batchJobs      map[engine.BatchJobKey]bool             // changed batch jobs
	batchRuns      map[engine.BatchRunKey]*engine.BatchRun // nil: deleted
	tokens         map[string]*store.Token                 // nil: deleted
	watermarks     map[string]int64
	arguments      map[engine.SessionKey]string // arguments of session definitions
	snapshots      map[engine.SessionKey]string // payloads of snapshots
}

func newFlush() *flush {
	return &flush{
		audit: db.NewRowset(record.Audit.Columns), goneAudits: db.NewRowset(auditNumber),
		logs: db.NewRowset(record.Logs.Columns), goneLogs: db.NewRowset(record.Logs.Key()),
		receipts: map[store.ReceiptKey]*store.Receipt{}, tokens: map[string]*store.Token{}, watermarks: map[string]int64{},
		arguments: map[engine.SessionKey]string{}, snapshots: map[engine.SessionKey]string{},
		batchJobs: map[engine.BatchJobKey]bool{}, batchRuns: map[engine.BatchRunKey]*engine.BatchRun{},
	}
}

// write sends everything that changed since the last write, one statement per table, and with last also COMMIT. A batch
// without changes writes nothing, and so needs no disk sync.
func (b *batch) write(last bool) error {
	if b.broken != nil {
		return b.broken
	}
	if err := b.countRan(); err != nil {
		return err
	}
	calls, err := b.gather()
	if err != nil {
		return err
	}
	if b.recalled && len(b.aheadCalls) > 0 {
		return errNotCached // rows that were written before would stay even if the batch turns out to be wrong
	}
	if err := b.writeAhead(); err != nil {
		return err
	}
	changed := b.dirty || len(calls) > 0
	switch {
	case b.recalled && !b.guardsSent:
		if changed || !last {
			calls = append(b.guardCalls(), calls...)
		}
	// With a single process, the transaction begins only here, so that a batch without changes never takes the lock.
	case changed && !b.s.cfg.Dialect.Shared && !b.begun:
		stamp := &db.Call{Stmt: b.s.st.batch, Args: []any{b.s.cfg.App, b.number, b.now.UnixMicro()}}
		calls = append(append(b.openTransaction(), stamp), calls...)
	// Nothing is stored, so no disk sync is needed.
	case last && !changed && b.begun:
		b.later = nil
		return b.s.cfg.Conn.Reset(context.Background())
	}
	b.dirty = b.dirty || changed
	if last && b.begun {
		calls = append(calls, b.gatherReadyInLeased()...)
		// COMMIT is sent with the last writes, which saves a round trip. From here on, a lost response leaves the
		// outcome unknown.
		calls = append(calls, &db.Call{Stmt: b.s.st.commit})
		b.sealed = true
	}
	if !last { // the claims that follow send it with their first query
		b.later = append(b.later, calls...)
		return nil
	}
	return b.send(calls...)
}

// gather returns the calls that write the changes, and marks them as written.
func (b *batch) gather() ([]*db.Call, error) {
	st := b.s.st
	calls, err := b.gatherRemoval()
	if err != nil {
		return nil, err
	}
	schedules, err := b.gatherSchedules()
	if err != nil {
		return nil, err
	}
	calls = append(calls, schedules...)
	batchJobs, err := b.gatherBatchJobs()
	if err != nil {
		return nil, err
	}
	calls = append(calls, batchJobs...)
	queues, err := b.gatherQueues()
	if err != nil {
		return nil, err
	}
	calls = append(calls, queues...)
	calls = append(calls, b.gatherTags()...)
	events, inbox := db.NewRowset(record.Events.Columns), db.NewRowset(record.SignalInbox.Columns)
	runs, moved := db.NewRowset(record.Runs.Columns), db.NewRowset(record.Runs.Columns)
	tasks := newTaskRows(st)
	items, goneItems := db.NewRowset(record.Items.Columns), db.NewRowset(record.Items.Key())
	attributes, goneAttributes := db.NewRowset(record.Attributes.Columns), db.NewRowset(attributeRun)
	// Write in the order of keys, like all writes: otherwise two apps that write the same rows could deadlock.
	for _, id := range slices.Sorted(maps.Keys(b.runs)) {
		r := b.runs[id]
		if r.Run == nil {
			continue
		}
		if err := b.gatherEvents(id, events, inbox); err != nil {
			return nil, err
		}
		if err := b.gatherRun(r, runs, moved, tasks); err != nil {
			return nil, err
		}
		if err := b.gatherItems(r, items, goneItems); err != nil {
			return nil, err
		}
		b.gatherAttributes(r, attributes, goneAttributes)
		r.written()
	}
	calls = append(calls, st.addEvents.Calls(events)...)
	calls = append(calls, st.addInbox.Calls(inbox)...)
	calls = append(calls, st.putRuns.Calls(runs)...)
	calls = append(calls, st.moveRuns.Calls(moved)...)
	calls = append(calls, b.gatherUnserved()...)
	calls = append(calls, st.dropAttributes.Calls(goneAttributes)...)
	calls = append(calls, st.addAttributes.Calls(attributes)...)
	// Sessions come before the tasks, which are written with the new routing words.
	sessions, err := b.gatherSessions()
	if err != nil {
		return nil, err
	}
	calls = append(calls, sessions...)
	calls = append(calls, st.dropTasks.Calls(tasks.gone)...)
	calls = append(calls, st.succeedTasks.Calls(tasks.succeed)...)
	calls = append(calls, st.putTasks.Calls(tasks.upserted)...)
	calls = append(calls, st.dropItems.Calls(goneItems)...)
	calls = append(calls, st.putItems.Calls(items)...)
	inherited, err := b.gatherInherited()
	if err != nil {
		return nil, err
	}
	calls = append(calls, inherited...)
	rest, err := b.gatherRest()
	b.flush = newFlush()
	return append(calls, rest...), err
}

// taskRows are the rows of tasks that a batch writes: new or changed tasks (upserted), new tasks that replace an ended
// task of the same run (succeed), and the keys of other ended tasks (gone).
type taskRows struct{ upserted, succeed, gone *db.Rowset }

func newTaskRows(st *statements) taskRows {
	return taskRows{
		upserted: db.NewRowset(record.Tasks.Columns), succeed: db.NewRowset(st.succeedTasks.Columns),
		gone: db.NewRowset(record.Tasks.Key()),
	}
}

// gatherEvents adds the events of the batch that are not written yet.
func (b *batch) gatherEvents(run string, rows, inbox *db.Rowset) error {
	evs, ok := b.events[run]
	if !ok || evs.written == len(evs.list) {
		return nil
	}
	if evs.inherits != nil {
		if err := record.AddInherited(rows, inbox, run, evs.list[0].At, evs.inherits); err != nil {
			return err
		}
		evs.inherits = nil
	}
	led, ok := b.leads[run]
	if !ok {
		led, _ = b.s.cache.leads.get(run)
	}
	p := record.Packing{Events: evs.list[evs.written:], Payloads: evs.payloads, Sessions: evs.sessions, Lead: led}
	if p.Rows(rows, run); p.Lead != led {
		if b.leads == nil {
			b.leads = map[string]record.Lead{}
		}
		b.leads[run] = p.Lead
	}
	evs.written, evs.payloads, evs.sessions = len(evs.list), nil, nil
	b.events[run] = evs
	return nil
}

// gatherRun adds the rows of one run: its head if it changed, and its tasks. A task that begins in the step in which
// another task of the run ended replaces the row of that task, which halves the writes of sequential activities.
func (b *batch) gatherRun(r *run, runs, moved *db.Rowset, tasks taskRows) error {
	want := r.readyRow()
	ended := r.endedTasks(want)
	// next returns the rowset for the row of a task; done must be called afterwards.
	next := func(stored bool) (to *db.Rowset, done func()) {
		if stored || len(ended) == 0 {
			return tasks.upserted, func() {}
		}
		return tasks.succeed, func() {
			tasks.succeed.I(ended[0])
			ended = ended[1:]
		}
	}
	if r.changed {
		r.wrote = true
		is, to := settledOf(&r.Head), runs
		// On SQLite an update writes the entries of all indexes whose columns it sets. Most steps do not change these
		// columns, so they use a statement that does not set them.
		if !b.s.cfg.Dialect.Shared && r.was != nil && *r.was == is {
			to = moved
		}
		if err := record.AddRun(to, &r.Head); err != nil {
			return err
		}
		r.was = &is
		// The sweeper is notified of every due time after the commit; otherwise it would sleep until another row is
		// due.
		b.dueAt(r.Head.DueAt())
		if want != r.stored && want != (readyRow{}) {
			to, done := next(r.stored != readyRow{})
			if err := record.AddReady(to, &r.Head, want.route); err != nil {
				return err
			}
			done()
			b.recordRoutingKey(QueueKey{r.Namespace, r.Queue, protocol.KindWorkflow}, r.workflowRoutingKey().String())
		}
		r.stored = want
	}
	for seq, had := range r.activities {
		a, ok := r.Activities.Get(seq)
		if !ok {
			continue
		}
		where := ""
		if a.State == engine.Ready {
			where = b.routeOf(r, &a)
		}
		to, done := next(had)
		if err := record.AddActivity(to, &r.Head, &a, where); err != nil {
			return err
		}
		done()
		b.dueAt(a.DueAt())
	}
	for _, seq := range ended {
		tasks.gone.S(r.ID).I(seq)
	}
	return nil
}

// endedTasks returns the tasks whose stored rows must be deleted. Number 0 means the workflow task, which has a row
// only while it is ready.
func (r *run) endedTasks(want readyRow) (seqs []int64) {
	if none := (readyRow{}); r.changed && r.stored != none && want == none {
		seqs = append(seqs, 0)
	}
	for seq, had := range r.activities {
		if _, ok := r.Activities.Get(seq); had && !ok {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// routeOf returns the route of a ready activity, with the routing word that its session has after the batch.
func (b *batch) routeOf(r *run, a *engine.Activity) string {
	w := "*"
	var s *engine.Session
	if a.SessionID != "" {
		w = "+"
		if row := b.sessions[engine.SessionKey{Namespace: r.Namespace, ID: a.SessionID}]; row != nil && row.Session != nil {
			s = row.Session
			w = s.StoredRoutingWord(s.RoutingWord(b.now, row.routingWord))
		}
	}
	q := QueueKey{r.Namespace, a.Queue, protocol.KindActivity}
	l := activityRoutingKey(a, s).String()
	b.recordRoutingKey(q, l)
	return route(q, l, w)
}

// recordRoutingKey records a routing key of a ready task, so that claims search for it, unless it is known to be
// stored.
func (b *batch) recordRoutingKey(q QueueKey, l string) {
	if known, ok := b.s.routingKeys.known[q][l]; ok && known.used+routingKeyTrust.Microseconds() > b.now.UnixMicro() {
		return
	}
	if _, ok := b.routingKeys[queueRoutingKey{q, l}]; !ok {
		b.routingKeys[queueRoutingKey{q, l}] = true
	}
}

// gatherItems adds the other open rows of a run: timers, waits, messages, updates, children, signals. Rows of timers
// and messages contain the time at which the sweeper must visit them.
func (b *batch) gatherItems(r *run, items, gone *db.Rowset) error {
	for seq, had := range r.timers {
		if t, ok := r.Timers.Get(seq); ok {
			if err := record.AddItem(items, r.ID, record.TimerItem, seq, t.FireAt, &t); err != nil {
				return err
			}
			b.dueAt(t.FireAt)
		} else if had {
			gone.S(r.ID).S(record.TimerItem).I(seq)
		}
	}
	if err := gatherTable(r.ID, record.WaitItem, r.waits, &r.Waits, items, gone); err != nil {
		return err
	}
	for seq, had := range r.owed {
		if m, ok := r.Undelivered.Get(seq); ok {
			if err := record.AddItem(items, r.ID, string(store.DueMessage), seq, m.At, &m); err != nil {
				return err
			}
			b.dueAt(m.At)
		} else if had {
			gone.S(r.ID).S(string(store.DueMessage)).I(seq)
		}
	}
	if err := gatherTable(r.ID, record.UpdateItem, r.updates, &r.Updates, items, gone); err != nil {
		return err
	}
	if err := gatherTable(r.ID, record.ChildItem, r.children, &r.Children, items, gone); err != nil {
		return err
	}
	if err := gatherTable(r.ID, record.AttachedItem, r.attached, &r.Attached, items, gone); err != nil {
		return err
	}
	if err := gatherTable(r.ID, record.SignalItem, r.signals, &r.Signals, items, gone); err != nil {
		return err
	}
	return gatherTable(r.ID, record.UnreadItem, r.unread, &r.Unread, items, gone)
}

// gatherTable adds the rows of one kind without a due time: rows in the table are written, and stored rows that are no
// longer in it are deleted.
func gatherTable[V any](
	run, kind string, changed map[int64]bool, t *engine.Table[int64, V], items, gone *db.Rowset,
) error {
	for seq, had := range changed {
		if v, ok := t.Get(seq); ok {
			if err := record.AddItem(items, run, kind, seq, history.Time{}, &v); err != nil {
				return err
			}
		} else if had {
			gone.S(run).S(kind).I(seq)
		}
	}
	return nil
}

// gatherSessions writes changed sessions, and updates the ready tasks of sessions whose routing word changed, because a
// poll finds tasks by the word in their rows.
func (b *batch) gatherSessions() ([]*db.Call, error) {
	rows, gone := db.NewRowset(record.Sessions.Columns), db.NewRowset(record.Sessions.Key())
	moved := db.NewRowset([]db.Column{db.Text("namespace"), db.Text("session_id"), db.Text("word")})
	arguments, goneArguments := db.NewRowset(record.SessionArguments.Columns), db.NewRowset(record.SessionArguments.Key())
	snapshots, goneSnapshots := db.NewRowset(record.SessionSnapshots.Columns), db.NewRowset(record.SessionSnapshots.Key())
	var keys []engine.SessionKey // most steps change no stored column of their session
	for k, s := range b.sessions {
		if s.Session != nil && (s.deleted || !s.upToDate(b.now)) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, engine.SessionKey.Compare)
	for _, k := range keys {
		s := b.sessions[k]
		switch {
		case s.deleted:
			if s.dirty && s.row != nil {
				gone.S(k.Namespace).S(k.ID)
				if s.row.ArgumentsHash != "" {
					goneArguments.S(k.Namespace).S(k.ID)
				}
				if s.row.StoresSnapshot() {
					goneSnapshots.S(k.Namespace).S(k.ID)
				}
			}
			s.dirty, s.row = false, nil
		default:
			w := s.RoutingWord(b.now, s.routingWord)
			to := s.StoredRoutingWord(w)
			// The rows of the tasks also contain the routing word, so that a poll need not read each task's session. If
			// the word changed, it is written to the ready tasks, if there are any.
			if s.row != nil && to != s.route && (s.Ready > 0 || (to[0] != '-' && s.route[0] != '-')) {
				moved.S(k.Namespace).S(k.ID).S(to)
			}
			if s.changed(w) {
				if s.row != nil && s.row.StoresSnapshot() && !s.StoresSnapshot() {
					goneSnapshots.S(k.Namespace).S(k.ID)
				}
				s.forgetFormerOwners()
				if err := record.AddSession(rows, s.Session, w, s.formerOwners); err != nil {
					return nil, err
				}
				b.dueAt(s.DueAt())
				s.row, s.routingWord, s.due, s.wrote = s.Session, w, s.DueAt().Micros(), true
			}
			s.dirty, s.route = false, to
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(b.flush.arguments), engine.SessionKey.Compare) {
		if s := b.sessions[k]; !s.deleted {
			arguments.S(k.Namespace).S(k.ID).S(b.flush.arguments[k])
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(b.flush.snapshots), engine.SessionKey.Compare) {
		if s := b.sessions[k]; !s.deleted && s.StoresSnapshot() {
			snapshots.S(k.Namespace).S(k.ID).S(b.flush.snapshots[k])
		}
	}
	calls := b.s.st.putSessions.Calls(rows)
	calls = append(calls, b.s.st.dropSessions.Calls(gone)...)
	calls = append(calls, b.s.st.putSessionArguments.Calls(arguments)...)
	calls = append(calls, b.s.st.dropSessionArguments.Calls(goneArguments)...)
	calls = append(calls, b.s.st.putSessionSnapshots.Calls(snapshots)...)
	calls = append(calls, b.s.st.dropSessionSnapshots.Calls(goneSnapshots)...)
	if !moved.Empty() {
		args := []any{moved.JSON()}
		if b.s.cfg.Dialect.Shared {
			args = moved.Arrays()
		}
		calls = append(calls, &db.Call{Stmt: b.s.st.reroute, Args: args, Row: func(v []any) error {
			q := QueueKey{db.Str(v[0]), db.Str(v[1]), protocol.TaskKind(db.Str(v[2]))}
			b.addBacklog(q, parseRoute(q, db.Str(v[3]))...)
			return nil
		}})
	}
	timeline := db.NewRowset(record.Timeline.Columns)
	for ; b.timelineWritten < len(b.moves); b.timelineWritten++ {
		m := &b.moves[b.timelineWritten]
		body, err := record.Document(&m.SessionEvent)
		if err != nil {
			return nil, err
		}
		timeline.S(m.Session.Namespace).S(m.Session.ID).I(m.At.Micros()).S(body)
	}
	return append(calls, b.s.st.addTimeline.Calls(timeline)...), nil
}

// gatherRest writes the tables that change seldom.
func (b *batch) gatherRest() ([]*db.Call, error) {
	st := b.s.st
	workflows, fresh := db.NewRowset(record.Workflows.Columns), db.NewRowset(record.Workflows.Columns)
	workers, goneWorkers := db.NewRowset(record.Workers.Columns), db.NewRowset(record.Workers.Key())
	tokens, goneTokens, watermarks := db.NewRowset(record.Tokens.Columns), db.NewRowset(record.Tokens.Key()),
		db.NewRowset(record.Epochs.Columns)
	routingKeys := db.NewRowset(record.RoutingKeys.Columns)
	// A workflow ID that was assumed to be unused, and that no transaction creates, was decided on without reading its
	// row. The batch is run again and reads the row.
	for _, f := range b.workflows {
		if f.assumed && !f.dirty {
			return nil, errNotCached // otherwise a result would depend on a row that was not read
		}
		if f.dirty {
			to := workflows
			if f.assumed {
				to = fresh
			}
			to.S(f.Namespace).S(f.ID).S(f.RunID).I(f.Runs)
			f.dirty, f.assumed, f.wrote = false, false, true
		}
	}
	for k, w := range b.workers {
		switch {
		case !w.dirty:
		case w.Worker != nil:
			if err := record.AddWorker(workers, w.Worker); err != nil {
				return nil, err
			}
			w.stored = true
		case w.stored:
			goneWorkers.S(k.Namespace).S(k.ID)
			w.stored = false
		}
		w.dirty = false
	}
	for id, t := range b.flush.tokens {
		if t == nil {
			goneTokens.S(id)
		} else if err := record.AddToken(tokens, t); err != nil {
			return nil, err
		}
	}
	receipts := db.NewRowset(record.Receipts.Columns)
	for _, c := range b.flush.receipts {
		record.AddReceipt(receipts, c)
	}
	for _, ns := range slices.Sorted(maps.Keys(b.flush.watermarks)) {
		watermarks.S(ns).I(b.flush.watermarks[ns])
	}
	for _, k := range slices.SortedFunc(maps.Keys(b.routingKeys), func(x, y queueRoutingKey) int {
		return cmp.Or(x.QueueKey.compare(y.QueueKey), cmp.Compare(x.text, y.text))
	}) {
		if b.routingKeys[k] {
			routingKeys.S(k.Namespace).S(k.Queue).S(string(k.Kind)).S(k.text).I(b.now.UnixMicro())
			b.routingKeys[k] = false
		}
	}
	var calls []*db.Call
	for _, w := range []struct {
		w *db.Writer
		r *db.Rowset
	}{
		{st.addWorkflows, fresh},
		{st.putWorkflows, workflows},
		{st.putWorkers, workers},
		{st.dropWorkers, goneWorkers},
		{st.putReceipts, receipts},
		{st.putTokens, tokens},
		{st.dropTokens, goneTokens},
		{st.addAudit, b.flush.audit},
		{st.dropAudits, b.flush.goneAudits},
		{st.dropLogs, b.flush.goneLogs},
		{st.addLogs, b.flush.logs},
	} {
		calls = append(calls, w.w.Calls(w.r)...)
	}
	// Batches of several apps may add these rows at the same time. A row that does not exist yet cannot be locked, so
	// one app would wait for the end of the other's batch. Therefore they are written before the batch; see writeAhead.
	aheadCalls := append(st.putEpochs.Calls(watermarks), b.gatherUnusedRoutingKeys()...)
	aheadCalls = append(aheadCalls, st.addRoutingKeys.Calls(routingKeys)...)
	if b.s.cfg.Dialect.Shared {
		b.aheadCalls = append(b.aheadCalls, aheadCalls...)
		return calls, nil
	}
	return append(calls, aheadCalls...), nil
}
