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

// A poll must find its tasks without reading tasks that its worker may not run: a queue may hold a million tasks for
// another build. So a ready task is stored under a route, one text made of its queue, its requirements on workers (the
// lane) and the routing word of its session. A poll reads only routes that its worker may serve.

// lane holds the requirements of a ready task on any worker. Routing treats all tasks of a lane alike. A
// queue has few lanes.
type lane struct {
	session      bool // tasks that run in a session: their routing word is never "*"
	suspect      bool // tasks leased only by a claim that counted the tasks of the process
	typ          string
	build        string
	requirements []string // sorted
}

// part separates the parts of a lane.
const part = record.LaneSeparator

// sessionLane is the kind of lanes of tasks in sessions.
const sessionLane = record.SessionLane

// suspectLane is the prefix of lanes of suspects. Suspects have their own lanes so that suspects without a free process
// hide no other task from claims, and a queue without suspects costs nothing more.
const suspectLane = record.SuspectLane

func (l lane) String() string {
	kind := "p"
	if l.session {
		kind = sessionLane
	}
	if l.suspect {
		kind = suspectLane + kind
	}
	return strings.Join(append([]string{kind, l.typ, l.build}, l.requirements...), part)
}

// A later release or a manual statement may have written an invalid lane. It is ignored: no task of this release uses
// it.
func parseLane(s string) (lane, bool) {
	kind, of, ok := record.ParseLane(s)
	kind, suspect := strings.CutPrefix(kind, suspectLane)
	return lane{
		session: kind == sessionLane, suspect: suspect, typ: of.Type, build: of.BuildID, requirements: of.Requirements,
	}, ok
}

// fits reports whether the worker may serve the lane at all.
func (l lane) fits(kind protocol.TaskKind, e *engine.Lessee) bool {
	return e.Worker.Runs(kind, l.typ) && (l.build == "" || l.build == e.Worker.BuildID) &&
		len(engine.Missing(l.requirements, e.Worker.Capabilities)) == 0 && (!l.session || e.Worker.MaxSessions > 0)
}

type laneKey struct {
	QueueKey
	lane string
}

// lanes are the lanes of every queue that had a task in them lately. Only the committer uses them; others may
// mark them as stale.
type lanes struct {
	known map[QueueKey]map[string]knownLane
	read  time.Time // when they were read
	stale atomic.Bool
}

// knownLane is a lane with the time of its last recorded use, by the store's clock. Other apps may have raised the time
// since; no app lowers it.
type knownLane struct {
	lane
	used int64
}

// laneAge is the maximum age of the cached lanes of a shared database in a claim. The notice of a new lane may be lost;
// after this time the claim reads the lane nevertheless.
const laneAge = 5 * time.Second

// A claim reads every lane of its queue, so unused lanes must be removed: a queue whose builds change daily would have
// thousands of lanes within a year. But a task in a lane without a row would never be found. Therefore a batch that
// makes a task ready first writes the task's lane with the current time, unless the app knows that this was done within
// laneTrust. Only a lane that holds no task and was not written for laneKept is removed. The difference between the two
// is much longer than the seconds for which a batch can run before the server ends its transaction.
const (
	laneTrust = time.Hour
	laneKept  = 24 * time.Hour
)

// StaleLanes marks the lanes as outdated, because another process wrote tasks: the next claim reads them again.
func (s *Store) StaleLanes() { s.lanes.stale.Store(true) }

func learnLane(known map[QueueKey]map[string]knownLane, k laneKey, used int64) {
	parsed, ok := parseLane(k.lane)
	if !ok {
		return
	}
	if known[k.QueueKey] == nil {
		known[k.QueueKey] = map[string]knownLane{}
	}
	known[k.QueueKey][k.lane] = knownLane{parsed, used}
}

// remember updates the cache with the lanes of a committed batch.
func (l *lanes) remember(b *batch) {
	for _, k := range b.unusedLanes {
		if delete(l.known[k.QueueKey], k.lane); len(l.known[k.QueueKey]) == 0 {
			delete(l.known, k.QueueKey)
		}
	}
	for k := range b.lanes {
		learnLane(l.known, k, b.now.UnixMicro())
	}
	// On a shared database the statement does not return the removed lanes; it skips locked ones. The lanes are read
	// again.
	if b.dropLanes && b.s.cfg.Dialect.Shared {
		l.stale.Store(true)
	}
}

// refreshLanes reads all lanes outside of a batch, when the store is opened.
func (s *Store) refreshLanes(ctx context.Context) error {
	s.lanes.read = time.Now()
	rows, err := s.cfg.Reads.QueryContext(ctx, s.st.lanes.SQL)
	if err != nil {
		return fmt.Errorf("lanes: %w", err)
	}
	defer rows.Close()
	isolated := map[process]bool{}
	for rows.Next() {
		var k laneKey
		var used int64
		if err := rows.Scan(&k.Namespace, &k.Queue, &k.Kind, &k.lane, &used); err != nil {
			return fmt.Errorf("lanes: %w", err)
		}
		if used < 0 {
			p, err := isolatedRow(k.Namespace, k.Queue, k.Kind, k.lane)
			if err != nil {
				return fmt.Errorf("isolated processes: %w", err)
			}
			isolated[p] = true
			continue
		}
		learnLane(s.lanes.known, k, used)
	}
	s.setIsolated(isolated)
	return rows.Err()
}

