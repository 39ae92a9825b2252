package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
)

// When a worker process ends, all tasks that were leased to it are lost. One of them may have ended it; the others only
// ran in the same process. A loss is therefore judged over all tasks of the process: if it had one task, that task is
// blamed; if it had one suspect, the suspect is blamed; otherwise all tasks become suspects. The result is stored with
// each task as its Suspicion.

// Times and limits for suspects: tasks that may have ended their worker process.
const (
	// After freeSuspectAfter, a suspect with at most freeSuspectLosses losses is dispatched to any process.
	freeSuspectAfter  = time.Minute
	freeSuspectLosses = 2
	// sharedBlamedAfter is the time after which a blamed task no longer waits for an idle process.
	sharedBlamedAfter = 5 * time.Minute
	// A suspect is cleared when it has run for twice as long as before the loss, within these bounds.
	minClearAfter = 10 * time.Second
	maxClearAfter = 5 * time.Minute
	// The backoff of a blamed task doubles from minBlamedBackoff to maxBlamedBackoff, unless its retry policy demands
	// more.
	minBlamedBackoff = time.Second
	maxBlamedBackoff = time.Minute
)

// DefaultBlamedLosses is the number of blamed worker losses after which a task is not retried if neither the setting
// max-blamed-losses nor the activity's option is set.
const DefaultBlamedLosses = 3

// maxLossIDs is the maximum number of loss IDs that are stored with a suspect. Older losses no longer connect it with
// other suspects.
const maxLossIDs = 10

// LossPart is the verdict on one task of a lost process. History contains it with the lost delivery.
type LossPart string

// These are the verdicts. A task without a verdict ran in the same process as the only suspect.
const (
	LossSuspect LossPart = "suspect"
	LossBlamed  LossPart = "blamed"
)

// Finding is the verdict on a delivery whose process was lost. It is stored in the lease until the lease expires: the
// process may still be alive, and a renewal then removes the Finding.
type Finding struct {
	Process string   `json:"process"`
	Tasks   int      `json:"tasks"` // number of tasks that were leased to the process
	Part    LossPart `json:"part,omitempty"`
	Limit   int      `json:"limit,omitempty"` // setting max-blamed-losses of the app that judged the loss
}

// Suspicion is the record of worker losses on a task. It is immutable, because rows share it.
type Suspicion struct {
	// IDs of the lost processes to which the task was leased, the latest last
	Of []string `json:"of"`
	// ID of the lost process for which the task was blamed last; empty: none
	By     string `json:"by,omitempty"`
	Losses int    `json:"losses"` // number of losses since the task was last cleared
	// number of losses for which the task was blamed since it was last cleared
	Blamed int          `json:"blamed,omitempty"`
	Ran    int64        `json:"ran,omitempty"` // how long the task had run before the last loss, in microseconds
	Since  history.Time `json:"since"`         // when the task became ready after the last loss
	// the task has waited long enough and may be dispatched to any process
	Freed bool `json:"freed,omitempty"`
	Alone bool `json:"isolated,omitzero"` // while leased: no other task is dispatched to the process
}

// ProcessID returns the ID of the worker process in findings and suspicions.
func (l Lease) ProcessID() string { return l.Owner + "/" + l.Incarnation }

// ProcessEnded is the outcome of a decision that found an expired lease of a process that has ended: all tasks of the
// process must be judged together; see Lose.
type ProcessEnded struct {
	Namespace, Worker, Incarnation string
}

func (e *ProcessEnded) Error() string {
	return fmt.Sprintf("worker %s, process %s, has ended: its tasks have to be judged together", e.Worker, e.Incarnation)
}

// JudgeLoss returns the verdict on a task of a lost process. tasks and suspects are the numbers of tasks and suspects
// that the process had; suspect is true if the task was one of the suspects.
func JudgeLoss(tasks, suspects int, suspect bool) LossPart {
	switch {
	case tasks == 1:
		return LossBlamed
	case suspects == 1 && suspect:
		return LossBlamed
	case suspects == 1:
		return ""
	}
	return LossSuspect
}

// Limited reports whether the task may be leased only by a claim that counted the tasks of the process. The process
// must have no suspect, or must be idle.
func (s *Suspicion) Limited() bool { return s != nil && (s.Blamed > 0 || !s.Freed) }

// HeldTasks are the numbers of tasks of a process, which a claim counted under the lock of the worker's row.
type HeldTasks struct {
	Counted         bool
	Tasks, Suspects int
}

// Admits reports whether the task may be leased to a process with these tasks.
func (s *Suspicion) Admits(h HeldTasks) bool {
	switch {
	case !s.Limited():
		return true
	case !h.Counted:
		return false
	case s.Isolated():
		return h.Tasks == 0
	}
	return h.Suspects == 0
}

// Isolated reports whether the task needs an idle process.
func (s *Suspicion) Isolated() bool { return s != nil && s.Blamed > 0 && !s.Freed }

// Compare orders suspects for dispatch: the most losses first, then the shortest run before the loss.
func (s *Suspicion) Compare(o *Suspicion) int {
	return cmp.Or(cmp.Compare(o.Losses, s.Losses), cmp.Compare(s.Ran, o.Ran))
}

