package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/internal/suggest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Only this file explains why a run, task or session waits. An explanation is data: a reason from a closed list with
// its worker, session and times. It is computed from rows: open steps of the run, sessions of its tasks, workers of the
// namespace, and operators' settings of its queues. Admit decides whether a worker may run a task: this file calls
// Admit for each worker, compares the refusals and returns the one on which an operator can act best.

// WorkerCandidate is a worker that might receive a task, with data that the worker's row does not contain.
type WorkerCandidate struct {
	*Worker
	Alive    bool
	Draining bool
	Gate     string                     // why the release gate blocks dispatch to the worker; empty: not blocked
	Sessions int                        // number of sessions that the worker holds
	Used     Amounts                    // resources that its sessions use
	Full     map[protocol.TaskKind]bool // kinds of tasks without a free slot, as last reported by the worker
}

// WaitContext is all data that is needed to explain why a run's tasks wait.
type WaitContext struct {
	Now       time.Time
	Release   string            // release of the app
	Workers   []WorkerCandidate // workers of the namespace, sorted by ID
	Settings  func(queue string) *Queue
	Throttle  func(queue string, kind protocol.TaskKind) Throttle // returns whether a limit delays the tasks of a queue
	Sessions  map[string]*Session                                 // sessions of the run's ready activities
	Positions map[string]int                                      // positions of steps that wait for members of pools
	Inherited []InheritedChild                                    // open children of earlier runs of the workflow id

	suggestions map[typeOf]string // cached, since many tasks of a page may have the same unknown type
}

// typeOf is the key of a suggestion: an activity or workflow type on a queue.
type typeOf struct {
	queue string
	kind  protocol.TaskKind
	name  string
}

// These limits determine when a wait needs attention.
const (
	waitedEnough = 5 * time.Minute // how long a task waits although a worker could have leased it immediately
	failedEnough = 10              // number of consecutive failed attempts of an activity
	// number of failed deliveries of a workflow task: its code fails, and retries seldom help
	taskFailed   = 2
	unseenEnough = time.Minute // how long no live worker has seen a cancellation request
)

// ReturnedOften is the number of consecutive returns without a start from which on they are reported: as the wait
// reason, in the log and by a metric.
const ReturnedOften = 3

// unstarted returns the wait reason of a task that was often returned without a start, while it is ready, or leased and
// not renewed yet; nil for any other task.
func unstarted(returned int, w protocol.Wait, l Lease) *protocol.Wait {
	busy := w.Reason == protocol.WaitWorkerBusy || w.Reason == protocol.WaitWorkerFull ||
		w.Reason == protocol.WaitSessionBusy || w.Reason == protocol.WaitRunning && !l.renewed()
	if returned < ReturnedOften || !busy {
		return nil
	}
	return &protocol.Wait{
		Reason: protocol.WaitUnstarted, Name: w.Name, Queue: w.Queue, Session: w.Session, Worker: l.Owner, Since: w.Since,
		Used: returned,
	}
}

// renewed reports whether the owner has renewed the lease.
func (l Lease) renewed() bool {
	return l.Until.After(l.LeasedAt.Add(time.Duration(l.Length) * time.Microsecond))
}

// finish adds to a wait its message and whether it needs an operator's attention. Some reasons need attention
// immediately, because the wait cannot end without an operator; others only after a certain time.
func (a *WaitContext) finish(kind protocol.WaitKind, w protocol.Wait) *protocol.Wait {
	w.Kind = kind
	switch w.Reason.Rule().Patience {
	case protocol.PatienceNone:
		w.Attention = true
	case protocol.PatienceShort:
		w.Attention = !w.Since.IsZero() && a.Now.Sub(w.Since.Time) >= waitedEnough
	case protocol.PatienceBrief:
		w.Attention = !w.Since.IsZero() && a.Now.Sub(w.Since.Time) >= StuckPlace
	}
	most := failedEnough
	if kind == protocol.WaitForTask {
		most = taskFailed
	}
	w.Attention = w.Attention || w.Failures >= most
	w.Message = w.Say(time.UTC)
	return &w
}