// freshLanes reads the lanes again when another process may have added some, or removed them.
func (b *batch) freshLanes() error {
	l := &b.s.lanes
	if !b.s.cfg.Dialect.Shared || (!l.stale.Swap(false) && time.Since(l.read) < laneAge) {
		return nil
	}
	now, fresh, isolated := time.Now(), map[QueueKey]map[string]knownLane{}, map[process]bool{}
	err := b.send(&db.Call{Stmt: b.s.st.lanes, Row: func(v []any) error {
		k := laneKey{QueueKey{db.Str(v[0]), db.Str(v[1]), protocol.TaskKind(db.Str(v[2]))}, db.Str(v[3])}
		if used := db.Int(v[4]); used >= 0 {
			learnLane(fresh, k, used)
			return nil
		}
		p, err := isolatedRow(k.Namespace, k.Queue, k.Kind, k.lane)
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

// unusedLanes returns the statement that removes lanes last used before a given time. On a shared database it first
// locks the rows, in their latest version: a lane that another app is about to use either has its new time already and
// stays, or is written again after the removal. It skips locked rows.
func unusedLanes(d db.Dialect) string {
	empty := "NOT " + record.HasReady(d)
	if !d.Shared {
		return "DELETE FROM lanes WHERE used_at < ? AND " + empty + " RETURNING namespace, queue, kind, lane"
	}
	return "DELETE FROM lanes WHERE ctid = ANY(ARRAY(SELECT ctid FROM lanes WHERE used_at < $1 FOR UPDATE SKIP LOCKED)) AND " +
		empty
}

// leaveLanes is the call that removes lanes, if that was asked for and there may be any to remove.
func (b *batch) leaveLanes() []*db.Call {
	if !b.dropLanes {
		return nil
	}
	before := b.now.Add(-laneKept).UnixMicro()
	for _, lanes := range b.s.lanes.known {
		for _, l := range lanes {
			if l.used >= before {
				continue
			}
			return []*db.Call{{Stmt: b.s.st.dropLanes, Args: []any{before}, Row: func(v []any) error {
				k := laneKey{QueueKey{db.Str(v[0]), db.Str(v[1]), protocol.TaskKind(db.Str(v[2]))}, db.Str(v[3])}
				b.unusedLanes = append(b.unusedLanes, k)
				return nil
			}}}
		}
	}
	return nil
}

// activityLane returns the lane of an activity. It includes the requirements of the activity's session, so that no
// claim reads a task that the worker may not run.
func activityLane(a *engine.Activity, s *engine.Session) lane {
	l := lane{
		session: a.SessionID != "", suspect: a.Suspect.Limited(), typ: a.Type, requirements: a.Requirements,
	}
	if s != nil && len(s.Requirements) > 0 {
		l.requirements = slices.Concat(l.requirements, s.Requirements)
	}
	if len(l.requirements) > 0 {
		l.requirements = slices.Clone(l.requirements)
		slices.Sort(l.requirements)
		l.requirements = slices.Compact(l.requirements)
	}
	return l
}

// route returns the route of a ready task: one text, so that one index range contains the next tasks of a worker.
func route(q QueueKey, lane, word string) string {
	return q.Namespace + separator + q.Queue + separator + string(q.Kind) + separator + lane + separator + word
}

// laneIn is the lane of a route of the queue; none when it is not known.
func laneIn(q QueueKey, route string) []store.Lane {
	rest, _ := strings.CutPrefix(route, q.Namespace+separator+q.Queue+separator+string(q.Kind)+separator)
	name, _, _ := strings.Cut(rest, separator)
	l, ok := parseLane(name)
	if !ok {
		return nil
	}
	return []store.Lane{{Type: l.typ, BuildID: l.build, Requirements: l.requirements}}
}

// readyRow is the row a ready workflow task has, or should have.
func (r *run) readyRow() readyRow {
	if r.Run == nil || r.Task == nil || r.Task.State != engine.Ready || !r.Status.Open() {
		return readyRow{}
	}
	q := QueueKey{r.Namespace, r.Queue, protocol.KindWorkflow}
	return readyRow{
		route: route(q, r.workflowLane().String(), "*"), priority: r.Priority, at: r.Task.ReadyAt.Micros(), rank: r.Task.Rank,
	}
}

func (r *run) workflowLane() lane {
	w := r.Wanted()
	return lane{suspect: r.Task.Suspect.Limited(), typ: w.Type, build: w.BuildID, requirements: w.Requirements}
}
