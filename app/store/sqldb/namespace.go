package sqldb

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// Removal writes whole keys away, before everything else of the batch, so that what takes a removed name in the same
// batch is written after it and stays. What the batch has touched already it refuses to drop.

var namespacesTable = &table{
	name: "namespaces", keys: 1, prune: true, columns: []column{text("name"), num("created_at").keep(), text("body")},
}

// receiptFlow is the part of a receipt's key that names the workflow.
var receiptFlow = receiptsTable.columns[:2]

// timelineSession names all entries of a session.
var timelineSession = timelineTable.columns[:2]

// eventRun, taskRun and itemRun name all rows of a run.
var eventRun, taskRun, itemRun = eventsTable.columns[:1], tasksTable.columns[:1], itemsTable.columns[:1]

// removal is what a batch takes away whole: nothing else of the batch touches the same rows before it.
type removal struct {
	namespaces map[string]*store.Namespace // nil: dropped
	runs       map[string]bool
	flows      map[engine.WorkflowKey]bool
	timelines  map[engine.SessionKey]bool
	chains     map[engine.WorkflowKey]bool // of former children
}

// What a later release added to it is kept beside what is known, see unknown.
func readNamespace(v []any) (store.Namespace, error) {
	var n store.Namespace
	if err := json.Unmarshal([]byte(str(v[2])), &n); err != nil {
		return n, fmt.Errorf("namespace %s: %w", str(v[0]), err)
	}
	var err error
	if n.Unknown, err = unknown(str(v[2]), namespaceMembers); err != nil {
		return n, fmt.Errorf("namespace %s: %w", str(v[0]), err)
	}
	n.Name, n.CreatedAt = str(v[0]), history.Micros(integer(v[1]))
	return n, nil
}

func (b *batch) loadNamespaces(keys map[string]bool) []*Call {
	missing := newRowset(namespacesTable.key())
	for k := range keys {
		if _, there := b.namespaces[k]; !there {
			missing.s(k)
		}
	}
	return b.fetch(b.s.st.namespaces, missing, func(v []any) error {
		n, err := readNamespace(v)
		b.namespaces[n.Name] = &n
		return err
	}, func(v []any) { b.lock(namespaceKey(str(v[0]))) })
}

func (b *batch) Namespace(name string) *store.Namespace { return b.namespaces[name] }

// checkRemoval refuses to drop what this batch has written already: the caller tries again.
func (b *batch) checkRemoval(w *store.Writes) error {
	for _, id := range w.DropRuns {
		if b.touched[id] != nil {
			return fmt.Errorf("run %s has just moved: %w", id, store.ErrUnavailable)
		}
	}
	return nil
}

// A run that is not there is nobody's fault: somebody else removed it, or it never was.
func (b *batch) applyRemoval(w *store.Writes) {
	for _, n := range w.Namespaces {
		b.namespaces[n.Name], b.removal.namespaces[n.Name] = &n, &n
	}
	for _, name := range w.DropNamespaces {
		b.namespaces[name], b.removal.namespaces[name] = nil, nil
		b.leftNamespaces = append(b.leftNamespaces, name)
	}
	for _, k := range w.DropTimelines {
		b.removal.timelines[k] = true
	}
	for _, id := range w.DropRuns {
		r := b.runs[id]
		if r == nil || r.Run == nil {
			continue
		}
		key := engine.WorkflowKey{Namespace: r.Namespace, ID: r.WorkflowID}
		// The id is given back only with its current run: a later run of the chain keeps it, with its receipts and
		// children.
		if f := b.workflows[key]; f != nil && f.Workflow != nil && f.RunID == id {
			b.workflows[key] = &workflow{}
			b.removal.flows[key] = true
			if r.Former.Open > 0 {
				b.dropChain(key)
			}
		}
		b.runs[id] = &run{}
		b.removal.runs[id] = true
		b.dropped = append(b.dropped, id)
		b.droppedFlows = append(b.droppedFlows, key)
	}
}

