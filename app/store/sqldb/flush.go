package sqldb

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Writing is one statement for each table, however many changes the batch had. Under load that is what makes a
// batch cheap.

// flush is rows gathered while the changes are applied; the others are found by what is marked as changed.
type flush struct {
	audit          *rowset
	logs, goneLogs *rowset
	receipts       map[store.ReceiptKey]*store.Receipt
	tokens         map[string]*store.Token // nil: dropped
	floors         map[string]int64
}

func newFlush() *flush {
	return &flush{
		audit: newRowset(auditTable.columns),
		logs:  newRowset(logsTable.columns), goneLogs: newRowset(logsTable.key()),
		receipts: map[store.ReceiptKey]*store.Receipt{}, tokens: map[string]*store.Token{}, floors: map[string]int64{},
	}
}

// write sends everything that changed since the last write, one statement a table, and with last COMMIT behind
// it. A batch that changed nothing writes nothing, and so costs no sync of the disk.
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
	if b.recalled && len(b.grown) > 0 {
		return errForgotten // what is written ahead would stay, though the batch turns out to be wrong
	}
	if err := b.ahead(); err != nil {
		return err
	}
	changed := b.dirty || len(calls) > 0
	switch {
	case b.recalled && !b.passed:
		if changed || !last {
			calls = append(b.guards(), calls...)
		}
	// Only now does a database of one process begin its transaction: what changed nothing never took the lock.
	case changed && !b.s.cfg.Dialect.Shared && !b.begun:
		stamp := &Call{Stmt: b.s.st.batch, Args: []any{b.s.cfg.App, b.number, b.now.UnixMicro()}}
		calls = append(append(b.opening(), stamp), calls...)
	// Nothing is stored, so there is nothing to wait for on the disk.
	case last && !changed && b.begun:
		b.later = nil
		return b.s.cfg.Conn.Reset(context.Background())
	}
	b.dirty = b.dirty || changed
	if last && b.begun {
		calls = append(calls, b.leftIn()...)
		// COMMIT goes along with the last writes, which saves a round trip. From here on a lost answer leaves open
		// what is stored.
		calls = append(calls, &Call{Stmt: b.s.st.commit})
		b.sealed = true
	}
	if !last { // the claims that follow send it along with what they ask first
		b.later = append(b.later, calls...)
		return nil
	}
	return b.send(calls...)
}

// gather makes the calls for what changed, and notes it as written.
func (b *batch) gather() ([]*Call, error) {
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
	queues, err := b.gatherQueues()
	if err != nil {
		return nil, err
	}
	calls = append(calls, queues...)
	calls = append(calls, b.gatherTags()...)
	events := newRowset(eventsTable.columns)
	runs, moved := newRowset(runsTable.columns), newRowset(runsTable.columns)
	tasks := newTaskRows(st)
	items, goneItems := newRowset(itemsTable.columns), newRowset(itemsTable.key())
	attributes, goneAttributes := newRowset(attributesTable.columns), newRowset(attributeRun)
	// In the order of their keys, like all that is written: two apps that write the same rows must not do so
	// crosswise.
	for _, id := range slices.Sorted(maps.Keys(b.runs)) {
		r := b.runs[id]
		if r.Run == nil {
			continue
		}
		b.gatherEvents(id, events)
		if err := b.gatherRun(r, runs, moved, tasks); err != nil {
			return nil, err
		}
		if err := b.gatherItems(r, items, goneItems); err != nil {
			return nil, err
		}
		b.gatherAttributes(r, attributes, goneAttributes)
		r.written()
	}
	calls = append(calls, st.addEvents.calls(events)...)
	calls = append(calls, st.putRuns.calls(runs)...)
	calls = append(calls, st.moveRuns.calls(moved)...)
	calls = append(calls, st.dropAttributes.calls(goneAttributes)...)
	calls = append(calls, st.addAttributes.calls(attributes)...)
	// Before the tasks, because those are written with the new routing words already.
	sessions, err := b.gatherSessions()
	if err != nil {
		return nil, err
	}
	calls = append(calls, sessions...)
	calls = append(calls, st.dropTasks.calls(tasks.gone)...)
	calls = append(calls, st.succeedTasks.calls(tasks.succeed)...)
	calls = append(calls, st.putTasks.calls(tasks.put)...)
	calls = append(calls, st.dropItems.calls(goneItems)...)
	calls = append(calls, st.putItems.calls(items)...)
	former, err := b.gatherFormer()
	if err != nil {
		return nil, err
	}
	calls = append(calls, former...)
	rest, err := b.gatherRest()
	b.flush = newFlush()
	return append(calls, rest...), err
}