// leased returns the suspicion of a task that is being leased.
func (s *Suspicion) leased() *Suspicion {
	if s == nil || s.Alone == s.Isolated() {
		return s
	}
	next := *s
	next.Alone = next.Isolated()
	return &next
}

// ready returns the suspicion of a blamed task whose backoff has ended.
func (s *Suspicion) ready(now history.Time) *Suspicion {
	if s == nil || s.Blamed == 0 {
		return s
	}
	next := *s
	next.Since = now
	return &next
}

// restrictionsEndAt returns when the restrictions on a suspect end. Then a suspect with few losses may be dispatched to
// any process, and a blamed task to any process without a suspect. Zero: they do not end.
func (s *Suspicion) restrictionsEndAt() history.Time {
	switch {
	case s == nil || s.Freed:
		return history.Time{}
	case s.Blamed > 0:
		return plus(s.Since, sharedBlamedAfter)
	case s.Losses <= freeSuspectLosses:
		return plus(s.Since, freeSuspectAfter)
	}
	return history.Time{}
}

func (s *Suspicion) free() *Suspicion {
	next := *s
	next.Freed = true
	return &next
}

// clearsAt returns when a task that was leased at the given time has run long enough to be cleared; zero if it is not a
// suspect.
func (s *Suspicion) clearsAt(leased history.Time) history.Time {
	if s == nil {
		return history.Time{}
	}
	return plus(leased, min(max(2*time.Duration(s.Ran)*time.Microsecond, minClearAfter), maxClearAfter))
}

// afterLoss returns the suspicion of a task after another worker loss.
func (s *Suspicion) afterLoss(f Finding, ran time.Duration, now history.Time) *Suspicion {
	if f.Part == "" {
		return s
	}
	next := Suspicion{}
	if s != nil {
		next = *s
	}
	next.Of = slices.DeleteFunc(slices.Clone(next.Of), func(id string) bool { return id == f.Process })
	next.Of = append(next.Of, f.Process)
	next.Of = next.Of[max(0, len(next.Of)-maxLossIDs):]
	next.Losses++
	if f.Part == LossBlamed {
		next.Blamed++
		next.By = f.Process
	}
	next.Ran, next.Since, next.Freed, next.Alone = max(0, ran).Microseconds(), now, false, false
	return &next
}

// SharesLoss reports whether the task is a suspect of one of these losses and was not blamed for it.
func (s *Suspicion) SharesLoss(ids []string) bool {
	return s != nil && s.Blamed == 0 && slices.ContainsFunc(s.Of, func(id string) bool { return slices.Contains(ids, id) })
}

// runTimeBeforeLoss returns how long a delivery had run when its process ended. If an expired lease showed the loss,
// the last heartbeat counts as the end of the process.
func runTimeBeforeLoss(l Lease, heartbeatAt history.Time, why string, now history.Time) time.Duration {
	end := now
	if why == LeaseExpired || why == ReasonOrphaned {
		end = latest(heartbeatAt, plus(l.Until, -time.Duration(l.Length)*time.Microsecond))
	}
	return end.Sub(l.LeasedAt.Time)
}

// blamedBackoff returns the backoff before the next delivery of a task that was blamed for the nth time.
func blamedBackoff(n int, policy time.Duration) time.Duration {
	return max(policy, min(maxBlamedBackoff, minBlamedBackoff<<min(max(n-1, 0), 10)))
}

// Lose ends the deliveries of one run whose worker process ended, each with its verdict. With Expired it ends only
// deliveries with expired leases: the process may still run the others, so their findings are stored in their leases.
type Lose struct {
	Tasks   []LostTask
	Why     string
	Process string
	Leased  int // number of tasks that were leased to the process
	Limit   int // setting max-blamed-losses; 0: DefaultBlamedLosses
	Expired bool
}

// LostTask is one delivery of a Lose. Number is the number of a workflow task, Seq the number of an activity's command.
type LostTask struct {
	Seq, Number, Delivery int64
	Part                  LossPart
	// ends before its lease expires, because another worker holds the session in which it ran
	Now bool
}

func (in Lose) decide(st *step) error {
	if err := st.mustHaveTasks(); err != nil {
		return err
	}
	done := false
	for _, lost := range in.Tasks {
		f := Finding{Process: in.Process, Tasks: in.Leased, Part: lost.Part, Limit: in.Limit}
		if lost.Seq == 0 {
			t := st.Task
			if t == nil || t.Number != lost.Number || t.State != LeasedState || t.Delivery != lost.Delivery {
				continue
			}
			if done = true; in.Expired && !lost.Now && t.Until.After(st.now.Time) {
				t.Loss = &f
			} else {
				t.lose(st.now, in.Why, f)
			}
			continue
		}
		a, ok := st.Activities.Get(lost.Seq)
		if !ok || a.State != LeasedState || a.Delivery != lost.Delivery {
			continue
		}
		if done = true; in.Expired && !lost.Now && a.Until.After(st.now.Time) {
			a.Loss = &f
			st.Activities.Put(a.Seq, a)
		} else {
			st.lose(a, in.Why, f)
		}
		if !st.Status.Open() && !st.HasCode() { // an activity run closes with its activity
			break
		}
	}
	if !done {
		return errNotDue
	}
	st.d.Answer = Answer{Outcome: "returned", Recorded: true}
	return nil
}