// gatherRemoval makes the calls that take things away; they go before all others, so that what takes their place is
// written after them.
func (b *batch) gatherRemoval() ([]*Call, error) {
	st := b.s.st
	puts, drops, queues := newRowset(namespacesTable.columns), newRowset(namespacesTable.key()),
		newRowset(queuesTable.columns[:1])
	for _, name := range slices.Sorted(maps.Keys(b.removal.namespaces)) {
		n := b.removal.namespaces[name]
		if n == nil {
			drops.s(name)
			queues.s(name)
			continue
		}
		body, err := documentWith(n, n.Unknown)
		if err != nil {
			return nil, fmt.Errorf("namespace %s: %w", name, err)
		}
		puts.s(name).i(n.CreatedAt.Micros()).s(body)
	}
	runs, events, tasks, items := newRowset(runsTable.key()), newRowset(eventRun), newRowset(taskRun), newRowset(itemRun)
	attributes, logs := newRowset(attributeRun), newRowset(logRun)
	for _, id := range slices.Sorted(maps.Keys(b.removal.runs)) {
		runs.s(id)
		events.s(id)
		tasks.s(id)
		items.s(id)
		attributes.s(id)
		logs.s(id)
	}
	flows, receipts := newRowset(workflowsTable.key()), newRowset(receiptFlow)
	for k := range b.removal.flows {
		flows.s(k.Namespace).s(k.ID)
		receipts.s(k.Namespace).s(k.ID)
	}
	timelines := newRowset(timelineSession)
	for k := range b.removal.timelines {
		timelines.s(k.Namespace).s(k.ID)
	}
	chains := newRowset(formerChain)
	for k := range b.removal.chains {
		chains.s(k.Namespace).s(k.ID)
	}
	// Taken and begun anew: a batch with claims writes twice, and must not take away what came in between.
	b.removal = newRemoval()
	var calls []*Call
	for _, w := range []struct {
		w *writer
		r *rowset
	}{
		{st.dropNamespaces, drops},
		{st.dropQueues, queues},
		{st.dropTags, queues},
		{st.forgetTimelines, queues},
		{st.dropTimelines, timelines},
		{st.putNamespaces, puts},
		{st.dropRuns, runs},
		{st.dropEvents, events},
		{st.dropRunTasks, tasks},
		{st.dropRunItems, items},
		{st.dropAttributes, attributes},
		{st.dropRunLogs, logs},
		{st.dropWorkflows, flows},
		{st.dropReceipts, receipts},
		{st.dropChains, chains},
	} {
		calls = append(calls, w.w.calls(w.r)...)
	}
	return calls, nil
}

func newRemoval() removal {
	return removal{
		namespaces: map[string]*store.Namespace{}, runs: map[string]bool{}, flows: map[engine.WorkflowKey]bool{},
		timelines: map[engine.SessionKey]bool{},
		chains:    map[engine.WorkflowKey]bool{},
	}
}

// removed drops from the cache what a batch took away.
func (c *cache) removed(b *batch) {
	for _, id := range b.dropped {
		c.runs.drop(id)
		c.history.drop(id)
		c.owners.drop(id)
	}
	for _, k := range b.droppedFlows {
		if f := b.workflows[k]; f == nil || f.Workflow == nil {
			c.workflows.drop(k)
		}
	}
}

func (r *reader) Namespace(ctx context.Context, name string) (n store.Namespace, err error) {
	err = r.one(ctx, selects(namespacesTable)+" WHERE name = $1", []any{name}, func(v []any) (err error) {
		n, err = readNamespace(v)
		return err
	})
	return n, wrap(err, "namespace %s", name)
}

func (r *reader) Namespaces(ctx context.Context) ([]store.Namespace, error) {
	var list []store.Namespace
	err := r.query(ctx, selects(namespacesTable)+" ORDER BY name", nil, func(v []any) error {
		n, err := readNamespace(v)
		list = append(list, n)
		return err
	})
	return list, wrap(err, "namespaces")
}