// taskRows are the rows of tasks that a batch writes: those that come or stay, those that come in the place of one of
// the same run, which ended, and the keys of what ended beside them.
type taskRows struct{ put, succeed, gone *rowset }

func newTaskRows(st *statements) taskRows {
	return taskRows{
		put: newRowset(tasksTable.columns), succeed: newRowset(st.succeedTasks.columns), gone: newRowset(tasksTable.key()),
	}
}

// gatherEvents adds what is not written yet of what the batch adds to a history.
func (b *batch) gatherEvents(run string, rows *rowset) {
	evs, ok := b.events[run]
	if !ok || evs.written == len(evs.list) {
		return
	}
	led, ok := b.leads[run]
	if !ok {
		led, _ = b.s.cache.leads.get(run)
	}
	p := packing{events: evs.list[evs.written:], payloads: evs.payloads, sessions: evs.sessions, lead: led}
	if p.rows(rows, run); p.lead != led {
		if b.leads == nil {
			b.leads = map[string]lead{}
		}
		b.leads[run] = p.lead
	}
	evs.written, evs.payloads, evs.sessions = len(evs.list), nil, nil
	b.events[run] = evs
}

// gatherRun adds the rows of one run: its head if that changed, and its tasks. A task that ended gives its row
// to one that begins in the same step, which halves the writes of a chain of activities.
func (b *batch) gatherRun(r *run, runs, moved *rowset, tasks taskRows) error {
	want := r.readyRow()
	ended := r.endedTasks(want)
	// next is where the row of a task goes, with done to be called behind it.
	next := func(stored bool) (to *rowset, done func()) {
		if stored || len(ended) == 0 {
			return tasks.put, func() {}
		}
		return tasks.succeed, func() {
			tasks.succeed.i(ended[0])
			ended = ended[1:]
		}
	}
	if r.changed {
		r.wrote = true
		is, to := settledOf(&r.Head), runs
		// On SQLite an update writes the entries of all indexes that it names. Most steps leave these columns
		// alone, so the statement for them names none.
		if !b.s.cfg.Dialect.Shared && r.was != nil && *r.was == is {
			to = moved
		}
		if err := addRun(to, &r.Head); err != nil {
			return err
		}
		r.was = &is
		// Whatever has a time is told to the sweeper after the commit; else it would sleep until something else is
		// due.
		b.dueAt(r.Head.DueAt())
		if want != r.stored && want != (readyRow{}) {
			to, done := next(r.stored != readyRow{})
			addReady(to, &r.Head, want.route)
			done()
			b.lane(QueueKey{r.Namespace, r.Queue, protocol.KindWorkflow}, r.workflowLane().String())
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
		if err := addActivity(to, &r.Head, &a, where); err != nil {
			return err
		}
		done()
		b.dueAt(a.DueAt())
	}
	for _, seq := range ended {
		tasks.gone.s(r.ID).i(seq)
	}
	return nil
}

// endedTasks are the tasks whose stored rows have to go. 0 is the workflow task, which has a row only while it
// is ready.
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

// routeOf is the route of a ready activity, by the word of its session as the batch leaves it.
func (b *batch) routeOf(r *run, a *engine.Activity) string {
	w := "*"
	var s *engine.Session
	if a.SessionID != "" {
		w = "+"
		if row := b.sessions[engine.SessionKey{Namespace: r.Namespace, ID: a.SessionID}]; row != nil && row.Session != nil {
			s = row.Session
			w = s.Route(s.Word(b.now, row.word))
		}
	}
	q := QueueKey{r.Namespace, a.Queue, protocol.KindActivity}
	l := activityLane(a, s).String()
	b.lane(q, l)
	return route(q, l, w)
}

// lane notes a lane that has a ready task, so that claims will look there, unless it is sure to be known.
func (b *batch) lane(q QueueKey, l string) {
	if known, ok := b.s.lanes.known[q][l]; ok && known.used+laneTrust.Microseconds() > b.now.UnixMicro() {
		return
	}
	if _, ok := b.lanes[laneKey{q, l}]; !ok {
		b.lanes[laneKey{q, l}] = true
	}
}

// gatherItems adds the other open rows of a run: timers, waits, messages, updates, children, signals. Timers
// and messages carry the time at which the sweeper has to look at them.
func (b *batch) gatherItems(r *run, items, gone *rowset) error {
	for seq, had := range r.timers {
		if t, ok := r.Timers.Get(seq); ok {
			if err := addItem(items, r.ID, timerItem, seq, t.FireAt, &t); err != nil {
				return err
			}
			b.dueAt(t.FireAt)
		} else if had {
			gone.s(r.ID).s(timerItem).i(seq)
		}
	}
	if err := gatherTable(r.ID, waitItem, r.waits, &r.Waits, items, gone); err != nil {
		return err
	}
	for seq, had := range r.owed {
		if m, ok := r.Owed.Get(seq); ok {
			if err := addItem(items, r.ID, string(store.DueMessage), seq, m.At, &m); err != nil {
				return err
			}
			b.dueAt(m.At)
		} else if had {
			gone.s(r.ID).s(string(store.DueMessage)).i(seq)
		}
	}
	if err := gatherTable(r.ID, updateItem, r.updates, &r.Updates, items, gone); err != nil {
		return err
	}
	if err := gatherTable(r.ID, childItem, r.children, &r.Children, items, gone); err != nil {
		return err
	}
	if err := gatherTable(r.ID, attachedItem, r.attached, &r.Attached, items, gone); err != nil {
		return err
	}
	if err := gatherTable(r.ID, signalItem, r.signals, &r.Signals, items, gone); err != nil {
		return err
	}
	return gatherTable(r.ID, unreadItem, r.unread, &r.Unread, items, gone)
}

// Rows of one kind without a time of their own: what is in the table is written, what is not any more goes if it
// had a row.
func gatherTable[V any](
	run, kind string, changed map[int64]bool, t *engine.Table[int64, V], items, gone *rowset,
) error {
	for seq, had := range changed {
		if v, ok := t.Get(seq); ok {
			if err := addItem(items, run, kind, seq, history.Time{}, &v); err != nil {
				return err
			}
		} else if had {
			gone.s(run).s(kind).i(seq)
		}
	}
	return nil
}

// gatherSessions writes changed sessions, and moves the ready tasks of those whose routing word changed: a poll
// looks for tasks by the word in their rows.
func (b *batch) gatherSessions() ([]*Call, error) {
	rows, gone := newRowset(sessionsTable.columns), newRowset(sessionsTable.key())
	moved := newRowset([]column{text("namespace"), text("session_id"), text("word")})
	var keys []engine.SessionKey // most steps change nothing that is written of their session
	for k, s := range b.sessions {
		if s.Session != nil && (s.deleted || !s.stands(b.now)) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(x, y engine.SessionKey) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.ID, y.ID))
	})
	for _, k := range keys {
		s := b.sessions[k]
		switch {
		case s.deleted:
			if s.dirty && s.row != nil {
				gone.s(k.Namespace).s(k.ID)
			}
			s.dirty, s.row = false, nil
		default:
			w := s.Word(b.now, s.word)
			to := s.Route(w)
			// The word stands in the rows of the tasks as well, or a poll would have to look at the session of
			// each. So when it changes they are moved to it; without a ready task there is nothing to move.
			if s.row != nil && to != s.route && (s.Ready > 0 || (to[0] != '-' && s.route[0] != '-')) {
				moved.s(k.Namespace).s(k.ID).s(to)
			}
			if s.changed(w) {
				s.settleBehind()
				if err := addSession(rows, s.Session, w, s.behind); err != nil {
					return nil, err
				}
				b.dueAt(s.DueAt())
				s.row, s.word, s.due, s.wrote = s.Session, w, s.DueAt().Micros(), true
			}
			s.dirty, s.route = false, to
		}
	}
	calls := b.s.st.putSessions.calls(rows)
	calls = append(calls, b.s.st.dropSessions.calls(gone)...)
	if !moved.empty() {
		args := []any{moved.json()}
		if b.s.cfg.Dialect.Shared {
			args = moved.arrays()
		}
		calls = append(calls, &Call{Stmt: b.s.st.reroute, Args: args, Row: func(v []any) error {
			q := QueueKey{str(v[0]), str(v[1]), protocol.TaskKind(str(v[2]))}
			b.leave(q, laneIn(q, str(v[3]))...)
			return nil
		}})
	}
	timeline := newRowset(timelineTable.columns)
	for ; b.told < len(b.moves); b.told++ {
		m := &b.moves[b.told]
		body, err := document(&m.SessionEvent)
		if err != nil {
			return nil, err
		}
		timeline.s(m.Session.Namespace).s(m.Session.ID).i(m.At.Micros()).s(body)
	}
	return append(calls, b.s.st.addTimeline.calls(timeline)...), nil
}

