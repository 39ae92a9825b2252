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
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A poll must find its work without looking at tasks that it may not have: a queue may hold a million tasks for
// another build. So a ready task stands under a route, one text made of its queue, of what it asks of a worker
// (its lane) and of the word of its session, and a poll reads only the routes that its worker may serve.

// lane is what a ready task asks of any worker: tasks of one lane of a queue are the same to the router. A
// queue has few lanes.
type lane struct {
	session      bool // tasks that run in a session: their routing word is never "*"
	typ          string
	build        string
	requirements []string // sorted
}

// part stands between the parts of a lane.
const part = "\x1e"

func (l lane) String() string {
	kind := "p"
	if l.session {
		kind = "s"
	}
	return strings.Join(append([]string{kind, l.typ, l.build}, l.requirements...), part)
}

func parseLane(s string) (lane, bool) {
	parts := strings.Split(s, part)
	if len(parts) < 3 {
		return lane{}, false
	}
	return lane{session: parts[0] == "s", typ: parts[1], build: parts[2], requirements: parts[3:]}, true
}

// fits says whether the worker may serve the lane at all.
func (l lane) fits(kind protocol.TaskKind, e *engine.Lessee) bool {
	return e.Worker.Runs(kind, l.typ) && (l.build == "" || l.build == e.Worker.BuildID) &&
		len(engine.Missing(l.requirements, e.Worker.Capabilities)) == 0 && (!l.session || e.Worker.MaxSessions > 0)
}

type laneKey struct {
	QueueKey
	lane string
}

// lanes are the lanes of every queue that ever had a task in them. Only the committer uses them; others may
// mark them as stale.
type lanes struct {
	known map[QueueKey]map[string]lane
	read  time.Time // when they were read
	stale atomic.Bool
}

// laneAge is how old the lanes of a shared database may be when a claim looks at them. The hint of a new lane
// may be lost; after this time it is found all the same.
const laneAge = 5 * time.Second

// StaleLanes says that another process wrote tasks: the lanes are read again before the next claim.
func (s *Store) StaleLanes() { s.lanes.stale.Store(true) }

func (l *lanes) learn(k laneKey) {
	parsed, ok := parseLane(k.lane)
	if !ok {
		return
	}
	if l.known[k.QueueKey] == nil {
		l.known[k.QueueKey] = map[string]lane{}
	}
	l.known[k.QueueKey][k.lane] = parsed
}

// refreshLanes reads all lanes outside of a batch, when the store is opened.
func (s *Store) refreshLanes(ctx context.Context) error {
	s.lanes.read = time.Now()
	rows, err := s.cfg.Reads.QueryContext(ctx, s.st.lanes.SQL)
	if err != nil {
		return fmt.Errorf("lanes: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var k laneKey
		if err := rows.Scan(&k.Namespace, &k.Queue, &k.Kind, &k.lane); err != nil {
			return fmt.Errorf("lanes: %w", err)
		}
		s.lanes.learn(k)
	}
	return rows.Err()
}

// freshLanes is the call that reads the lanes again when another process may have added some.
func (b *batch) freshLanes() []*Call {
	l := &b.s.lanes
	if !b.s.cfg.Dialect.Shared || (!l.stale.Swap(false) && time.Since(l.read) < laneAge) {
		return nil
	}
	l.read = time.Now()
	return []*Call{
		{Stmt: b.s.st.lanes, Row: func(v []any) error {
			l.learn(laneKey{QueueKey{str(v[0]), str(v[1]), protocol.TaskKind(str(v[2]))}, str(v[3])})
			return nil
		}},
	}
}

// activityLane is the lane of an activity. What its session asks for counts too, so that nobody visits a task
// that it may not have.
func activityLane(a *engine.Activity, s *engine.Session) lane {
	l := lane{session: a.SessionID != "", typ: a.Type, requirements: a.Requirements}
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

// route is where a ready task waits: one text, so that one index range holds what a worker may take next.
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
	return lane{typ: w.Type, build: w.BuildID, requirements: w.Requirements}
}
