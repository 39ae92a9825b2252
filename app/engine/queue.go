package engine

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Operators' settings of queues. Each queue has one row, which every dispatch reads, so a change applies in all apps as
// soon as it is stored.

// QueueKey names a task queue. An empty name means all queues of the namespace together.
type QueueKey struct{ Namespace, Name string }

// Queue holds the operators' settings of a task queue, or of all queues of a namespace together: which builds may lease
// tasks, which build new runs are pinned to, and limits. A queue without settings has no row. All methods accept nil
// for it, so that most queues cost nothing.
type Queue struct {
	Namespace string       `json:"-"`
	Name      string       `json:"-"`
	UpdatedAt history.Time `json:"-"`

	Promoted string            `json:"promoted,omitempty"` // build id that new runs are pinned to; "": none
	Earlier  []string          `json:"earlier,omitempty"`  // previously promoted build ids, the latest last, at most 16
	Builds   map[string]Build  `json:"builds,omitempty"`   // by build id, "" for workers without one
	Limits   map[string]Budget `json:"limits,omitempty"`   // by kind of task
	// in the row of a namespace: drains of its workers
	Drains []Drain `json:"drains,omitempty"`
	// in the same row: settings of its workers
	Settings *FleetWide `json:"settings,omitempty"`
	// Only workers of this group receive tasks of the queue; in the row of a namespace, tasks of all queues that name no
	// group.
	Group string `json:"group,omitempty"`
	// Inherited is the group of its namespace, for a queue that names none.
	Inherited string `json:"-"`
	// what was handed out in the latest minute that anything was counted in
	Used Used `json:"used,omitzero"`
	// Unknown holds fields that a later build stored in the row. They are written back unchanged; otherwise an app of
	// this build would erase settings of a newer app next to it.
	Unknown map[string]json.RawMessage `json:"-"`
}

// Build holds the settings of one build ID.
type Build struct {
	DrainedAt  history.Time `json:"drained_at,omitzero"` // start of the drain; zero: not drained
	PromotedAt history.Time `json:"promoted_at,omitzero"`
}

// Budget limits the leases of one kind of task; 0 means no limit.
type Budget struct {
	Leases    int `json:"leases,omitempty"`     // most tasks leased at once
	PerMinute int `json:"per_minute,omitempty"` // most leases begun in one minute of the clock
}

// Used counts the leases begun in one minute, by kind. It counts by clock minute instead of a sliding window, since it
// is written with the leases and has to stay small.
type Used struct {
	Minute int64          `json:"minute,omitempty"` // since 1970
	Counts map[string]int `json:"counts,omitempty"`
}

// Key returns the key of the queue's row.
func (q *Queue) Key() QueueKey { return QueueKey{q.Namespace, q.Name} }

// Drained reports whether the queue dispatches nothing to workers of this build.
func (q *Queue) Drained(build string) bool {
	return q != nil && !q.Builds[build].DrainedAt.Time.IsZero()
}

// Routed returns the group whose workers alone run tasks of the queue; "" for none.
func (q *Queue) Routed() string {
	if q == nil {
		return ""
	}
	return cmp.Or(q.Group, q.Inherited)
}

// Elsewhere reports whether the queue's tasks are for the workers of another group.
func (q *Queue) Elsewhere(group string) bool {
	to := q.Routed()
	return to != "" && to != group
}

// Withholds reports whether the queue dispatches nothing to a worker, whatever its tasks require, so that its tasks
// need not be checked one by one.
func (q *Queue) Withholds(w *Worker) bool { return q.Drained(w.BuildID) || q.Elsewhere(w.Group) }

// NewRuns returns the build ID to which new runs of the queue are pinned, "" for none.
func (q *Queue) NewRuns() string {
	if q == nil {
		return ""
	}
	return q.Promoted
}

// Budget returns the limits of a kind of task.
func (q *Queue) Budget(kind protocol.TaskKind) Budget {
	if q == nil {
		return Budget{}
	}
	return q.Limits[string(kind)]
}

// Bounded reports whether the budget has a limit.
func (l Budget) Bounded() bool { return l.Leases > 0 || l.PerMinute > 0 }