// TaskWait returns why the run's workflow task waits; nil without a task.
func (s *Run) TaskWait(a *WaitContext) *protocol.Wait {
	t := s.Task
	if t == nil {
		return nil
	}
	switch t.State {
	case Quarantined:
		return a.finish(protocol.WaitForRepair, protocol.Wait{
			Reason: protocol.WaitQuarantined, Name: s.Type, Queue: s.Queue, Workflow: s.WorkflowID, Detail: t.Problem,
		})
	case LeasedState:
		w := running(s.Type, s.Queue, t.Lease, t.failures())
		t.codeFailed(&w)
		if often := unstarted(t.Returned, w, t.Lease); often != nil {
			w = *often
		}
		return a.finish(protocol.WaitForTask, w)
	case Delayed:
		if s.Held != "" {
			return a.finish(protocol.WaitForTask, protocol.Wait{
				Reason: protocol.WaitQuota, Name: s.Type, Queue: s.Queue, Namespace: s.Namespace, Detail: string(s.Held),
				Since: s.StartedAt,
			})
		}
		w := protocol.Wait{Reason: protocol.WaitStartDelay, Name: s.Type, Queue: s.Queue, Until: t.ReadyAt}
		// A task that was delivered before is delayed because it failed; a start delay comes before the first delivery.
		if t.Delivery > 0 {
			w.Reason, w.Failures, w.Detail = protocol.WaitBackoff, t.failures(), t.Problem
			t.codeFailed(&w)
		}
		return a.finish(protocol.WaitForTask, w)
	}
	want := s.TaskRequirements()
	want.Queue = a.Settings(s.Queue)
	w := t.Suspect.wait(a.ready(s.Queue, want))
	w.Name, w.Since, w.Failures, w.Detail = s.Type, t.ReadyAt, t.failures(), cmp.Or(w.Detail, t.Problem)
	if leasable(w) { // otherwise no worker runs the code, and its failures are not the reason
		t.codeFailed(&w)
	}
	if often := unstarted(t.Returned, w, Lease{}); often != nil {
		w = *often
	}
	return a.finish(protocol.WaitForTask, w)
}

// codeFailed changes the wait reason to the failures of the task, if its code has failed taskFailed times in a row.
func (t *Task) codeFailed(w *protocol.Wait) {
	if w.Failures >= taskFailed {
		w.Reason, w.Detail = protocol.WaitTaskFailed, t.Problem
	}
}

// Cancellation describes the run's first cancellation request; nil without one. A worker has seen the request if a
// workflow task that contained it was completed, failed, or is leased by a live worker.
func (s *Run) Cancellation(a *WaitContext) *protocol.PendingCancellation {
	if s.CancelRequestedSeq == 0 {
		return nil
	}
	c := &protocol.PendingCancellation{RequestedAt: s.CancelRequestedAt, Seen: s.Seen >= s.CancelRequestedSeq}
	if t := s.Task; !c.Seen && t != nil && t.Shown >= s.CancelRequestedSeq {
		c.Seen = t.failures() > 0 || t.State == LeasedState && slices.ContainsFunc(a.Workers, func(w WorkerCandidate) bool {
			return w.ID == t.Owner && w.Alive
		})
	}
	switch unseen := a.Now.Sub(s.CancelRequestedAt.Time); {
	case c.Seen:
		c.Message = "the workflow's code was asked to end"
	case unseen >= unseenEnough:
		c.Attention = true
		c.Message = "no live worker has seen the request to cancel for " + unseen.Truncate(time.Second).String() +
			"; to end the run at once, force the cancellation"
	default:
		c.Message = "no live worker has seen the request to cancel yet"
	}
	return c
}