// gatherRest writes the tables that change seldom.
func (b *batch) gatherRest() ([]*Call, error) {
	st := b.s.st
	workflows, fresh := newRowset(workflowsTable.columns), newRowset(workflowsTable.columns)
	workers, goneWorkers := newRowset(workersTable.columns), newRowset(workersTable.key())
	tokens, goneTokens, floors := newRowset(tokensTable.columns), newRowset(tokensTable.key()),
		newRowset(epochsTable.columns)
	lanes := newRowset(lanesTable.columns)
	// A workflow id that was taken to be free and is not written after all was decided on without a look. The
	// batch is run again, with one.
	for _, f := range b.workflows {
		if f.assumed && !f.dirty {
			return nil, errForgotten // what was decided on that would be answered without a look
		}
		if f.dirty {
			to := workflows
			if f.assumed {
				to = fresh
			}
			to.s(f.Namespace).s(f.ID).s(f.RunID).i(f.Runs)
			f.dirty, f.assumed, f.wrote = false, false, true
		}
	}
	for k, w := range b.workers {
		switch {
		case !w.dirty:
		case w.Worker != nil:
			if err := addWorker(workers, w.Worker); err != nil {
				return nil, err
			}
			w.stored = true
		case w.stored:
			goneWorkers.s(k.Namespace).s(k.ID)
			w.stored = false
		}
		w.dirty = false
	}
	for id, t := range b.flush.tokens {
		if t == nil {
			goneTokens.s(id)
		} else if err := addToken(tokens, t); err != nil {
			return nil, err
		}
	}
	receipts := newRowset(receiptsTable.columns)
	for _, c := range b.flush.receipts {
		addReceipt(receipts, c)
	}
	for _, ns := range slices.Sorted(maps.Keys(b.flush.floors)) {
		floors.s(ns).i(b.flush.floors[ns])
	}
	for _, k := range slices.SortedFunc(maps.Keys(b.lanes), func(x, y laneKey) int {
		return cmp.Or(x.QueueKey.compare(y.QueueKey), cmp.Compare(x.lane, y.lane))
	}) {
		if b.lanes[k] {
			lanes.s(k.Namespace).s(k.Queue).s(string(k.Kind)).s(k.lane).i(b.now.UnixMicro())
			b.lanes[k] = false
		}
	}
	var calls []*Call
	for _, w := range []struct {
		w *writer
		r *rowset
	}{
		{st.addWorkflows, fresh},
		{st.putWorkflows, workflows},
		{st.putWorkers, workers},
		{st.dropWorkers, goneWorkers},
		{st.putReceipts, receipts},
		{st.putTokens, tokens},
		{st.dropTokens, goneTokens},
		{st.addAudit, b.flush.audit},
		{st.dropLogs, b.flush.goneLogs},
		{st.addLogs, b.flush.logs},
	} {
		calls = append(calls, w.w.calls(w.r)...)
	}
	// Rows that batches of several apps may add at the same time. A row that does not exist yet cannot be locked,
	// so one app would wait for the end of the other's batch. They are written ahead instead, see ahead.
	grown := append(st.putEpochs.calls(floors), b.leaveLanes()...)
	grown = append(grown, st.addLanes.calls(lanes)...)
	if b.s.cfg.Dialect.Shared {
		b.grown = append(b.grown, grown...)
		return calls, nil
	}
	return append(calls, grown...), nil
}