// A piece of everything, without an order among the kinds: each removal looks again, so it does not matter what
// goes first.
func (r *reader) Contents(ctx context.Context, namespace string, limit int) (c store.Contents, err error) {
	const query = "SELECT * FROM (SELECT 'schedule' AS kind, schedule_id AS id FROM schedules WHERE namespace = $1 ORDER BY schedule_id LIMIT $2) AS d" +
		" UNION ALL SELECT * FROM (SELECT 'run', run_id FROM runs WHERE namespace = $1 ORDER BY started_at, run_id LIMIT $2) AS r" +
		" UNION ALL SELECT * FROM (SELECT 'session', session_id FROM sessions WHERE namespace = $1 ORDER BY session_id LIMIT $2) AS s" +
		" UNION ALL SELECT * FROM (SELECT 'worker', worker_id FROM workers WHERE namespace = $1 ORDER BY worker_id LIMIT $2) AS w"
	err = r.query(ctx, query, []any{namespace, int64(limit)}, func(v []any) error {
		switch id := str(v[1]); str(v[0]) {
		case "run":
			c.Runs = append(c.Runs, id)
		case "schedule":
			c.Schedules = append(c.Schedules, engine.ScheduleKey{Namespace: namespace, ID: id})
		case "session":
			c.Sessions = append(c.Sessions, engine.SessionKey{Namespace: namespace, ID: id})
		default:
			c.Workers = append(c.Workers, engine.WorkerKey{Namespace: namespace, ID: id})
		}
		return nil
	})
	return c, wrap(err, "contents of namespace %s", namespace)
}

// The oldest first, by the index of closing times, so that a pass which breaks off has done what was most overdue.
func (r *reader) Outdated(ctx context.Context, namespace string, before time.Time, limit int) ([]engine.Head, error) {
	var list []engine.Head
	query := selects(runsTable) + " WHERE namespace = $1 AND closed_at < $2 ORDER BY closed_at, run_id LIMIT $3"
	err := r.query(ctx, query, []any{namespace, micros(before), int64(limit)}, func(v []any) error {
		h, err := readHead(v)
		list = append(list, h)
		return err
	})
	return list, wrap(err, "outdated runs of namespace %s", namespace)
}

// By this the clean-up knows when it is wanted next, and sleeps until then.
func (r *reader) FirstClosed(ctx context.Context, namespace string) (at time.Time, err error) {
	const query = "SELECT closed_at FROM runs WHERE namespace = $1 AND closed_at IS NOT NULL ORDER BY closed_at LIMIT 1"
	err = r.query(ctx, query, []any{namespace}, func(v []any) error {
		at = time.UnixMicro(integer(v[0])).UTC()
		return nil
	})
	return at, wrap(err, "first closed run of namespace %s", namespace)
}

// The last entry counts and not the first: a timeline is shown whole for as long as any of it may be of interest.
func (r *reader) Forgettable(
	ctx context.Context, namespace string, before time.Time, limit int,
) ([]engine.SessionKey, error) {
	var list []engine.SessionKey
	const query = "SELECT DISTINCT e.session_id FROM session_events AS e WHERE e.namespace = $1 AND e.at < $2 AND NOT EXISTS" +
		" (SELECT 1 FROM sessions AS s WHERE s.namespace = e.namespace AND s.session_id = e.session_id) AND NOT EXISTS" +
		" (SELECT 1 FROM session_events AS l WHERE l.namespace = e.namespace AND l.session_id = e.session_id AND l.at >= $2) LIMIT $3"
	err := r.query(ctx, query, []any{namespace, micros(before), int64(limit)}, func(v []any) error {
		list = append(list, engine.SessionKey{Namespace: namespace, ID: str(v[0])})
		return nil
	})
	return list, wrap(err, "old timelines of namespace %s", namespace)
}