// Begun returns the number of leases of a kind that began in the minute of now.
func (q *Queue) Begun(kind protocol.TaskKind, now time.Time) int {
	if q == nil || q.Used.Minute != minute(now) {
		return 0
	}
	return q.Used.Counts[string(kind)]
}

// Count returns a copy of the queue with n more leases begun.
func (q *Queue) Count(kind protocol.TaskKind, n int, now time.Time) *Queue {
	next := *q
	next.Used = Used{Minute: minute(now), Counts: map[string]int{}}
	if q.Used.Minute == next.Used.Minute {
		for k, v := range q.Used.Counts {
			next.Used.Counts[k] = v
		}
	}
	next.Used.Counts[string(kind)] += n
	return &next
}

func minute(now time.Time) int64 { return now.Unix() / 60 }

// Room returns the number of tasks of a kind that may still be leased now, if leased tasks of the queue are leased; ok
// is false without a limit. If room is 0, the throttle contains the reason. Of two limits the tighter one applies.
func (q *Queue) Room(kind protocol.TaskKind, leased int, now time.Time) (room int, t Throttle, ok bool) {
	l := q.Budget(kind)
	if l.Leases > 0 {
		room, ok = max(0, l.Leases-leased), true
		if room == 0 {
			t.Why = q.spent(protocol.WaitBudgetLeases, kind, leased, l.Leases)
		}
	}
	if l.PerMinute > 0 {
		begun := q.Begun(kind, now)
		// The tighter limit is shown, since raising the other one would change nothing.
		if left := max(0, l.PerMinute-begun); !ok || left < room {
			room, ok = left, true
			if left == 0 {
				next := time.Unix((minute(now)+1)*60, 0)
				t = Throttle{Wait: next.Sub(now), Why: q.spent(protocol.WaitBudgetRate, kind, begun, l.PerMinute)}
				t.Why.Until = history.At(next)
			}
		}
	}
	if t.Why != nil {
		t.Why.Message = t.Text()
	}
	return room, t, ok
}

// spent returns the wait for an exhausted budget of the queue, or of all queues of the namespace together.
func (q *Queue) spent(why protocol.WaitReason, kind protocol.TaskKind, used, limit int) *protocol.Wait {
	w := &protocol.Wait{Kind: protocol.WaitForActivity, Reason: why, Queue: q.Name, Used: used, Limit: limit}
	if kind == protocol.KindWorkflow {
		w.Kind = protocol.WaitForTask
	}
	if q.Name == "" {
		w.Namespace = q.Namespace
	}
	return w
}

// Throttle is the reason why a budget withholds tasks, and the minimum time for which it does. Wait is 0 if the budget
// waits for the end of a lease, whose time is unknown. Without a Why the budget withholds nothing.
type Throttle struct {
	Why  *protocol.Wait
	Wait time.Duration
}

// Text returns the reason for people.
func (t Throttle) Text() string {
	if t.Why == nil {
		return ""
	}
	return t.Why.Why(time.UTC)
}

// Stricter returns the throttle that applies if both t and o limit the tasks.
func (t Throttle) Stricter(o Throttle) Throttle {
	if t.Why == nil || o.Why != nil && cmp.Less(t.Wait, o.Wait) {
		return o
	}
	return t
}

// QueueChange is an operator's decision about a queue.
type QueueChange interface {
	decide(q *Queue, now history.Time) error
}

// DrainBuild stops dispatching to the workers of a build ID. New runs are no longer pinned to the build, since they
// would wait for these workers. It is idempotent.
type DrainBuild struct{ BuildID string }

// ResumeBuild ends a drain.
type ResumeBuild struct{ BuildID string }

// PromoteBuild pins new runs to a build id, and ends a drain of it; "" pins them to none.
type PromoteBuild struct{ BuildID string }

// RollbackBuild pins new runs to the build promoted before. It names the build to roll back
// from: an operator with an outdated page must not roll back another operator's promotion.
type RollbackBuild struct{ BuildID string }

// RouteQueue dispatches the tasks of a queue only to the workers of one group; "" removes the restriction.
type RouteQueue struct{ Group string }