// lose ends a delivery of an activity that was lost with its worker process. It uses up no attempt of the retry policy.
func (st *step) lose(a Activity, why string, f Finding) {
	if st.cancelledInstead(a, why) {
		return
	}
	st.endActivity(a, false)
	ran := runTimeBeforeLoss(a.Lease, a.HeartbeatAt, why, st.now)
	st.setUpWithoutOutcome(a)
	a.recordLostDelivery(st.now, why, f)
	a.Losses++
	a.FirstReady, a.Returned = history.Time{}, 0
	a.Suspect = a.Suspect.afterLoss(f, ran, st.now)
	if f.Part != LossBlamed {
		a.removeLease()
		a.State, a.ReadyAt = Ready, st.now
		st.Activities.Put(a.Seq, a)
		st.requeueInSession(a)
		return
	}
	a.Blamed = max(a.Blamed+1, a.Suspect.Blamed)
	if limit, ends := a.blamedLimit(f.Limit); ends && a.Blamed >= limit {
		st.fail(a, history.Failure{
			Category: "poison", ExceptionType: "poison", NonRetryable: true,
			Message: fmt.Sprintf(
				"given up after %s ended while it was the only task, or the only suspect, there: %s",
				countNoun(a.Blamed, "worker process"), why,
			),
		}, "")
		return
	}
	wait, _ := a.Retry.Next(a.Blamed, "", false)
	a.removeLease()
	a.startBackoff(st.now, plus(st.now, blamedBackoff(a.Blamed, wait)))
	st.Activities.Put(a.Seq, a)
}

// blamedLimit returns how often the activity may be blamed for losses before it fails as poison: the larger of the
// option (or else the setting) and the maximum attempts of its retry policy. ends is false if there is no limit.
func (a *Activity) blamedLimit(setting int) (limit int, ends bool) {
	limit = cmp.Or(a.MaxBlamed, setting, DefaultBlamedLosses)
	if a.Retry == nil {
		return limit, true
	}
	if a.Retry.MaxAttempts == nil {
		return 0, false
	}
	return max(limit, *a.Retry.MaxAttempts), true
}

// lose ends a delivery of a workflow task that was lost with its worker process.
func (t *Task) lose(now history.Time, why string, f Finding) {
	ran := runTimeBeforeLoss(t.Lease, history.Time{}, why, now)
	t.Lost = appendLost(t.Lost, f.addTo(history.Lost{
		Delivery: t.Delivery, Worker: t.Owner, At: now, Why: why, StartedAt: t.LeasedAt,
	}))
	t.Losses++
	t.Returned = 0
	t.Suspect = t.Suspect.afterLoss(f, ran, now)
	t.Lease = Lease{}
	t.State, t.ReadyAt = Ready, now
	if f.Part != LossBlamed {
		return
	}
	t.Blamed = max(t.Blamed+1, t.Suspect.Blamed)
	if t.Blamed >= cmp.Or(f.Limit, DefaultBlamedLosses) {
		t.State, t.Problem = Quarantined, countNoun(t.Blamed, "worker process")+
			" ended while it was the only task, or the only suspect, there: "+why
		return
	}
	t.startBackoff(now, plus(now, blamedBackoff(t.Blamed, 0)))
}

// addTo adds the finding to the entry of a lost delivery.
func (f Finding) addTo(l history.Lost) history.Lost {
	l.Tasks, l.Verdict = f.Tasks, string(f.Part)
	return l
}

// Clear ends the suspicion of tasks after another task was blamed for their worker losses: of the activities Seqs, and
// of the workflow task if Task is true.
type Clear struct {
	Seqs   []int64
	Task   bool
	Losses []string
}

func (in Clear) decide(st *step) error {
	if err := st.mustHaveTasks(); err != nil {
		return err
	}
	done := false
	for _, seq := range in.Seqs {
		if a, ok := st.Activities.Get(seq); ok && a.Suspect.SharesLoss(in.Losses) {
			a.Suspect, done = nil, true
			st.Activities.Put(seq, a)
		}
	}
	if t := st.Task; in.Task && t != nil && t.Suspect.SharesLoss(in.Losses) {
		t.Suspect, done = nil, true
	}
	if !done {
		return errNotDue
	}
	return nil
}

// Ready reports whether a task of the run is ready; seq 0 means its workflow task.
func (s *Run) Ready(seq int64) bool {
	if seq == 0 {
		return s.Task != nil && s.Task.State == Ready
	}
	a, ok := s.Activities.Get(seq)
	return ok && a.State == Ready
}

// SuspicionOf returns the suspicion of one task of the run; seq 0 means its workflow task.
func (s *Run) SuspicionOf(seq int64) *Suspicion {
	if seq == 0 {
		if s.Task == nil {
			return nil
		}
		return s.Task.Suspect
	}
	a, _ := s.Activities.Get(seq)
	return a.Suspect
}
