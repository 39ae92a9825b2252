package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// stuckTask is a run with an activity and its environment: one worker w of queue q that may run everything, and, in
// some cases, the session s.
type stuckTask struct {
	run     Run
	act     Activity
	session Session
	around  WaitContext
	queue   Queue
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func newStuckTask() *stuckTask {
	at := history.At(noon)
	w := &stuckTask{
		run: Run{
			Head: Head{
				ID: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Namespace: "default", Type: "flow", Queue: "q", Status: protocol.RunRunning,
			},
		},
		act: Activity{Seq: 1, Namespace: "default", Type: "charge", Queue: "q", State: Ready, ReadyAt: at},
		session: Session{
			Namespace: "default", ID: "s", Status: protocol.SessionActive, Owner: "w", Incarnation: "i",
			LeaseUntil: history.At(noon.Add(20 * time.Second)),
		},
		queue: Queue{Namespace: "default", Name: "q"},
	}
	w.around = WaitContext{
		Now: noon, Release: "2",
		Workers: []WorkerCandidate{{Alive: true, Worker: &Worker{
			Namespace: "default", ID: "w", Incarnation: "i", Queues: []string{"q"}, WorkflowTypes: []string{"flow"},
			ActivityTypes: []string{"charge"},
			WorkflowSlots: 2, ActivitySlots: 4, MaxSessions: 3, Release: "1", Status: protocol.WorkerActive,
		}}},
		Sessions: map[string]*Session{},
		Settings: func(string) *Queue { return &w.queue },
		Throttle: func(_ string, kind protocol.TaskKind) Throttle {
			_, t, _ := w.queue.Room(kind, 2, w.around.Now)
			return t
		},
	}
	return w
}

// task makes the run's workflow task open.
func (w *stuckTask) task(t Task) { t.Number, w.run.Task = 1, &t }

// inSession puts the activity into the session. Another worker than w holds the session until its lease ends, unless a
// case changes that.
func (w *stuckTask) inSession() *Session {
	w.act.SessionID, w.around.Sessions["s"] = "s", &w.session
	return &w.session
}

func (w *stuckTask) free() *Session {
	s := w.inSession()
	s.Owner, s.LeaseUntil, s.Incarnation = "", history.Time{}, ""
	return s
}

// everyWait has at least one case for each wait reason. If a case has a workflow task or another open step, it checks
// the reason of the run, otherwise that of the activity.
var everyWait = []struct {
	reason    protocol.WaitReason
	attention bool
	make      func(*stuckTask)
	say       string
}{
	{protocol.WaitSuspect, false, func(w *stuckTask) {
		w.act.Suspect = &Suspicion{Of: []string{"w/i"}, Losses: 2, Since: history.At(noon)}
	}, `activity "charge" is a suspect in lost worker processes (lost: 2) and waits for a worker process that holds no suspect, at most until 2026-01-01T12:01:00Z`},
	{protocol.WaitSuspect, false, func(w *stuckTask) {
		w.task(Task{State: Ready, Suspect: &Suspicion{Losses: 3, Blamed: 1, Since: history.At(noon)}})
	}, "workflow task is a suspect in lost worker processes (lost: 3, blamed: 1) and waits for an idle worker process, at most until 2026-01-01T12:05:00Z"},
	{protocol.WaitNoWorker, true, func(w *stuckTask) {
		w.act.Suspect = &Suspicion{Of: []string{"w/i"}, Losses: 3, Since: history.At(noon)}
		w.around.Workers = nil
	}, `activity "charge": no live worker is polling queue "q"`},
	{protocol.WaitRunning, false, func(w *stuckTask) {
		w.task(Task{State: LeasedState, Lease: Lease{Owner: "w"}})
	}, "workflow task is running on worker w"},
	{protocol.WaitRunning, true, func(w *stuckTask) {
		w.act.State, w.act.Owner, w.act.Failures = LeasedState, "w", 10
	}, `activity "charge" is running on worker w`},
	{
		protocol.WaitQuota, false, func(w *stuckTask) {
			w.run.Namespace, w.run.Held, w.run.StartedAt = "n", protocol.QuotaOpenRuns, history.At(noon)
			w.task(Task{State: Delayed})
		},
		`quota open_runs of namespace "n" is exceeded; the child workflow starts when usage falls`,
	},
	{
		protocol.WaitQuota, true, func(w *stuckTask) {
			w.run.Namespace, w.run.Held = "n", protocol.QuotaOpenRuns
			w.run.StartedAt = history.At(noon.Add(-10 * time.Minute))
			w.task(Task{State: Delayed})
		},
		`quota open_runs of namespace "n" is exceeded; the child workflow starts when usage falls`,
	},
	{
		protocol.WaitStartDelay, false, func(w *stuckTask) {
			w.task(Task{State: Delayed, ReadyAt: history.At(noon.Add(time.Hour))})
		},
		"start delayed until 2026-01-01T13:00:00Z",
	},
	{protocol.WaitBackoff, false, func(w *stuckTask) {
		w.act.State, w.act.ReadyAt, w.act.Failures = Delayed, history.At(noon.Add(time.Minute)), 9
	}, `activity "charge": next attempt at 2026-01-01T12:01:00Z (9 failed)`},
	{protocol.WaitBackoff, true, func(w *stuckTask) {
		w.act.State, w.act.ReadyAt, w.act.Failures = Delayed, history.At(noon.Add(time.Minute)), 10
	}, `activity "charge": next attempt at 2026-01-01T12:01:00Z (10 failed)`},
	{protocol.WaitTaskFailed, true, func(w *stuckTask) {
		w.task(Task{State: Delayed, Delivery: 2, Attempt: 2, Problem: "boom", ReadyAt: history.At(noon.Add(time.Second))})
	}, "boom; failed 2 times in a row; next attempt at 2026-01-01T12:00:01Z"},
	{protocol.WaitTaskFailed, true, func(w *stuckTask) {
		w.task(Task{State: Ready, Delivery: 3, Attempt: 3, Problem: "boom", ReadyAt: history.At(noon)})
	}, "boom; failed 3 times in a row"},
	{protocol.WaitTaskFailed, true, func(w *stuckTask) {
		w.task(Task{State: LeasedState, Delivery: 4, Attempt: 4, Problem: "boom", Lease: Lease{Owner: "w"}})
	}, "boom; failed 3 times in a row"},
	{protocol.WaitRunning, false, func(w *stuckTask) { // the first failure is retried immediately
		w.task(Task{State: LeasedState, Delivery: 2, Attempt: 2, Problem: "boom", Lease: Lease{Owner: "w"}})
	}, "workflow task is running on worker w"},
	{protocol.WaitNoWorker, true, func(w *stuckTask) { // without a worker, the code is not retried
		w.task(Task{State: Ready, Delivery: 3, Attempt: 3, Problem: "boom", ReadyAt: history.At(noon)})
		w.around.Workers = nil
	}, `workflow task: no live worker is polling queue "q"`},
	{protocol.WaitTaskReturned, true, func(w *stuckTask) {
		w.act.State, w.act.ReadyAt, w.act.UnstartedReturns = Delayed, history.At(noon.Add(time.Second)), 2
		w.act.Lost = []history.Lost{{Worker: "w", Why: "no such handler"}}
	}, `activity "charge" was returned by worker w and is dispatched again at 2026-01-01T12:00:01Z: no such handler`},
	{protocol.WaitUnstarted, true, func(w *stuckTask) {
		w.act.Returned = ReturnedOften
	}, `activity "charge" was returned 3 times in a row without starting`},
	{protocol.WaitUnstarted, true, func(w *stuckTask) {
		w.task(Task{State: Ready, ReadyAt: history.At(noon), Returned: 4})
	}, "workflow task was returned 4 times in a row without starting"},
	{protocol.WaitUnstarted, true, func(w *stuckTask) {
		w.act.State, w.act.Returned = LeasedState, 5
		w.act.Lease = Lease{
			Owner: "w", LeasedAt: history.At(noon), Length: 10_000_000, Until: history.At(noon.Add(10 * time.Second)),
		}
	}, `activity "charge" was returned 5 times in a row without starting; it is leased to worker w again`},
	// Further returns do not change the reason; after a renewal the task counts as running; without a worker, the
	// missing worker is the reason.
	{protocol.WaitWorkerBusy, false, func(w *stuckTask) {
		w.act.Returned = ReturnedOften - 1
	}, `activity "charge": ready; worker w is busy or not polling`},
	{protocol.WaitRunning, false, func(w *stuckTask) {
		w.act.State, w.act.Returned = LeasedState, 5
		w.act.Lease = Lease{
			Owner: "w", LeasedAt: history.At(noon), Length: 10_000_000, Until: history.At(noon.Add(12 * time.Second)),
		}
	}, `activity "charge" is running on worker w`},
	{protocol.WaitNoWorker, true, func(w *stuckTask) {
		w.around.Workers, w.act.Returned = nil, 5
	}, `activity "charge": no live worker is polling queue "q"`},
	{protocol.WaitInstalling, false, func(w *stuckTask) {
		w.act.State, w.act.ReadyAt, w.act.UnstartedReturns = Delayed, history.At(noon.Add(time.Second)), 2
		w.act.ScheduledAt = history.At(noon.Add(-time.Minute))
		w.act.Lost = []history.Lost{{Worker: "w", Why: "packages_installing: package.json is being installed"}}
	}, `activity "charge" waits while worker w installs packages; next attempt at 2026-01-01T12:00:01Z: package.json is being installed`},
	{protocol.WaitInstalling, true, func(w *stuckTask) {
		w.act.State, w.act.ReadyAt, w.act.UnstartedReturns = Delayed, history.At(noon.Add(time.Second)), 2
		w.act.ScheduledAt = history.At(noon.Add(-time.Hour))
		w.act.Lost = []history.Lost{{Worker: "w", Why: "packages_installing: package.json is being installed"}}
	}, `activity "charge" waits while worker w installs packages; next attempt at 2026-01-01T12:00:01Z: package.json is being installed`},
	{protocol.WaitNoPackages, true, func(w *stuckTask) {
		w.act.State, w.act.ReadyAt, w.act.UnstartedReturns = Delayed, history.At(noon.Add(time.Second)), 2
		w.act.Lost = []history.Lost{{Worker: "w", Why: "packages_failed: no such package"}}
	}, `activity "charge" cannot start because worker w failed to install packages; next attempt at 2026-01-01T12:00:01Z: no such package`},
	{
		protocol.WaitQuarantined, true, func(w *stuckTask) { w.task(Task{State: Quarantined, Problem: "replay differs"}) },
		"replay differs. Fix or roll back the code, then run: sojourn workflow repair ",
	},
	{protocol.WaitTimer, false, func(w *stuckTask) {
		w.run.Timers.Put(1, Timer{FireAt: history.At(noon.Add(2 * time.Hour))})
		w.run.Timers.Put(2, Timer{FireAt: history.At(noon.Add(time.Hour))})
	}, "waiting for a timer that fires at 2026-01-01T13:00:00Z (database clock)"},
	{protocol.WaitSignal, false, func(w *stuckTask) {
		w.run.Waits.Put(1, Wait{Name: "approve"})
	}, `waiting for signal "approve"`},
	{protocol.WaitSignal, false, func(w *stuckTask) {
		w.run.Waits.Put(1, Wait{Name: "approve"})
		w.run.Timers.Put(2, Timer{FireAt: history.At(noon.Add(2 * time.Hour))})
		w.run.Timers.Put(3, Timer{FireAt: history.At(noon.Add(time.Hour))})
	}, `waiting for signal "approve"; a timer fires at 2026-01-01T13:00:00Z (database clock)`},
	{protocol.WaitCondition, false, func(w *stuckTask) {
		w.run.Waits.Put(1, Wait{Kind: ConditionWait, Key: "paid"})
		w.run.Timers.Put(2, Timer{FireAt: history.At(noon.Add(time.Hour))})
	}, `waiting for condition "paid"; signals and updates re-evaluate it; a timer fires at 2026-01-01T13:00:00Z (database clock)`},
	{
		protocol.WaitCondition, false, func(w *stuckTask) { w.run.Waits.Put(1, Wait{Kind: ConditionWait, Key: "paid"}) },
		`waiting for condition "paid"; signals and updates re-evaluate it`,
	},
	{
		protocol.WaitCondition, false, func(w *stuckTask) { w.run.Waits.Put(1, Wait{Kind: ConditionWait}) },
		"waiting for a condition; signals and updates re-evaluate it",
	},
	{protocol.WaitAwakeable, false, func(w *stuckTask) {
		w.run.ID, w.run.NeedsAwakeables = "RUN", true
		w.run.Waits.Put(2, Wait{Kind: AwakeableWait})
		w.run.Waits.Put(3, Wait{Kind: AwakeableWait})
		w.run.Timers.Put(2, Timer{FireAt: history.At(noon.Add(time.Hour)), Kind: AwakeableTimeout})
		w.run.Timers.Put(4, Timer{FireAt: history.At(noon.Add(time.Minute))})
	}, `waiting for awakeable RUN-2 until 2026-01-01T13:00:00Z (database clock) and 1 more; ` +
		`to complete it run: sojourn awakeable complete RUN-2`},
	{
		protocol.WaitAwakeable, false, func(w *stuckTask) {
			w.run.ID, w.run.NeedsAwakeables = "RUN", true
			w.run.Waits.Put(2, Wait{Kind: AwakeableWait})
		},
		`waiting for awakeable RUN-2; to complete it run: sojourn awakeable complete RUN-2`,
	},
	{protocol.WaitPending, false, func(w *stuckTask) {
		w.act = Activity{
			Seq: 2, RunID: "RUN", Type: "pay", State: Pending, Delivery: 3, Lease: Lease{LeasedAt: history.At(noon)},
			StartToClose: 3600, Pending: &PendingAttempt{Since: history.At(noon.Add(time.Minute))},
		}
	}, `activity "pay" is pending outside of a worker since 2026-01-01T12:01:00Z; it times out at 2026-01-01T13:00:00Z ` +
		`(database clock); to complete it run: sojourn activity complete RUN-2-3`},
	{protocol.WaitChild, false, func(w *stuckTask) {
		w.run.Children.Put(1, Child{WorkflowID: "c", Type: "ship"})
		w.run.Attached.Put(2, Attached{WorkflowID: "d"})
		w.around.Inherited = []InheritedChild{
			{Child: Child{WorkflowID: "d", Type: "ship"}}, {Child: Child{WorkflowID: "not awaited", Type: "ship"}},
		}
	}, `waiting for child workflow "c" of type "ship" and 1 more`},
	{protocol.WaitUpdate, false, func(w *stuckTask) {
		w.run.Updates.Put(1, Update{ID: "u"})
	}, "waiting for an update; nothing else is pending"},

	{protocol.WaitNoWorker, true, func(w *stuckTask) {
		w.around.Workers[0].Alive = false
	}, `activity "charge": no live worker is polling queue "q"`},
	{protocol.WaitNoWorker, true, func(w *stuckTask) {
		w.task(Task{State: Ready})
		w.run.Queue = "other"
	}, `workflow task: no live worker is polling queue "other"`},
	{protocol.WaitGroupOffline, true, func(w *stuckTask) {
		w.around.Settings = func(string) *Queue { return &Queue{Namespace: "default", Name: "q", Group: "gpu"} }
	}, `activity "charge": queue "q" is routed to group "gpu", and no live worker of the group is polling it`},
	{protocol.WaitGroupOffline, true, func(w *stuckTask) {
		w.around.Workers[0].Alive = false
		w.around.Settings = func(string) *Queue { return &Queue{Namespace: "default", Name: "q", Inherited: "gpu"} }
	}, `activity "charge": queue "q" is routed to group "gpu", and no live worker of the group is polling it`},
	{
		protocol.WaitWorkerBusy, false, func(w *stuckTask) {
			w.around.Workers[0].Group = "gpu"
			w.around.Settings = func(string) *Queue { return &Queue{Namespace: "default", Name: "q", Group: "gpu"} }
		},
		`activity "charge": ready; worker w is busy or not polling`,
	},
	{
		protocol.WaitWorkerBusy, false, func(*stuckTask) {},
		`activity "charge": ready; worker w is busy or not polling`,
	},
	{
		protocol.WaitWorkerBusy, true, func(w *stuckTask) { w.act.ReadyAt = history.At(noon.Add(-5 * time.Minute)) },
		`activity "charge": ready; worker w is busy or not polling`,
	},
	{protocol.WaitWorkerFull, false, func(w *stuckTask) {
		w.act.ReadyAt = history.At(noon.Add(-time.Hour))
		w.around.Workers[0].Full = map[protocol.TaskKind]bool{protocol.KindActivity: true}
	}, `activity "charge": ready; worker w is running its maximum of 4 tasks`},
	{protocol.WaitWorkerFull, false, func(w *stuckTask) {
		w.inSession()
		w.around.Workers[0].Full = map[protocol.TaskKind]bool{protocol.KindActivity: true}
	}, `activity "charge": session s is held by worker w, which is running its maximum of 4 tasks`},
	{protocol.WaitWorkerDraining, false, func(w *stuckTask) {
		w.around.Workers[0].Draining = true
	}, `activity "charge": worker w is draining`},
	{
		protocol.WaitWorkerDraining, false, func(w *stuckTask) { w.inSession(); w.around.Workers[0].Draining = true },
		`activity "charge": session s is held by worker w, which is draining`,
	},
	{
		protocol.WaitReleaseMismatch, true, func(w *stuckTask) {
			w.inSession()
			w.around.Workers[0].Gate = "app 2, worker 1"
		},
		`activity "charge": session s is held by worker w: app 2, worker 1`,
	},
	{protocol.WaitTypeNotServed, true, func(w *stuckTask) {
		w.act.Type = "print"
	}, `no worker on queue "q" has registered activity "print"`},
	{protocol.WaitTypeNotServed, true, func(w *stuckTask) {
		w.act.Type = "print"
		idle := WorkerCandidate{Alive: true, Worker: &Worker{ID: "x", Queues: []string{"q"}}}
		w.around.Workers = append(w.around.Workers, idle)
	}, `no worker on queue "q" has registered activity "print"`},
	{protocol.WaitTypeNotServed, true, func(w *stuckTask) {
		w.act.Type = "chagre"
	}, `no worker on queue "q" has registered activity "chagre"; did you mean "charge"?`},
	{protocol.WaitTypeNotServed, true, func(w *stuckTask) {
		w.run.Type = "flowt"
		w.task(Task{State: Ready})
	}, `no worker on queue "q" has registered workflow "flowt"; did you mean "flow"?`},
	{protocol.WaitTypeNotServed, true, func(w *stuckTask) { // workers of other queues and dead workers do not count
		w.act.Type, w.around.Workers[0].ActivityTypes = "chagre", nil
		w.around.Workers = append(w.around.Workers,
			WorkerCandidate{Alive: true, Worker: &Worker{ID: "x", Queues: []string{"p"}, ActivityTypes: []string{"charge"}}},
			WorkerCandidate{Worker: &Worker{ID: "y", Queues: []string{"q"}, ActivityTypes: []string{"charge"}}},
		)
	}, `no worker on queue "q" has registered activity "chagre"`},
	{protocol.WaitTypeNotServed, true, func(w *stuckTask) {
		w.inSession()
		w.act.Type = "print"
	}, `session s is held by worker w, which has not registered activity "print"`},
	{
		protocol.WaitBuildDrained, true, func(w *stuckTask) {
			w.queue.Builds = map[string]Build{"": {DrainedAt: history.At(noon)}}
		},
		`activity "charge": worker w, which has no build ID, is drained on queue "q"`,
	},
	{protocol.WaitBuildPinned, true, func(w *stuckTask) {
		w.pinned("b2")
	}, "workflow task: pinned to build b2, but worker w has build b1"},
	{protocol.WaitBuildPinned, true, func(w *stuckTask) {
		w.pinned("b2")
		w.queue.Builds = map[string]Build{"b1": {DrainedAt: history.At(noon)}} // resuming the build would not help
	}, "workflow task: pinned to build b2, but worker w has build b1"},
	{protocol.WaitBuildDrained, true, func(w *stuckTask) {
		w.pinned("b2")
		x := *w.around.Workers[0].Worker
		x.ID, x.BuildID = "x", "b2"
		w.around.Workers = append(w.around.Workers, WorkerCandidate{Alive: true, Worker: &x})
		w.queue.Builds = map[string]Build{"b2": {DrainedAt: history.At(noon)}}
	}, `workflow task: build b2 of worker x is drained on queue "q" (closest match of 2 workers)`},
	{
		protocol.WaitCapabilityMissing, true, func(w *stuckTask) { w.act.Requirements = []string{"arm64", "gpu"} },
		`activity "charge": needs arm64, gpu, which worker w does not offer`,
	},
	{
		protocol.WaitCapabilityMissing, true, func(w *stuckTask) { w.free().Requirements = []string{"printer"} },
		`activity "charge": session s needs printer, which worker w does not offer`,
	},
	{
		protocol.WaitNoDefinition, true, func(w *stuckTask) { w.free().Definition = "llama" },
		`activity "charge": session s needs the session definition llama, which worker w has not registered`,
	},
	{protocol.WaitWorkerWithout, true, func(w *stuckTask) {
		w.free()
		w.around.Workers[0].MaxSessions, w.around.Workers[0].Capabilities = 0, []string{CapSessions}
	}, `activity "charge": worker w accepts no sessions (max_concurrent_worker_sessions is 0)`},
	{protocol.WaitCapabilityMissing, true, func(w *stuckTask) {
		w.free()
		w.around.Workers[0].MaxSessions = 0
	}, `activity "charge": session s needs worker_sessions, which worker w does not offer`},
	{
		protocol.WaitWorkerSessionsFull, false, func(w *stuckTask) { w.free(); w.around.Workers[0].Sessions = 3 },
		`activity "charge": worker w holds its maximum number of sessions (3); raise --worker-max-sessions or close idle sessions`,
	},
	{
		protocol.WaitWorkerSessionsFull, true, func(w *stuckTask) {
			w.free()
			w.around.Workers[0].Sessions, w.act.ReadyAt = 3, history.At(noon.Add(-StuckPlace))
		},
		`activity "charge": worker w holds its maximum number of sessions (3); raise --worker-max-sessions or close idle sessions`,
	},

	{protocol.WaitSessionResources, false, func(w *stuckTask) {
		w.free()
		w.session.Resources = protocol.Resources{"gpu_mem": protocol.Bytes(24 << 30)}
		w.around.Workers[0].Resources = protocol.Resources{"gpu_mem": protocol.Bytes(80 << 30)}
		w.around.Workers[0].Used = Amounts{"gpu_mem": 72 << 30 * 1000}
		second := w.second(3)
		second.Resources = protocol.Resources{"gpu_mem": protocol.Bytes(48 << 30)}
		w.around.Workers[1].Sessions = 0
		w.around.Workers[1].Used = Amounts{"gpu_mem": 36 << 30 * 1000}
	}, `activity "charge": session s needs gpu_mem 24GiB; worker x has 12GiB of 48GiB free, worker w has 8GiB of 80GiB free`},
	{protocol.WaitSessionResources, true, func(w *stuckTask) {
		w.free()
		w.act.ReadyAt = history.At(noon.Add(-StuckPlace))
		w.session.Resources = protocol.Resources{"licence": protocol.Quantity{}.OfThousandths(2000)}
		w.around.Workers[0].Resources = protocol.Resources{"licence": protocol.Quantity{}.OfThousandths(3000)}
		w.around.Workers[0].Used = Amounts{"licence": 2000}
	}, `activity "charge": session s needs licence 2; worker w has 1 of 3 free`},
	{protocol.WaitSessionTooLarge, true, func(w *stuckTask) {
		w.free()
		w.session.Resources = protocol.Resources{"gpu_mem": protocol.Bytes(96 << 30)}
		w.around.Workers[0].Resources = protocol.Resources{"gpu_mem": protocol.Bytes(80 << 30)}
	}, `activity "charge": session s needs gpu_mem 96GiB; worker w has 80GiB of 80GiB free, even without sessions`},

	{protocol.WaitWorkerSessionsFull, false, func(w *stuckTask) {
		w.free()
		w.around.Workers[0].Sessions = 3
		w.second(3)
	}, `activity "charge": all 2 workers hold their maximum number of sessions (3 each); ` +
		"raise --worker-max-sessions or close idle sessions"},
	{protocol.WaitWorkerSessionsFull, false, func(w *stuckTask) { // the maximum of the other worker differs
		w.free()
		w.around.Workers[0].Sessions = 3
		w.second(4)
	}, `activity "charge": worker w holds its maximum number of sessions (3); ` +
		"raise --worker-max-sessions or close idle sessions"},
	{protocol.WaitWorkerSessionsFull, false, func(w *stuckTask) { // the other worker lacks something else
		w.free()
		w.around.Workers[0].Sessions = 3
		w.second(3).ActivityTypes = nil
	}, `activity "charge": worker w holds its maximum number of sessions (3); ` +
		"raise --worker-max-sessions or close idle sessions"},

	{protocol.WaitSessionOtherQueue, true, func(w *stuckTask) {
		w.inSession()
		w.around.Workers[0].Queues = []string{"p", "r"}
	}, `activity "charge": session s is held by worker w, which polls p, r but not queue "q"`},
	{protocol.WaitSessionHeld, false, func(w *stuckTask) {
		w.inSession().Owner = "w7"
	}, `activity "charge": session s is held by worker w7 until 2026-01-01T12:00:20Z`},
	{protocol.WaitSessionBusy, false, func(w *stuckTask) {
		w.inSession()
	}, `activity "charge": session s is held by worker w, which is busy or not polling`},
	{protocol.WaitSessionBusy, false, func(w *stuckTask) {
		s := w.inSession()
		s.WaitingSince, s.Fallback = history.At(noon), 30_000_000
	}, `activity "charge": session s is held by worker w, which is busy or not polling; any worker may acquire the session from 2026-01-01T12:00:30Z`},
	{
		protocol.WaitSessionFull, false, func(w *stuckTask) { s := w.inSession(); s.MaxActivities, s.Active = 1, 1 },
		`activity "charge": session s is running its maximum number of activities (1)`,
	},
	{protocol.WaitSessionMoving, false, func(w *stuckTask) {
		w.inSession().Moving = "ada"
	}, `activity "charge": session s is being moved; its queued tasks start after the move`},
	{
		protocol.WaitSessionKept, false, func(w *stuckTask) {
			s := w.free()
			s.For, s.ForUntil = "x", history.At(noon.Add(time.Second))
		},
		`activity "charge": session s is reserved for worker x until 2026-01-01T12:00:01Z`,
	},
	{
		protocol.WaitSessionRelease, true, func(w *stuckTask) {
			s := w.free()
			s.ReleasePolicy, s.Release = PolicyFinish, "0"
		},
		`activity "charge": session s is reserved for release 0 while an app of that release is alive; worker w has release 1`,
	},
	{
		protocol.WaitSessionLost, true, func(w *stuckTask) {
			s := w.free()
			s.EverAcquired, s.NoReacquire, s.Reason = true, true, ReasonLeaseLost
		},
		`activity "charge": session s was lost (lease_expired) and must not be acquired again`,
	},
	{
		protocol.WaitSessionEnded, false, func(w *stuckTask) { s := w.free(); s.Terminal, s.Reason = true, ReasonTTL },
		`activity "charge": session s has ended: ttl_expired`,
	},

	{protocol.WaitPool, false, func(w *stuckTask) {
		w.act.Borrow = &history.Borrow{Pool: "p"}
		w.queue.Pool = &Pool{}
		w.around.Positions = map[string]int{StepID(w.act.RunID, w.act.Seq): 3}
	}, `activity "charge": waiting for a session of pool p, position 3`},
	{protocol.WaitNoPool, true, func(w *stuckTask) {
		w.act.Borrow = &history.Borrow{Pool: "p"}
		w.queue.Pool = &Pool{Deleted: true}
	}, `activity "charge": waiting for a session of pool p, which does not exist`},

	{protocol.WaitBudgetLeases, false, func(w *stuckTask) {
		w.limit(Budget{Leases: 2})
	}, `activity "charge": queue "q" is at its concurrency limit (2 of 2 activity tasks leased)`},
	{
		protocol.WaitBudgetLeases, false, func(w *stuckTask) { w.limit(Budget{Leases: 1}); w.queue.Name = "" },
		`activity "charge": namespace "default" is at its concurrency limit (2 of 1 activity tasks leased)`,
	},
	{protocol.WaitBudgetRate, false, func(w *stuckTask) {
		w.limit(Budget{PerMinute: 5})
		w.queue = *w.queue.Count(protocol.KindActivity, 5, noon)
	}, `activity "charge": queue "q" is at its rate limit (5 of 5 activity tasks this minute); more start at 2026-01-01T12:01:00Z`},
}

// pinned pins the run to a build; its worker has build b1.
func (w *stuckTask) pinned(build string) {
	w.task(Task{State: Ready})
	w.run.BuildID, w.around.Workers[0].BuildID = build, "b1"
}

// second adds a worker that holds its maximum number of sessions.
func (w *stuckTask) second(sessions int) *Worker {
	x := *w.around.Workers[0].Worker
	x.ID, x.MaxSessions = "x", sessions
	w.around.Workers = append(w.around.Workers, WorkerCandidate{Alive: true, Worker: &x, Sessions: sessions})
	return &x
}

func (w *stuckTask) limit(b Budget) {
	w.queue.Limits = map[string]Budget{string(protocol.KindActivity): b}
}

func (w *stuckTask) ask() *protocol.Wait {
	if w.run.Task != nil || w.run.Timers.Len()+w.run.Waits.Len()+w.run.Children.Len()+w.run.Updates.Len() > 0 {
		return w.run.Wait(&w.around, nil)
	}
	return w.run.Wait(&w.around, []*protocol.Wait{w.around.ActivityWait(w.act)})
}

// The table has a case for every reason, with the expected message and attention flag.
func TestWhyItWaits(t *testing.T) {
	// this reason occurs only without counts of tasks
	seen := map[protocol.WaitReason]bool{protocol.WaitSessionUnclaimed: true}
	for _, c := range everyWait {
		t.Run(string(c.reason)+" "+c.say, func(t *testing.T) {
			w := newStuckTask()
			c.make(w)
			got := w.ask()
			if got.Reason != c.reason || got.Message != c.say || got.Attention != c.attention {
				t.Errorf(
					"waits %s (attention %t): %q, want %s (%t): %q", got.Reason, got.Attention, got.Message, c.reason, c.attention,
					c.say,
				)
			}
		})
		seen[c.reason] = true
	}
	for _, r := range protocol.WaitRules {
		if !seen[r.Reason] {
			t.Errorf("there is no case for the reason %s", r.Reason)
		}
	}
}

// A wait contains its data, not only a message.
func TestAWaitCarriesItsData(t *testing.T) {
	w := newStuckTask()
	w.inSession().Owner = "w7"
	got := w.ask()
	if got.Kind != protocol.WaitForActivity || got.Session != "s" || got.Worker != "w7" ||
		!got.Until.Equal(noon.Add(20*time.Second)) || got.Queue != "q" ||
		got.Name != "charge" || !got.Since.Equal(noon) {
		t.Errorf("a held session: %+v", got)
	}
	w = newStuckTask()
	w.free()
	w.around.Workers[0].Sessions = 3
	if got = w.ask(); got.Limit != 3 || got.Used != 3 || got.Worker != "w" || got.Session != "s" {
		t.Errorf("a worker at its cap: %+v", got)
	}
	w = newStuckTask()
	w.act.Requirements = []string{"gpu"}
	if got = w.ask(); !slices.Equal(got.Missing, []string{"gpu"}) || got.Worker != "w" {
		t.Errorf("a missing capability: %+v", got)
	}
	w = newStuckTask()
	w.act.Type = "chagre"
	if got = w.ask(); got.Suggestion != "charge" || got.Name != "chagre" || got.Queue != "q" {
		t.Errorf("a type that nobody has registered: %+v", got)
	}
	w = newStuckTask()
	w.around.Workers[0].Gate = "no work"
	if got = w.ask(); got.Release != "2" || got.WorkerRelease != "1" || got.Detail != "no work" {
		t.Errorf("a release: %+v", got)
	}
}

// The run shows the first of its waiting activities that needs attention, and the number of the others.
func TestRunShowsWaitsThatNeedAttention(t *testing.T) {
	w := newStuckTask()
	fine := w.around.ActivityWait(w.act)
	w.act.Type = "print"
	bad := w.around.ActivityWait(w.act)
	if got := w.run.Wait(&w.around, []*protocol.Wait{
		fine, bad,
	}); got.Message != `no worker on queue "q" has registered activity "print"` || bad.More != 0 {
		t.Errorf("the run has the wait %q", got.Message)
	}
	if got := w.run.Wait(&w.around, []*protocol.Wait{fine, fine}); got.Reason != protocol.WaitWorkerBusy || got.More != 1 {
		t.Errorf("the run has the wait %q", got.Message)
	}
}

// A session can explain why its queued tasks wait without reading the tasks, which would be too expensive for a list.
func TestSessionShowsWhyItsTasksWait(t *testing.T) {
	for _, c := range []struct {
		reason protocol.WaitReason
		make   func(*stuckTask, *Session)
	}{
		{"", func(_ *stuckTask, s *Session) { s.Ready = 0 }},
		{"", func(_ *stuckTask, s *Session) { s.Terminal = true }},
		{protocol.WaitSessionBusy, func(*stuckTask, *Session) {}},
		{protocol.WaitSessionHeld, func(w *stuckTask, _ *Session) { w.around.Workers[0].Alive = false }},
		{protocol.WaitSessionMoving, func(_ *stuckTask, s *Session) { s.Moving, s.Ready = "ada", 0 }},
		{protocol.WaitSessionKept, func(w *stuckTask, s *Session) {
			w.free()
			s.For, s.ForUntil, s.Ready = "x", history.At(noon.Add(time.Second)), 0
		}},
		{protocol.WaitCapabilityMissing, func(w *stuckTask, s *Session) { w.free(); s.Requirements = []string{"gpu"} }},
		{protocol.WaitWorkerSessionsFull, func(w *stuckTask, _ *Session) { w.free(); w.around.Workers[0].Sessions = 3 }},
		{protocol.WaitNoWorker, func(w *stuckTask, _ *Session) { w.free(); w.around.Workers = nil }},
	} {
		w := newStuckTask()
		w.inSession().Ready = 1
		c.make(w, &w.session)
		got := w.around.SessionWait(&w.session)
		if got == nil && c.reason != "" || got != nil && got.Reason != c.reason {
			t.Errorf("waits for %+v, want %q", got, c.reason)
		}
		if got != nil && (strings.Contains(got.Message, "activity :") || !strings.Contains(got.Message, " ")) {
			t.Errorf("it says %q", got.Message)
		}
	}
}

// A page of tasks with the same unknown type compares its name with the registered types once.
func TestASuggestionIsComputedOncePerType(t *testing.T) {
	allocations := map[int]float64{}
	for _, n := range []int{10, 1_000} {
		types := make([]string, n)
		for i := range types {
			types[i] = fmt.Sprintf("type-%04d", i)
		}
		around := &WaitContext{
			Workers:  []WorkerCandidate{{Alive: true, Worker: &Worker{ID: "w", Queues: []string{"q"}, ActivityTypes: types}}},
			Settings: func(string) *Queue { return nil },
			Throttle: func(string, protocol.TaskKind) Throttle { return Throttle{} },
		}
		want := TaskRequirements{Kind: protocol.KindActivity, Type: "type_0001"}
		if w := around.unleased("q", want); w.Suggestion != "type-0001" {
			t.Fatalf("got %+v", w)
		}
		allocations[n] = testing.AllocsPerRun(10, func() { around.unleased("q", want) })
	}
	if allocations[10] != allocations[1_000] {
		t.Errorf("allocations of a further task by registered types: %v", allocations)
	}
}