// wait returns the wait reason of a ready task that is suspected of a worker loss. If a worker could lease the task, it
// waits for a process without a suspect, or for an idle one.
func (s *Suspicion) wait(w protocol.Wait) protocol.Wait {
	if !s.Limited() {
		return w
	}
	switch w.Reason {
	case protocol.WaitWorkerBusy, protocol.WaitWorkerFull, protocol.WaitSessionBusy:
	default:
		return w
	}
	why := protocol.Wait{
		Reason: protocol.WaitSuspect, Queue: w.Queue, Session: w.Session, Losses: s.Losses, Blamed: s.Blamed,
		Until: s.restrictionsEndAt(), Detail: "a worker process that holds no suspect",
	}
	if s.Isolated() {
		why.Detail = "an idle worker process"
	}
	return why
}

// failures returns the number of deliveries of the task that failed. Deliveries that were lost with their worker do not
// count.
func (t *Task) failures() int {
	if t.Problem == "" {
		return 0
	}
	n := t.Attempt - t.Losses
	if t.State == LeasedState {
		n-- // the current delivery has not failed
	}
	return max(0, n)
}

// running returns the wait reason of a task that a worker runs.
func running(name, queue string, l Lease, failures int) protocol.Wait {
	return protocol.Wait{
		Reason: protocol.WaitRunning, Name: name, Queue: queue, Worker: l.Owner, Since: l.LeasedAt, Failures: failures,
	}
}

// ActivityWait returns why an open activity waits.
func (a *WaitContext) ActivityWait(act Activity) *protocol.Wait {
	switch act.State {
	case LeasedState:
		w := running(act.Type, act.Queue, act.Lease, act.Failures)
		w.Session, w.Detail = act.SessionID, act.LastFailure
		if often := unstarted(act.Returned, w, act.Lease); often != nil {
			w = *often
		}
		return a.finish(protocol.WaitForActivity, w)
	case Pending:
		until, _ := act.earliestDue()
		return a.finish(protocol.WaitForActivity, protocol.Wait{
			Reason: protocol.WaitPending, Name: act.Type, Queue: act.Queue, Since: act.Pending.Since, Until: until,
			Token: AttemptID(act.RunID, act.Seq, act.Delivery),
		})
	case Delayed:
		// A worker returned the task and named the handler file or package that it lacks, which an operator can add.
		if n := len(act.Lost); act.UnstartedReturns > 0 && n > 0 {
			last := act.Lost[n-1]
			w := protocol.Wait{Name: act.Type, Queue: act.Queue, Worker: last.Worker, Until: act.ReadyAt}
			w.Reason, w.Detail = protocol.ReturnedFor(last.Why)
			if w.Reason == protocol.WaitInstalling {
				w.Since = act.ScheduledAt
			}
			return a.finish(protocol.WaitForActivity, w)
		}
		w := protocol.Wait{
			Reason: protocol.WaitBackoff, Name: act.Type, Queue: act.Queue, Until: act.ReadyAt, Failures: act.Failures,
			Detail: act.LastFailure,
		}
		if act.Attempt == 0 && act.Failures == 0 {
			w.Reason = protocol.WaitStartDelay
		}
		return a.finish(protocol.WaitForActivity, w)
	}
	if act.Borrow != nil {
		return a.finish(protocol.WaitForActivity, a.poolWait(act))
	}
	w := a.ready(act.Queue, TaskRequirements{
		Kind: protocol.KindActivity, Type: act.Type, Requirements: act.Requirements, Queue: a.Settings(act.Queue),
		Session: a.Sessions[act.SessionID],
	})
	w = act.Suspect.wait(w)
	w.Name, w.Since, w.Failures = act.Type, act.ReadyAt, act.Failures
	if often := unstarted(act.Returned, w, Lease{}); often != nil {
		w = *often
	}
	return a.finish(protocol.WaitForActivity, w)
}

// poolWait returns the wait reason of a step that waits for a member of a pool.
func (a *WaitContext) poolWait(act Activity) protocol.Wait {
	w := protocol.Wait{
		Reason: protocol.WaitPool, Name: act.Type, Queue: act.Queue, Pool: act.Borrow.Pool, Since: act.ReadyAt,
		Position: a.Positions[StepID(act.RunID, act.Seq)],
	}
	if q := a.Settings(act.Queue); q == nil || q.Pool == nil || q.Pool.Deleted {
		w.Reason, w.Position = protocol.WaitNoPool, 0
	}
	return w
}

