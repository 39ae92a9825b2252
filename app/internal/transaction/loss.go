package transaction

import (
	"context"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The tasks of a lost worker process are judged in one change: it reads all of them, decides which are suspects or
// blamed, and ends their deliveries. If they were ended one by one, the last would seem to have been alone.

// Loss is the end of a worker process.
type Loss struct {
	Worker      engine.WorkerKey
	Incarnation string
	Why         string
	// Tasks are the deliveries leased to the process.
	Tasks []store.TaskRef
	// Expired: the process was not replaced and may still run its tasks, so only deliveries with expired leases end.
	Expired bool
	// Now are deliveries that end with Expired although their leases have not expired.
	Now []store.TaskRef
	// UnlessHeartbeat excludes activities that sent a heartbeat since then.
	UnlessHeartbeat history.Time
	// Limit is the setting max-blamed-losses.
	Limit int
}

// LossResult is the effect of a Loss, for logs and metrics: the deliveries that ended, the workflow tasks among them,
// the tasks that became suspects or were blamed, and the runs with tasks that were cleared.
type LossResult struct{ Ended, Flows, Suspects, Blamed, Cleared int }

// processID returns the ID of the process for findings.
func (l *Loss) processID() string {
	return engine.Lease{Owner: l.Worker.ID, Incarnation: l.Incarnation}.ProcessID()
}

// EndLostDeliveries ends the deliveries of a worker process. Deliveries that have ended meanwhile are skipped.
func EndLostDeliveries(ctx context.Context, s store.Store, l Loss) (LossResult, error) {
	if len(l.Tasks) == 0 {
		return LossResult{}, nil
	}
	// Suspects that share a loss with a suspect of this process are cleared if the suspect of this process is blamed.
	// Most processes hold no suspect, and then no other suspect is loaded.
	others, err := suspectsOf(ctx, s, l.Worker.Namespace)
	if err != nil {
		return LossResult{}, err
	}
	own := map[string][]store.TaskRef{} // by run
	needs := store.Keys{}
	for _, t := range l.Tasks {
		own[t.Run] = append(own[t.Run], t)
		addTask(&needs, t.Run, activitySeq(t))
	}
	// Tasks of this loss that another app judged first, and suspects that a verdict may clear.
	prior, priorBlamed := 0, false
	mine := func(o store.SuspectRef) bool {
		return slices.ContainsFunc(own[o.Run], func(t store.TaskRef) bool { return activitySeq(t) == o.Seq })
	}
	var losses []string // losses of the suspects that this process held
	for _, o := range others {
		if mine(o) {
			losses = append(losses, o.Suspicion.Of...)
		} else if slices.Contains(o.Suspicion.Of, l.processID()) {
			prior++
			priorBlamed = priorBlamed || o.Suspicion.By == l.processID()
		}
	}
	linked := slices.DeleteFunc(others, func(o store.SuspectRef) bool {
		return mine(o) || !o.Suspicion.SharesLoss(losses)
	})
	slices.Sort(needs.Runs)
	runs := slices.Clone(needs.Runs)
	for _, o := range linked {
		addTask(&needs, o.Run, o.Seq)
	}
	slices.Sort(needs.Runs)
	decide := func(rows store.Rows, now time.Time) (store.Writes, error) {
		return l.decide(rows, now, runs, own, linked, prior, priorBlamed)
	}
	out, err := Commit[lossOutcome](ctx, s, store.Transaction{Needs: needs, Decide: decide})
	if err != nil {
		return LossResult{}, err
	}
	// Deliveries whose end affects other runs are ended in separate changes, with the same verdict.
	for _, one := range out.separate {
		_, err := s.Commit(ctx, UpdateRun("", one.run, one.needs, one.in))
		switch {
		case err == nil:
			out.Ended += len(one.in.Tasks)
		case protocol.ReasonOf(err) == "":
			return out.LossResult, err
		}
	}
	return out.LossResult, nil
}

// suspectsOf reads the suspects of a namespace.
func suspectsOf(ctx context.Context, s store.Store, namespace string) (list []store.SuspectRef, err error) {
	err = s.View(ctx, func(r store.Reader) (err error) {
		list, err = r.Suspects(ctx, namespace)
		return err
	})
	return list, err
}

// addTask adds the run of a task to the keys of a transaction and, if seq is not 0, its activity.
func addTask(k *store.Keys, run string, seq int64) {
	if !slices.Contains(k.Runs, run) {
		k.Runs = append(k.Runs, run)
	}
	if seq > 0 && !slices.Contains(k.Activities, seq) {
		k.Activities = append(k.Activities, seq)
	}
}

// lossOutcome is the result of the transaction of a Loss.
type lossOutcome struct {
	LossResult
	separate []separateLoss
}

type separateLoss struct {
	run   string
	needs store.Keys
	in    engine.Lose
}

// activitySeq returns the command number of an activity, or 0 for a workflow task.
func activitySeq(t store.TaskRef) int64 {
	if t.Kind == protocol.KindWorkflow {
		return 0
	}
	return t.Seq
}

// leasedTask is a delivery that is still leased to the process.
type leasedTask struct {
	store.TaskRef
	suspect *engine.Suspicion
}

// endsBeforeExpiry reports whether a delivery ends before its lease expires.
func (l *Loss) endsBeforeExpiry(t store.TaskRef) bool {
	return slices.ContainsFunc(l.Now, func(o store.TaskRef) bool {
		return o.Kind == t.Kind && o.Run == t.Run && o.Seq == t.Seq && o.Delivery == t.Delivery
	})
}

// leasedOf returns the deliveries of a run that are still leased to the process.
func (l *Loss) leasedOf(run *engine.Run, refs []store.TaskRef) (list []leasedTask) {
	for _, t := range refs {
		if t.Kind == protocol.KindWorkflow {
			if k := run.Task; k != nil && k.Number == t.Seq && k.State == engine.LeasedState && k.Delivery == t.Delivery {
				list = append(list, leasedTask{t, k.Suspect})
			}
			continue
		}
		a, ok := run.Activities.Get(t.Seq)
		if ok && a.State == engine.LeasedState && a.Delivery == t.Delivery &&
			(l.UnlessHeartbeat.IsZero() || !a.HeartbeatAt.After(l.UnlessHeartbeat.Time)) {
			list = append(list, leasedTask{t, a.Suspect})
		}
	}
	return list
}

// decide judges the loss on the current rows and returns its writes.
func (l *Loss) decide(
	rows store.Rows, now time.Time, runs []string, own map[string][]store.TaskRef, others []store.SuspectRef,
	prior int, priorBlamed bool,
) (store.Writes, error) {
	w, out := store.Writes{}, lossOutcome{}
	tasks, suspects := prior, 0
	lost := map[string][]leasedTask{}
	for _, id := range runs {
		run := rows.Run(id)
		if run == nil {
			continue
		}
		lost[id] = l.leasedOf(run, own[id])
		tasks += len(lost[id])
		for _, t := range lost[id] {
			if t.suspect != nil {
				suspects++
			}
		}
	}
	var losses []string // losses that a task is blamed for now; their other suspects are cleared
	for _, id := range runs {
		if len(lost[id]) == 0 {
			continue
		}
		in := engine.Lose{Why: l.Why, Process: l.processID(), Leased: tasks, Limit: l.Limit, Expired: l.Expired}
		for _, t := range lost[id] {
			one := engine.LostTask{
				Seq: activitySeq(t.TaskRef), Number: t.Seq, Delivery: t.Delivery, Now: l.endsBeforeExpiry(t.TaskRef),
			}
			if !priorBlamed {
				one.Part = engine.JudgeLoss(tasks, suspects, t.suspect != nil)
			}
			switch one.Part {
			case engine.LossSuspect:
				out.Suspects++
			case engine.LossBlamed:
				out.Blamed++
				if t.suspect != nil {
					losses = append(losses, t.suspect.Of...)
				}
			}
			in.Tasks = append(in.Tasks, one)
			if t.Kind == protocol.KindWorkflow {
				out.Flows++
			}
		}
		run := rows.Run(id)
		d, err := engine.DecideRun(run, withDecidedSessions(environment(rows, run), &w), in, now)
		if err != nil {
			continue // the run is closed, or the delivery has ended
		}
		if len(d.Spawn) > 0 || d.Continue != nil || len(d.Outbox) > 0 ||
			run.Status.Open() && !d.Next.Status.Open() {
			needs := store.Keys{Runs: []string{id}}
			for _, t := range in.Tasks {
				if t.Seq > 0 {
					needs.Activities = append(needs.Activities, t.Seq)
				}
			}
			out.separate = append(out.separate, separateLoss{id, needs, in})
			continue
		}
		out.Ended += len(in.Tasks)
		w.Runs = append(w.Runs, d)
	}
	if len(losses) > 0 {
		out.Cleared = clearSuspects(rows, now, losses, others, &w)
	}
	w.Answer = out
	return w, nil
}

// ClearSuspects clears the suspects of losses that another task was blamed for, and returns the number of changed runs.
func ClearSuspects(ctx context.Context, s store.Store, namespace string, losses []string) (int, error) {
	others, err := suspectsOf(ctx, s, namespace)
	others = slices.DeleteFunc(others, func(o store.SuspectRef) bool { return !o.Suspicion.SharesLoss(losses) })
	if err != nil || len(others) == 0 {
		return 0, err
	}
	needs := store.Keys{}
	for _, o := range others {
		addTask(&needs, o.Run, o.Seq)
	}
	slices.Sort(needs.Runs)
	decide := func(rows store.Rows, now time.Time) (store.Writes, error) {
		w := store.Writes{}
		w.Answer = clearSuspects(rows, now, losses, others, &w)
		return w, nil
	}
	return Commit[int](ctx, s, store.Transaction{Needs: needs, Decide: decide})
}

// clearSuspects clears the other suspects of losses that a task is blamed for.
func clearSuspects(
	rows store.Rows, now time.Time, losses []string, others []store.SuspectRef, w *store.Writes,
) (cleared int) {
	byRun := map[string]engine.Clear{}
	for _, o := range others {
		if !o.Suspicion.SharesLoss(losses) {
			continue
		}
		c := byRun[o.Run]
		c.Losses = losses
		if o.Seq == 0 {
			c.Task = true
		} else {
			c.Seqs = append(c.Seqs, o.Seq)
		}
		byRun[o.Run] = c
	}
	for _, id := range sortedKeys(byRun) {
		run, at := decidedRun(rows, id, w)
		if run == nil {
			continue
		}
		d, err := engine.DecideRun(run, withDecidedSessions(environment(rows, run), w), byRun[id], now)
		if err != nil {
			continue
		}
		cleared++
		mergeDecision(rows, d, at, w)
	}
	return cleared
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// withDecidedSessions returns an environment with the session states that the decisions of w produced: several runs may
// share a session.
func withDecidedSessions(e engine.Environment, w *store.Writes) engine.Environment {
	stored := e.Session
	e.Session = func(id string) *engine.Session {
		for i := len(w.Runs) - 1; i >= 0; i-- {
			for k := range w.Runs[i].Sessions {
				if s := &w.Runs[i].Sessions[k].Session; s.ID == id {
					return s
				}
			}
		}
		return stored(id)
	}
	return e
}

// ProcessLeases returns the deliveries of a worker's processes, by incarnation.
func ProcessLeases(ctx context.Context, s store.Store, key engine.WorkerKey) (map[string][]store.TaskRef, error) {
	all := map[string][]store.TaskRef{}
	err := s.View(ctx, func(r store.Reader) error {
		refs, err := r.Owned(ctx, key, "")
		for _, ref := range refs {
			all[ref.Incarnation] = append(all[ref.Incarnation], ref)
		}
		return err
	})
	return all, err
}
