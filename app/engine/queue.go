package engine

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// This file has the operators' settings of queues. Each queue has one row, which every dispatch reads, so a change
// applies in all apps as soon as it is stored.

// QueueKey is the key of a task queue. An empty name means all queues of the namespace together.
type QueueKey struct{ Namespace, Name string }

// Queue holds the operators' settings of a task queue, or of all queues of a namespace together: which builds may lease
// tasks, to which build new runs are pinned, and limits. A queue without settings has no row. All methods accept a nil
// Queue, so that such queues cost nothing.
type Queue struct {
	Namespace string       `json:"-"`
	Name      string       `json:"-"`
	UpdatedAt history.Time `json:"-"`

	Promoted string            `json:"promoted,omitempty"` // build ID to which new runs are pinned; "": none
	Earlier  []string          `json:"earlier,omitempty"`  // previously promoted build IDs, the latest last, at most 16
	Builds   map[string]Build  `json:"builds,omitempty"`   // by build ID; "": workers without one
	Limits   map[string]Budget `json:"limits,omitempty"`   // by kind of task
	// only in the row of a namespace: drains of its workers
	Drains []Drain `json:"drains,omitempty"`
	// only in the row of a namespace: settings of its workers
	Settings *FleetWide `json:"settings,omitempty"`
	// Group is the only group of workers that receives tasks of the queue. In the row of a namespace it applies to all
	// queues without a group.
	Group string `json:"group,omitempty"`
	// Inherited is the group of the namespace, for a queue without a group.
	Inherited string `json:"-"`
	// Pool is the pool of sessions whose borrowers wait in the queue; nil: none.
	Pool *Pool `json:"pool,omitempty"`
	// leases that began in the latest minute with leases
	Used Used `json:"used,omitzero"`
	// Unknown holds fields that a later build stored in the row. They are written back unchanged; otherwise an app of
	// this build would delete settings of a newer app.
	Unknown map[string]json.RawMessage `json:"-"`
}

// Build holds the settings of one build ID.
type Build struct {
	DrainedAt  history.Time `json:"drained_at,omitzero"` // start of the drain; zero: not drained
	PromotedAt history.Time `json:"promoted_at,omitzero"`
}

// Budget limits the leases of one kind of task; 0 means no limit.
type Budget struct {
	Leases    int `json:"leases,omitempty"`     // maximum number of leased tasks
	PerMinute int `json:"per_minute,omitempty"` // maximum number of leases that begin in one clock minute
}

// Used counts the leases that began in one minute, by kind. It counts by clock minute instead of a sliding window,
// because it is written with the leases and must be small.
type Used struct {
	Minute int64          `json:"minute,omitempty"` // minutes since 1970
	Counts map[string]int `json:"counts,omitempty"`
}

// Key returns the key of the queue's row.
func (q *Queue) Key() QueueKey { return QueueKey{q.Namespace, q.Name} }

// Drained reports whether the queue dispatches no tasks to workers of this build.
func (q *Queue) Drained(build string) bool {
	return q != nil && !q.Builds[build].DrainedAt.Time.IsZero()
}

// Routed returns the only group whose workers run tasks of the queue; "": any group.
func (q *Queue) Routed() string {
	if q == nil {
		return ""
	}
	return cmp.Or(q.Group, q.Inherited)
}

// Elsewhere reports whether only workers of another group run tasks of the queue.
func (q *Queue) Elsewhere(group string) bool {
	to := q.Routed()
	return to != "" && to != group
}

// Withholds reports whether the queue dispatches nothing to a worker, whatever its tasks require. Then its tasks need
// not be checked one by one.
func (q *Queue) Withholds(w *Worker) bool { return q.Drained(w.BuildID) || q.Elsewhere(w.Group) }

// NewRuns returns the build ID to which new runs of the queue are pinned; "": none.
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

// Bounded reports whether the budget limits anything.
func (l Budget) Bounded() bool { return l.Leases > 0 || l.PerMinute > 0 }

// Begun returns the number of leases of a kind that began in the minute of now.
func (q *Queue) Begun(kind protocol.TaskKind, now time.Time) int {
	if q == nil || q.Used.Minute != minuteNumber(now) {
		return 0
	}
	return q.Used.Counts[string(kind)]
}

// Count returns a copy of the queue after n more leases began.
func (q *Queue) Count(kind protocol.TaskKind, n int, now time.Time) *Queue {
	next := *q
	next.Used = Used{Minute: minuteNumber(now), Counts: map[string]int{}}
	if q.Used.Minute == next.Used.Minute {
		for k, v := range q.Used.Counts {
			next.Used.Counts[k] = v
		}
	}
	next.Used.Counts[string(kind)] += n
	return &next
}

func minuteNumber(now time.Time) int64 { return now.Unix() / 60 }