func (in RouteQueue) decide(q *Queue, _ history.Time) error { //nolint:unparam // as the other changes
	q.Group = in.Group
	return nil
}

// LimitQueue sets the budgets of the kinds it names.
type LimitQueue struct{ Limits map[protocol.TaskKind]Budget }

// DecideQueue returns the changed queue. It only reads q, which is nil for a queue without settings. It copies the maps
// first, because readers may share the row.
func DecideQueue(q *Queue, k QueueKey, in QueueChange, now time.Time) (Queue, error) {
	next := Queue{Namespace: k.Namespace, Name: k.Name}
	if q != nil {
		next = *q
	}
	builds, limits := map[string]Build{}, map[string]Budget{}
	for id, b := range next.Builds {
		builds[id] = b
	}
	for kind, l := range next.Limits {
		limits[kind] = l
	}
	next.Builds, next.Limits, next.UpdatedAt = builds, limits, history.At(now)
	return next, in.decide(&next, history.At(now))
}

func (in DrainBuild) decide(q *Queue, now history.Time) error {
	if q.Drained(in.BuildID) {
		return nil
	}
	q.Builds[in.BuildID] = Build{DrainedAt: now}
	if q.Promoted == in.BuildID && in.BuildID != "" {
		q.before(in.BuildID)
		q.Promoted = ""
	}
	return nil
}

func (in ResumeBuild) decide(q *Queue, _ history.Time) error {
	b := q.Builds[in.BuildID]
	b.DrainedAt = history.Time{}
	q.storeBuild(in.BuildID, b)
	return nil
}

func (in PromoteBuild) decide(q *Queue, now history.Time) error {
	if before := q.Promoted; before != in.BuildID {
		b := q.Builds[before]
		if before != "" || !b.PromotedAt.IsZero() {
			q.before(before)
		}
		b.PromotedAt = history.Time{}
		q.storeBuild(before, b)
	}
	b := q.Builds[in.BuildID]
	if q.Promoted != in.BuildID || b.PromotedAt.IsZero() {
		b.PromotedAt = now
	}
	b.DrainedAt = history.Time{}
	q.storeBuild(in.BuildID, b)
	q.Promoted = in.BuildID
	return nil
}

// maxEarlierBuilds is the maximum number of promotions that can be rolled back one after the other.
const maxEarlierBuilds = 16

// before remembers what new runs were pinned to so far.
func (q *Queue) before(id string) {
	earlier := append(slices.Clone(q.Earlier), id)
	q.Earlier = earlier[max(0, len(earlier)-maxEarlierBuilds):]
}

// decide rolls back one promotion and restores the list of earlier builds: the promotion of the previous build would
// append the bad build, and a second rollback would return to it.
func (in RollbackBuild) decide(q *Queue, now history.Time) error {
	if q.Promoted != in.BuildID || q.Builds[in.BuildID].PromotedAt.Time.IsZero() {
		return protocol.Refuse(protocol.ReasonNotPromoted, "new runs are not pinned to this build").
			With("promoted_build_id", orNone(q.Promoted))
	}
	n := len(q.Earlier)
	if n == 0 {
		return protocol.Refuse(protocol.ReasonNoEarlier, "new runs were pinned to no other build before this one")
	}
	back, earlier := q.Earlier[n-1], q.Earlier[:n-1]
	err := PromoteBuild{BuildID: back}.decide(q, now)
	q.Earlier = earlier
	return err
}

func orNone(id string) *string {
	if id == "" {
		return nil
	}
	return &id
}

func (in LimitQueue) decide(q *Queue, _ history.Time) error {
	for kind, l := range in.Limits {
		if l.Leases < 0 || l.PerMinute < 0 {
			return protocol.Invalid(string(kind)+"_tasks", "a limit must not be negative")
		}
		if l.Bounded() {
			q.Limits[string(kind)] = l
		} else {
			delete(q.Limits, string(kind))
		}
	}
	return nil
}

// storeBuild stores the decisions about a build id. It deletes an empty entry, which would otherwise remain in the row
// forever.
func (q *Queue) storeBuild(id string, b Build) {
	if b == (Build{}) {
		delete(q.Builds, id)
		return
	}
	q.Builds[id] = b
}
