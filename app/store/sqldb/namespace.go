package sqldb

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
)

// Deletions run before all other writes of the batch, so that a row that uses a deleted name in the same batch is
// written afterwards and stays. A key that the batch has already written cannot be deleted.

// receiptFlow is the part of a receipt's key that identifies the workflow.
var receiptFlow = record.Receipts.Columns[:2]

// auditNumber is the key of an entry of the audit log.
var auditNumber = []db.Column{db.Num("id")}

// timelineSession is the key of all timeline entries of a session.
var timelineSession = record.Timeline.Columns[:2]

// eventRun, taskRun and itemRun are the keys of all such rows of a run.
var eventRun, taskRun, itemRun = record.Events.Columns[:1], record.Tasks.Columns[:1], record.Items.Columns[:1]

// removal contains what a batch deletes completely. Nothing else in the batch writes these rows earlier.
type removal struct {
	namespaces map[string]*store.Namespace // nil: deleted
	runs       map[string]bool
	flows      map[engine.WorkflowKey]bool
	timelines  map[engine.SessionKey]bool
	chains     map[engine.WorkflowKey]bool // children of earlier runs
	receipts   map[store.ReceiptKey]bool   // responses to starts of replaced chains
	inboxes    map[string]bool             // inboxes of the runs; only unused signals are deleted
}

func (b *batch) loadNamespaces(keys map[string]bool) []*db.Call {
	missing := db.NewRowset(record.Namespaces.Key())
	for k := range keys {
		if _, there := b.namespaces[k]; !there {
			missing.S(k)
		}
	}
	return b.fetch(b.s.st.namespaces, missing, func(v []any) error {
		n, err := record.ReadNamespace(v)
		b.namespaces[n.Name] = &n
		return err
	}, func(v []any) { b.markLocked(namespaceKey(db.Str(v[0]))) })
}

func (b *batch) Namespace(name string) *store.Namespace { return b.namespaces[name] }

// checkRemoval refuses to delete rows that this batch has already written: the caller tries again.
func (b *batch) checkRemoval(w *store.Writes) error {
	for _, id := range w.DropRuns {
		if b.touched[id] != nil {
			return fmt.Errorf("run %s was changed meanwhile; try again: %w", id, store.ErrUnavailable)
		}
	}
	return nil
}

// A run that does not exist is not an error: another app deleted it, or it never existed.
func (b *batch) applyRemoval(w *store.Writes) {
	for _, n := range w.Namespaces {
		b.namespaces[n.Name], b.removal.namespaces[n.Name] = &n, &n
	}
	for _, name := range w.DropNamespaces {
		b.namespaces[name], b.removal.namespaces[name] = nil, nil
		b.droppedNamespaces = append(b.droppedNamespaces, name)
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
		// The ID is free again only if its current run is deleted: a later run of the chain keeps the ID, with its
		// receipts and children.
		if f := b.workflows[key]; f != nil && f.Workflow != nil && f.RunID == id {
			b.workflows[key] = &workflow{}
			b.removal.flows[key] = true
			if r.Inherited.Open > 0 {
				b.dropChain(key)
			}
		}
		if k := r.StartKey; k != nil && k.Run == id {
			at := store.ReceiptKey{Namespace: r.Namespace, WorkflowID: r.WorkflowID, RequestID: k.Receipt()}
			b.removal.receipts[at] = true
		}
		if r.Inbox != nil {
			b.removal.inboxes[r.Inbox.ID] = true
		}
		b.addUsage(r.Namespace, engine.Usage{}.Minus(engine.RunUsage(&r.Head)))
		b.runs[id] = &run{}
		b.removal.runs[id] = true
		b.dropped = append(b.dropped, id)
		b.droppedFlows = append(b.droppedFlows, key)
	}
}

// gatherRemoval returns the calls that delete rows; they precede all others, so that replacements are written after
// them.
func (b *batch) gatherRemoval() ([]*db.Call, error) {
	st := b.s.st
	puts, drops, queues := db.NewRowset(record.Namespaces.Columns), db.NewRowset(record.Namespaces.Key()),
		db.NewRowset(record.Queues.Columns[:1])
	for _, name := range slices.Sorted(maps.Keys(b.removal.namespaces)) {
		n := b.removal.namespaces[name]
		if n == nil {
			drops.S(name)
			queues.S(name)
			continue
		}
		body, err := record.DocumentWith(n, n.Unknown)
		if err != nil {
			return nil, fmt.Errorf("namespace %s: %w", name, err)
		}
		puts.S(name).I(n.CreatedAt.Micros()).S(body)
	}
	runs, events := db.NewRowset(record.Runs.Key()), db.NewRowset(eventRun)
	tasks, items := db.NewRowset(taskRun), db.NewRowset(itemRun)
	attributes, logs := db.NewRowset(attributeRun), db.NewRowset(logRun)
	for _, id := range slices.Sorted(maps.Keys(b.removal.runs)) {
		runs.S(id)
		events.S(id)
		tasks.S(id)
		items.S(id)
		attributes.S(id)
		logs.S(id)
	}
	flows, receipts := db.NewRowset(record.Workflows.Key()), db.NewRowset(receiptFlow)
	for k := range b.removal.flows {
		flows.S(k.Namespace).S(k.ID)
		receipts.S(k.Namespace).S(k.ID)
	}
	responses := db.NewRowset(record.Receipts.Key())
	for k := range b.removal.receipts {
		responses.S(k.Namespace).S(k.WorkflowID).S(k.RequestID)
	}
	timelines := db.NewRowset(timelineSession)
	for k := range b.removal.timelines {
		timelines.S(k.Namespace).S(k.ID)
	}
	chains := db.NewRowset(inheritedChain)
	for k := range b.removal.chains {
		chains.S(k.Namespace).S(k.ID)
	}
	inboxes := b.gatherInboxRemoval()
	// A batch with claims writes twice, and the second write must not delete rows that were created in between.
	b.removal = newRemoval()
	var calls []*db.Call
	for _, w := range []struct {
		w *db.Writer
		r *db.Rowset
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
		{st.dropResponses, responses},
		{st.dropChains, chains},
	} {
		calls = append(calls, w.w.Calls(w.r)...)
	}
	return append(calls, inboxes...), nil
}

func newRemoval() removal {
	return removal{
		namespaces: map[string]*store.Namespace{}, runs: map[string]bool{}, flows: map[engine.WorkflowKey]bool{},
		timelines: map[engine.SessionKey]bool{},
		chains:    map[engine.WorkflowKey]bool{},
		receipts:  map[store.ReceiptKey]bool{},
		inboxes:   map[string]bool{},
	}
}

// removed removes from the cache what a batch deleted.
func (c *cache) removed(b *batch) {
	for _, id := range b.dropped {
		c.runs.drop(id)
		c.heads.drop(id)
		c.history.drop(id)
		c.owners.drop(id)
	}
	for _, k := range b.droppedFlows {
		if f := b.workflows[k]; f == nil || f.Workflow == nil {
			c.workflows.drop(k)
		}
	}
}