// SessionWait returns why tasks that are queued in a session wait, as far as the session's row shows it; nil if none
// waits.
func (a *WaitContext) SessionWait(s *Session) *protocol.Wait {
	moving := s.Moving != "" && s.Held(a.Now) || s.Drained
	if s.Terminal || s.Ready == 0 && !moving && !s.reserved(a.Now) {
		return nil
	}
	var w protocol.Wait
	switch {
	case moving:
		w = *AdmitSession(s, Lessee{Worker: &Worker{Capabilities: s.NeededCapabilities()}}, a.Now, false).Wait
	case s.reserved(a.Now):
		w = protocol.Wait{Reason: protocol.WaitSessionKept, Session: s.ID, Worker: s.For, Until: s.ForUntil}
	default:
		w = a.forWorker(s.Queue, protocol.KindActivity, s, func(l Lessee) Verdict { return AdmitSession(s, l, a.Now, false) })
	}
	w.Queue = cmp.Or(w.Queue, s.Queue)
	return a.finish(protocol.WaitForActivity, w)
}

// ready returns why no worker leases a ready task: a limit delays it, or no worker may run it. The limit is checked
// first, since it applies to all workers.
func (a *WaitContext) ready(queue string, want TaskRequirements) protocol.Wait {
	if t := a.Throttle(queue, want.Kind); t.Why != nil {
		return *t.Why
	}
	return a.unleased(queue, want)
}

// unleased returns why no worker leases a ready task that no limit delays.
func (a *WaitContext) unleased(queue string, want TaskRequirements) protocol.Wait {
	w := a.forWorker(queue, want.Kind, want.Session, func(l Lessee) Verdict { return Admit(want, l, a.Now) })
	if w.Reason == protocol.WaitTypeNotServed {
		w.Suggestion = a.suggestion(typeOf{queue, want.Kind, want.Type})
	}
	// If no live worker is in the queue's group, the routing is the cause: workers of other groups would not help.
	if to := want.Queue.Routed(); to != "" && w.Reason == protocol.WaitNoWorker {
		w = protocol.Wait{Reason: protocol.WaitGroupOffline, Group: to}
	}
	w.Queue = queue
	return w
}

// suggestion returns the registered type with the most similar name, among the live workers of the queue; empty if
// there is none.
func (a *WaitContext) suggestion(t typeOf) string {
	near, ok := a.suggestions[t]
	if !ok {
		if a.suggestions == nil {
			a.suggestions = map[typeOf]string{}
		}
		near = suggest.Name(t.name, a.registered(t.queue, t.kind))
		a.suggestions[t] = near
	}
	return near
}

