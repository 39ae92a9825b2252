package sqldb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A poll must find its tasks without reading tasks that its worker may not run: a queue may contain a million tasks for
// another build. So a ready task is stored under a route: one text that consists of its queue, its requirements on
// workers (the routing key) and the routing word of its session. A poll reads only routes whose tasks its worker may
// run.

// routingKey contains the requirements of a ready task on any worker. Routing treats all tasks of a routing key alike.
// A queue has few routing keys.
type routingKey struct {
	session      bool // for tasks in a session: their routing word is never "*"
	suspect      bool // for tasks that only a claim which counted the tasks of the process may lease
	typ          string
	build        string
	requirements []string // sorted
}

// keyPartSeparator separates the parts of a routing key.
const keyPartSeparator = record.RoutingKeySeparator

// sessionKeyKind is the kind of routing keys of tasks in sessions.
const sessionKeyKind = record.SessionKeyKind

// suspectKeyPrefix is the prefix of routing keys of suspects. Suspects have separate routing keys, so that suspects
// without a suitable process do not hide other tasks from claims, and a queue without suspects costs nothing extra.
const suspectKeyPrefix = record.SuspectKeyPrefix

func (l routingKey) String() string {
	kind := "p"
	if l.session {
		kind = sessionKeyKind
	}
	if l.suspect {
		kind = suspectKeyPrefix + kind
	}
	return strings.Join(append([]string{kind, l.typ, l.build}, l.requirements...), keyPartSeparator)
}

// A later release or a manual statement may have written an invalid routing key. Ignore it: no task of this release
// uses it.
func parseRoutingKey(s string) (routingKey, bool) {
	kind, of, ok := record.ParseRoutingKey(s)
	kind, suspect := strings.CutPrefix(kind, suspectKeyPrefix)
	return routingKey{
		session: kind == sessionKeyKind, suspect: suspect, typ: of.Type, build: of.BuildID, requirements: of.Requirements,
	}, ok
}

// fits reports whether the worker may run tasks with the routing key.
func (l routingKey) fits(kind protocol.TaskKind, e *engine.Lessee) bool {
	return e.Worker.Runs(kind, l.typ) && (l.build == "" || l.build == e.Worker.BuildID) &&
		len(engine.Missing(l.requirements, e.Worker.Capabilities)) == 0 && (!l.session || e.Worker.MaxSessions > 0)
}

type queueRoutingKey struct {
	QueueKey
	text string
}

// routingKeyCache contains the routing keys of every queue that recently had a task with them. Only the committer uses
// it; others may mark it as stale.
type routingKeyCache struct {
	known map[QueueKey]map[string]cachedRoutingKey
	read  time.Time // time of the read
	stale atomic.Bool
}

// cachedRoutingKey is a routing key with the time of its last recorded use, by the store's clock. Other apps may have
// stored a later time since, never an earlier one.
type cachedRoutingKey struct {
	routingKey
	used int64
}

// routingKeysMaxAge is the maximum age of the cached routing keys of a shared database for a claim. The notification of
// a new routing key may be lost; after this time the claim reads the routing keys again.
const routingKeysMaxAge = 5 * time.Second

// A claim reads every routing key of its queue, so unused routing keys must be deleted: a queue whose builds change
// daily would have thousands of routing keys within a year. But a task whose routing key has no row would never be
// found. Therefore a batch that makes a task ready first writes the task's routing key with the current time, unless
// the app knows that this was done within routingKeyTrust. A routing key is deleted only if it has no task and was not
// written for routingKeyRetention. The difference between the two is much longer than the seconds for which a batch can
// run before the server ends its transaction.
const (
	routingKeyTrust     = time.Hour
	routingKeyRetention = 24 * time.Hour
)

// InvalidateRoutingKeys marks the routing keys as outdated, because another process wrote tasks: the next claim reads
// them again.
func (s *Store) InvalidateRoutingKeys() { s.routingKeys.stale.Store(true) }

func cacheRoutingKey(known map[QueueKey]map[string]cachedRoutingKey, k queueRoutingKey, used int64) {
	parsed, ok := parseRoutingKey(k.text)
	if !ok {
		return
	}
	if known[k.QueueKey] == nil {
		known[k.QueueKey] = map[string]cachedRoutingKey{}
	}
	known[k.QueueKey][k.text] = cachedRoutingKey{parsed, used}
}

// remember updates the cache with the routing keys of a committed batch.
func (l *routingKeyCache) remember(b *batch) {
	for _, k := range b.droppedRoutingKeys {
		if delete(l.known[k.QueueKey], k.text); len(l.known[k.QueueKey]) == 0 {
			delete(l.known, k.QueueKey)
		}
	}
	for k := range b.routingKeys {
		cacheRoutingKey(l.known, k, b.now.UnixMicro())
	}
	// On a shared database the statement does not return the deleted routing keys, and it skips locked ones. So the
	// routing keys are read again.
	if b.dropRoutingKeys && b.s.cfg.Dialect.Shared {
		l.stale.Store(true)
	}
}

// loadRoutingKeys reads all routing keys outside of a batch, when the store is opened.
func (s *Store) loadRoutingKeys(ctx context.Context) error {
	s.routingKeys.read = time.Now()
	rows, err := s.cfg.Reads.QueryContext(ctx, s.st.routingKeys.SQL)
	if err != nil {
		return fmt.Errorf("read routing keys: %w", err)
	}
	defer rows.Close()
	isolated := map[process]bool{}
	for rows.Next() {
		var k queueRoutingKey
		var used int64
		if err := rows.Scan(&k.Namespace, &k.Queue, &k.Kind, &k.text, &used); err != nil {
			return fmt.Errorf("read routing keys: %w", err)
		}
		if used < 0 {
			p, err := isolatedRow(k.Namespace, k.Queue, k.Kind, k.text)
			if err != nil {
				return fmt.Errorf("read isolated processes: %w", err)
			}
			isolated[p] = true
			continue
		}
		cacheRoutingKey(s.routingKeys.known, k, used)
	}
	s.setIsolated(isolated)
	return rows.Err()
}