// Room returns how many tasks of a kind may be leased now, given that leased tasks of the queue are leased; ok is false
// without a limit. If room is 0, the throttle contains the reason. If there are two limits, the tighter one applies.
func (q *Queue) Room(kind protocol.TaskKind, leased int, now time.Time) (room int, t Throttle, ok bool) {
	l := q.Budget(kind)
	if l.Leases > 0 {
		room, ok = max(0, l.Leases-leased), true
		if room == 0 {
			t.Why = q.exhaustedLimitWait(protocol.WaitBudgetLeases, kind, leased, l.Leases)
		}
	}
	if l.PerMinute > 0 {
		begun := q.Begun(kind, now)
		// Report the tighter limit, since raising the other one would change nothing.
		if left := max(0, l.PerMinute-begun); !ok || left < room {
			room, ok = left, true
			if left == 0 {
				next := time.Unix((minuteNumber(now)+1)*60, 0)
				t = Throttle{Wait: next.Sub(now), Why: q.exhaustedLimitWait(protocol.WaitBudgetRate, kind, begun, l.PerMinute)}
				t.Why.Until = history.At(next)
			}
		}
	}
	if t.Why != nil {
		t.Why.Message = t.Text()
	}
	return room, t, ok
}

// exhaustedLimitWait returns the wait reason for an exhausted limit of the queue, or of all queues of the namespace
// together.
func (q *Queue) exhaustedLimitWait(why protocol.WaitReason, kind protocol.TaskKind, used, limit int) *protocol.Wait {
	w := &protocol.Wait{Kind: protocol.WaitForActivity, Reason: why, Queue: q.Name, Used: used, Limit: limit}
	if kind == protocol.KindWorkflow {
		w.Kind = protocol.WaitForTask
	}
	if q.Name == "" {
		w.Namespace = q.Namespace
	}
	return w
}

// Throttle is the reason why a limit delays tasks, and the minimum delay. Wait is 0 if the tasks wait for the end of a
// lease, whose time is unknown. Without a Why, no task is delayed.
type Throttle struct {
	Why  *protocol.Wait
	Wait time.Duration
}

// Text returns the reason as a readable message.
func (t Throttle) Text() string {
	if t.Why == nil {
		return ""
	}
	return t.Why.Why(time.UTC)
}

// Stricter returns the stricter of the throttles t and o, which both apply.
func (t Throttle) Stricter(o Throttle) Throttle {
	if t.Why == nil || o.Why != nil && cmp.Less(t.Wait, o.Wait) {
		return o
	}
	return t
}

// QueueChange is an operator's change of a queue.
type QueueChange interface {
	decide(q *Queue, now history.Time) error
}

// DrainBuild stops dispatching to the workers of a build ID. New runs are no longer pinned to the build, since they
// would wait for these workers. Draining a drained build has no effect.
type DrainBuild struct{ BuildID string }

// ResumeBuild ends a drain.
type ResumeBuild struct{ BuildID string }

// PromoteBuild pins new runs to a build ID and ends a drain of that build; "": new runs are not pinned.
type PromoteBuild struct{ BuildID string }

// RollbackBuild pins new runs to the previously promoted build. It names the build to roll back from, so that an
// operator with an outdated page does not roll back another operator's promotion.
type RollbackBuild struct{ BuildID string }

// RouteQueue dispatches the tasks of a queue only to workers of one group; "" removes the restriction.
type RouteQueue struct{ Group string }

func (in RouteQueue) decide(q *Queue, _ history.Time) error { //nolint:unparam // as the other changes
	q.Group = in.Group
	return nil
}

// LimitQueue sets the limits of the kinds in Limits.
type LimitQueue struct{ Limits map[protocol.TaskKind]Budget }

// DecideQueue returns the changed queue. It does not change q, which is nil for a queue without settings. It copies the
// maps before changing them, because readers may share the row.
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
		q.storePreviousBuild(in.BuildID)
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
			q.storePreviousBuild(before)
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

// maxEarlierBuilds is the maximum number of consecutive promotions that can be rolled back.
const maxEarlierBuilds = 16

// storePreviousBuild stores the build to which new runs were pinned so far.
func (q *Queue) storePreviousBuild(id string) {
	earlier := append(slices.Clone(q.Earlier), id)
	q.Earlier = earlier[max(0, len(earlier)-maxEarlierBuilds):]
}

// decide rolls back one promotion and restores the list of earlier builds. If it promoted the previous build instead,
// it would append the bad build, and a second rollback would return to it.
func (in RollbackBuild) decide(q *Queue, now history.Time) error {
	if q.Promoted != in.BuildID || q.Builds[in.BuildID].PromotedAt.Time.IsZero() {
		return protocol.Refuse(protocol.ReasonNotPromoted, "new runs are not pinned to this build").
			With("promoted_build_id", nilIfEmpty(q.Promoted))
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

func nilIfEmpty(id string) *string {
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

// storeBuild stores the settings of a build ID. It deletes an empty entry, which would otherwise stay in the row
// forever.
func (q *Queue) storeBuild(id string, b Build) {
	if b == (Build{}) {
		delete(q.Builds, id)
		return
	}
	q.Builds[id] = b
}