// registered returns the types that live workers of a queue have registered, sorted.
func (a *WaitContext) registered(queue string, kind protocol.TaskKind) (types []string) {
	for _, c := range a.Workers {
		switch {
		case !c.Alive || !c.Serves(queue):
		case kind == protocol.KindActivity:
			types = append(types, c.ActivityTypes...)
		default:
			types = append(types, c.WorkflowTypes...)
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// forWorker returns why no worker leases a ready task: the session's owner, or else requirements that the queue's live
// workers lack. Of several workers it names the one that lacks least, because that problem is the easiest to fix.
// Without a queue it considers every worker.
func (a *WaitContext) forWorker(
	queue string, kind protocol.TaskKind, s *Session, judge func(Lessee) Verdict,
) protocol.Wait {
	if s != nil && s.Held(a.Now) {
		return a.forHolder(queue, kind, s, judge)
	}
	served, full, best, nearest := 0, sameLimit{}, -1, protocol.Wait{Reason: protocol.WaitNoWorker, Queue: queue}
	var short []protocol.Wait // refusals of workers that have too little of a resource
	for i := range a.Workers {
		c := &a.Workers[i]
		if !c.Alive || queue != "" && !c.Serves(queue) {
			continue
		}
		served++
		v := judge(c.lessee())
		w, n := v.Wait, verdictRank(v)
		if v.OK {
			// The rules admit the worker, but no tasks are dispatched to it at all.
			kept := a.blockedWait(c)
			if kept == nil {
				return a.busy(c, kind)
			}
			w = kept
		}
		if w.Reason == protocol.WaitWorkerSessionsFull {
			full.add(w.Limit)
		}
		if w.Reason == protocol.WaitSessionResources || w.Reason == protocol.WaitSessionTooLarge {
			short = append(short, *w)
		}
		if n > best {
			best, nearest = n, *w
		}
	}
	switch nearest.Reason {
	case protocol.WaitWorkerSessionsFull:
		served = full.workers
	case protocol.WaitSessionResources, protocol.WaitSessionTooLarge:
		served = addRooms(&nearest, short)
	}
	if served > 1 {
		nearest.Workers = served
	}
	return nearest
}

// lessee returns the worker with the number and the resources of its sessions.
func (c *WorkerCandidate) lessee() Lessee {
	return Lessee{Worker: c.Worker, Counted: true, Sessions: c.Sessions, Used: c.Used}
}

// maxRooms is the maximum number of workers whose free resources a wait names.
const maxRooms = 3

// addRooms adds to a wait for resources how much the workers have that refused the session for the same reason and
// resource, the ones with the most room first. It returns the number of these workers.
func addRooms(w *protocol.Wait, short []protocol.Wait) int {
	name := w.WorkerResources[0].Name
	var rooms []protocol.WorkerResource
	for i := range short {
		if r := short[i].WorkerResources[0]; short[i].Reason == w.Reason && r.Name == name {
			rooms = append(rooms, r)
		}
	}
	slices.SortStableFunc(rooms, func(a, b protocol.WorkerResource) int {
		return cmp.Compare(b.Free.Thousandths(), a.Free.Thousandths())
	})
	w.WorkerResources, w.Worker = rooms[:min(len(rooms), maxRooms)], rooms[0].Worker
	return len(rooms)
}

// sameLimit counts workers that hold the same maximum number of sessions; it is empty if their maximums differ.
type sameLimit struct {
	workers, limit int
	differ         bool
}

func (s *sameLimit) add(limit int) {
	s.differ = s.differ || s.workers > 0 && s.limit != limit
	s.workers, s.limit = s.workers+1, limit
	if s.differ {
		s.workers = 0
	}
}

// verdictRank returns a higher number the closer the worker is to being allowed to run the task.
func verdictRank(v Verdict) int {
	switch {
	case v.OK:
		return 6
	case v.Reason == protocol.ReasonQueueMismatch: // its group is not the one to which the queue is routed
		return 0
	case v.Reason == protocol.ReasonNotFound:
		return 1
	case v.Reason == protocol.ReasonVersionMismatch:
		return 2
	// it has the build to which the run is pinned, and that build is drained
	case v.Reason == protocol.ReasonWorkerDraining:
		return 3
	case v.Reason == protocol.ReasonSessionRequirements:
		return 4
	}
	return 5
}

// forHolder returns why a task of a held session waits: for the owner, which may not be allowed to run it either.
func (a *WaitContext) forHolder(
	queue string, kind protocol.TaskKind, s *Session, judge func(Lessee) Verdict,
) protocol.Wait {
	i := slices.IndexFunc(a.Workers, func(c WorkerCandidate) bool { return c.ID == s.Owner && c.Alive })
	if i < 0 {
		w := s.waitForHolder()
		w.Reason = protocol.WaitSessionHeld
		return w
	}
	c := &a.Workers[i]
	w := protocol.Wait{Reason: protocol.WaitSessionBusy, Session: s.ID, Worker: c.ID}
	v := judge(c.lessee())
	kept := a.blockedWait(c)
	switch {
	case queue != "" && !c.Serves(queue):
		w.Reason, w.Queue, w.WorkerQueues = protocol.WaitSessionOtherQueue, queue, c.Queues
	case kept != nil:
		w = *kept
		w.Session = s.ID
	case !v.OK:
		w = *v.Wait
		w.Session = s.ID
	case c.Full[kind]:
		w = a.busy(c, kind)
		w.Session = s.ID
	}
	w.Until, w.FallbackAt = orTime(w.Until, s.LeaseUntil), s.OpensAt()
	return w
}

func orTime(t, other history.Time) history.Time {
	if t.IsZero() {
		return other
	}
	return t
}

// blockedWait returns why no tasks are dispatched to a worker at all, or nil.
func (a *WaitContext) blockedWait(c *WorkerCandidate) *protocol.Wait {
	switch {
	case c.Gate != "":
		return &protocol.Wait{
			Reason: protocol.WaitReleaseMismatch, Worker: c.ID, Release: a.Release, WorkerRelease: c.Release, Detail: c.Gate,
		}
	case c.Draining:
		return &protocol.Wait{Reason: protocol.WaitWorkerDraining, Worker: c.ID}
	}
	return nil
}

// busy returns the wait reason for a worker that may lease the task and does not lease it.
func (a *WaitContext) busy(c *WorkerCandidate, kind protocol.TaskKind) protocol.Wait {
	if !c.Full[kind] {
		return protocol.Wait{Reason: protocol.WaitWorkerBusy, Worker: c.ID}
	}
	w := protocol.Wait{Reason: protocol.WaitWorkerFull, Worker: c.ID, Limit: c.ActivitySlots}
	if kind == protocol.KindWorkflow {
		w.Limit = c.WorkflowSlots
	}
	w.Used = w.Limit
	return w
}

// Wait returns what an open run waits for, as one reason. activities are the waits of its open activities, in order.
// Waits that a worker can end come first (workflow task, activities), then children, then external causes: a signal, a
// condition, a timer. A wait for a signal or a condition also names the next timer. Of several activities, Wait selects
// the first one that needs an operator's attention.
func (s *Run) Wait(a *WaitContext, activities []*protocol.Wait) *protocol.Wait {
	if s.Task != nil {
		return s.TaskWait(a)
	}
	if len(activities) > 0 {
		first := max(0, slices.IndexFunc(activities, func(w *protocol.Wait) bool { return w.Attention }))
		w := *activities[first]
		w.More = len(activities) - 1
		w.Message = w.Say(time.UTC)
		return &w
	}
	if w, ok := s.childWait(a.Inherited); ok {
		return a.finish(protocol.WaitForChild, w)
	}
	var fires history.Time
	for _, t := range s.Timers.All() {
		fires = earliest(fires, t.FireAt)
	}
	for seq, open := range s.Waits.All() {
		if open.Kind == AwakeableWait {
			return a.finish(protocol.WaitForAwakeable, s.awakeableWait(seq))
		}
		w := protocol.Wait{Reason: protocol.WaitSignal, Name: open.Name, Until: fires}
		if open.Kind == ConditionWait {
			w.Reason, w.Name = protocol.WaitCondition, open.Key
			return a.finish(protocol.WaitForCondition, w)
		}
		return a.finish(protocol.WaitForSignal, w)
	}
	if !fires.IsZero() {
		return a.finish(protocol.WaitForTimer, protocol.Wait{Reason: protocol.WaitTimer, Until: fires})
	}
	return a.finish(protocol.WaitForUpdate, protocol.Wait{Reason: protocol.WaitUpdate})
}

// childWait returns the wait for the first open child for whose end the run waits: a child that it started or to which
// it attached.
func (s *Run) childWait(inherited []InheritedChild) (w protocol.Wait, ok bool) {
	n := 0
	add := func(c *Child) {
		if n++; n == 1 {
			w = protocol.Wait{Reason: protocol.WaitChild, Workflow: c.WorkflowID, Name: c.Type, Failures: c.Failures}
		}
	}
	for _, c := range s.Children.All() {
		add(&c)
	}
	for i := range inherited {
		for _, at := range s.Attached.All() {
			if at.WorkflowID == inherited[i].WorkflowID {
				add(&inherited[i].Child)
				break
			}
		}
	}
	w.More = max(0, n-1)
	return w, n > 0
}