// refreshRoutingKeys reads the routing keys again when another process may have added some, or removed them.
func (b *batch) refreshRoutingKeys() error {
	l := &b.s.routingKeys
	if !b.s.cfg.Dialect.Shared || (!l.stale.Swap(false) && time.Since(l.read) < routingKeysMaxAge) {
		return nil
	}
	now, fresh, isolated := time.Now(), map[QueueKey]map[string]cachedRoutingKey{}, map[process]bool{}
	err := b.send(&db.Call{Stmt: b.s.st.routingKeys, Row: func(v []any) error {
		k := queueRoutingKey{QueueKey{db.Str(v[0]), db.Str(v[1]), protocol.TaskKind(db.Str(v[2]))}, db.Str(v[3])}
		if used := db.Int(v[4]); used >= 0 {
			cacheRoutingKey(fresh, k, used)
			return nil
		}
		p, err := isolatedRow(k.Namespace, k.Queue, k.Kind, k.text)
		isolated[p] = true
		return err
	}})
	if err != nil {
		l.stale.Store(true)
		return err
	}
	l.known, l.read = fresh, now
	b.s.setIsolated(isolated)
	return nil
}

// deleteUnusedRoutingKeys returns the statement that deletes routing keys last used before a given time. On a shared
// database it first locks the latest version of the rows: if another app is about to use a routing key, that row either
// has a new time and stays, or is written again after the deletion. It skips locked rows.
func deleteUnusedRoutingKeys(d db.Dialect) string {
	empty := "NOT " + record.HasReady(d)
	if !d.Shared {
		return "DELETE FROM lanes WHERE used_at < ? AND " + empty + " RETURNING namespace, queue, kind, lane"
	}
	return "DELETE FROM lanes WHERE ctid = ANY(ARRAY(SELECT ctid FROM lanes WHERE used_at < $1 FOR UPDATE SKIP LOCKED)) AND " +
		empty
}

// gatherUnusedRoutingKeys returns the call that deletes routing keys, if a deletion was requested and there may be
// unused keys.
func (b *batch) gatherUnusedRoutingKeys() []*db.Call {
	if !b.dropRoutingKeys {
		return nil
	}
	before := b.now.Add(-routingKeyRetention).UnixMicro()
	for _, keys := range b.s.routingKeys.known {
		for _, l := range keys {
			if l.used >= before {
				continue
			}
			return []*db.Call{{Stmt: b.s.st.dropRoutingKeys, Args: []any{before}, Row: func(v []any) error {
				k := queueRoutingKey{QueueKey{db.Str(v[0]), db.Str(v[1]), protocol.TaskKind(db.Str(v[2]))}, db.Str(v[3])}
				b.droppedRoutingKeys = append(b.droppedRoutingKeys, k)
				return nil
			}}}
		}
	}
	return nil
}

// activityRoutingKey returns the routing key of an activity. It includes the requirements of the activity's session, so
// that a claim does not read tasks that the worker may not run.
func activityRoutingKey(a *engine.Activity, s *engine.Session) routingKey {
	l := routingKey{
		session: a.SessionID != "", suspect: a.Suspect.Limited(), typ: a.Type, requirements: a.Requirements,
	}
	if s != nil {
		if more := slices.Concat(s.NeededCapabilities(), s.ResourceRequirements()); len(more) > 0 {
			l.requirements = slices.Concat(l.requirements, more)
		}
	}
	if len(l.requirements) > 0 {
		l.requirements = slices.Clone(l.requirements)
		slices.Sort(l.requirements)
		l.requirements = slices.Compact(l.requirements)
	}
	return l
}

// route returns the route of a ready task: one text, so that one index range contains the next tasks of a worker.
func route(q QueueKey, key, word string) string {
	return q.Namespace + separator + q.Queue + separator + string(q.Kind) + separator + key + separator + word
}

// parseRoute returns the routing key of a route of the queue, or none if the route is not known.
func parseRoute(q QueueKey, route string) []store.RoutingKey {
	suffix, _ := strings.CutPrefix(route, q.Namespace+separator+q.Queue+separator+string(q.Kind)+separator)
	name, _, _ := strings.Cut(suffix, separator)
	l, ok := parseRoutingKey(name)
	if !ok {
		return nil
	}
	return []store.RoutingKey{{Type: l.typ, BuildID: l.build, Requirements: l.requirements}}
}

// readyRow returns the row that the run's workflow task should have: zero if the task is not ready.
func (r *run) readyRow() readyRow {
	if r.Run == nil || r.Task == nil || r.Task.State != engine.Ready || !r.Status.Open() {
		return readyRow{}
	}
	q := QueueKey{r.Namespace, r.Queue, protocol.KindWorkflow}
	return readyRow{
		route: route(q, r.workflowRoutingKey().String(), "*"), priority: r.Priority, at: r.Task.ReadyAt.Micros(),
		rank: r.Task.Rank,
	}
}

func (r *run) workflowRoutingKey() routingKey {
	w := r.TaskRequirements()
	return routingKey{suspect: r.Task.Suspect.Limited(), typ: w.Type, build: w.BuildID, requirements: w.Requirements}
}
