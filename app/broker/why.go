package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// surroundings is what the tasks of a namespace wait among. A session's tasks wait for a worker with room for it, so
// what workers hold is counted when sessions says so.
func (b *Broker) surroundings(
	ctx context.Context, r store.Reader, ns string, sessions bool, now time.Time,
) (*engine.Surroundings, error) {
	known, err := b.fleet(ctx, r, ns)
	if err != nil {
		return nil, err
	}
	return b.among(ctx, r, known, ns, sessions, now)
}

// among is the same of workers that are known already.
func (b *Broker) among(
	ctx context.Context, r store.Reader, known fleet, ns string, sessions bool, now time.Time,
) (a *engine.Surroundings, err error) {
	var held map[string]store.Holding
	if sessions {
		if held, err = r.Holdings(ctx, ns); err != nil {
			return nil, err
		}
	}
	budgets := &throttles{b: b, ns: ns, now: now}
	a = &engine.Surroundings{
		Now: now, Release: b.opt.Release, Sessions: map[string]*engine.Session{},
		Settings: func(queue string) *engine.Queue { return b.store.Queue(engine.QueueKey{Namespace: ns, Name: queue}) },
		Throttle: func(queue string, kind protocol.TaskKind) engine.Throttle { return budgets.of(ctx, r, queue, kind) },
	}
	for _, k := range slices.SortedFunc(maps.Keys(known), func(x, y engine.WorkerKey) int {
		return cmp.Compare(x.ID, y.ID)
	}) {
		h := known[k]
		a.Workers = append(a.Workers, engine.Candidate{
			Worker: h.worker, Alive: b.alive(h, now), Draining: b.stopped(&h), Gate: h.gate, Sessions: held[k.ID].Sessions,
			Full: h.full(),
		})
	}
	return a, nil
}

// full are the kinds of tasks that the worker runs its most of, as its last heartbeat said.
func (h *heard) full() map[protocol.TaskKind]bool {
	free := struct {
		Workflow *int `json:"workflow_available"`
		Activity *int `json:"activity_available"`
	}{}
	slots := h.slots
	if len(slots) == 0 {
		slots = h.worker.Slots
	}
	if len(slots) == 0 || json.Unmarshal(slots, &free) != nil { // what a foreign worker sends is its own affair
		return nil
	}
	return map[protocol.TaskKind]bool{
		protocol.KindWorkflow: h.worker.WorkflowSlots > 0 && free.Workflow != nil && *free.Workflow <= 0,
		protocol.KindActivity: h.worker.ActivitySlots > 0 && free.Activity != nil && *free.Activity <= 0,
	}
}

// inSessions says whether a ready activity of the run is in a session.
func inSessions(run *engine.Run) bool {
	for _, a := range run.Activities.All() {
		if a.State == engine.Ready && a.SessionID != "" {
			return true
		}
	}
	return false
}

// pending shows what is open in a run, of each task why it is where it is, and what the run as a whole waits for.
func (b *Broker) pending(
	ctx context.Context, r store.Reader, run *engine.Run, now time.Time,
) (*protocol.Pending, *protocol.Wait, error) {
	around, err := b.surroundings(ctx, r, run.Namespace, inSessions(run), now)
	if err != nil {
		return nil, nil, err
	}
	return pendingOf(ctx, r, around, run)
}

// tellWait puts what a run waits for into its view: for programs, and in words where the contract has them.
func tellWait(v *protocol.RunView, w *protocol.Wait) {
	kind := string(w.Kind)
	v.Wait, v.WaitKind, v.WaitReason = w, &kind, &w.Message
}

// waiting says of each open run in a list what it waits for.
func (b *Broker) waiting(ctx context.Context, r store.Reader, ns string, list []protocol.RunView, now time.Time) error {
	around, err := b.surroundings(ctx, r, ns, true, now)
	if err != nil {
		return err
	}
	for i := range list {
		v := &list[i]
		if v.Terminal {
			continue
		}
		run, err := r.Run(ctx, v.RunID)
		if errors.Is(err, store.ErrNotFound) || err == nil && !run.Status.Open() { // it has ended since
			continue
		}
		if err != nil {
			return err
		}
		_, wait, err := pendingOf(ctx, r, around, run)
		if err != nil {
			return err
		}
		tellWait(v, wait)
	}
	return nil
}

// sessionOf reads the session of an activity, for what is said of it.
func sessionOf(ctx context.Context, r store.Reader, around *engine.Surroundings, a engine.Activity) error {
	if a.State != engine.Ready || a.SessionID == "" || around.Sessions[a.SessionID] != nil {
		return nil
	}
	s, err := r.Session(ctx, engine.SessionKey{Namespace: a.Namespace, ID: a.SessionID})
	if err == nil {
		around.Sessions[a.SessionID] = &s
	} else if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// pendingOf reads what is said of a run's tasks beside its own rows; the engine says it.
func pendingOf(
	ctx context.Context, r store.Reader, around *engine.Surroundings, run *engine.Run,
) (*protocol.Pending, *protocol.Wait, error) {
	p := &protocol.Pending{
		Activities: []protocol.PendingActivity{}, Timers: []protocol.PendingTimer{}, Waits: []protocol.PendingWait{},
		Updates:  []protocol.PendingUpdate{},
		Children: []protocol.PendingChild{},
		Sessions: []string{},
	}
	if t := run.Task; t != nil {
		p.Task = &protocol.PendingTask{
			TaskID: engine.TaskID(run.ID, t.Number), State: string(t.State), Attempt: t.Delivery, Worker: t.Owner,
			LeaseUntil: t.Until, Why: t.Problem,
			Stack: t.Stack, Wait: run.TaskWait(around),
		}
		if t.State == engine.Ready || t.State == engine.Delayed {
			p.Task.Why = p.Task.Wait.Why(time.UTC)
		}
	}
	waits := []*protocol.Wait{}
	for seq, a := range run.Activities.All() {
		if err := sessionOf(ctx, r, around, a); err != nil {
			return nil, nil, err
		}
		v := protocol.PendingActivity{
			Sequence: seq, ExecutionID: engine.StepID(run.ID, seq), ActivityType: a.Type, TaskQueue: a.Queue,
			State:   string(a.State),
			Attempt: a.Attempt, Worker: a.Owner, SessionID: a.SessionID, Epoch: a.Epoch, ScheduledAt: a.ScheduledAt,
			StartedAt:  a.LeasedAt,
			LeaseUntil: a.Until, Heartbeat: a.HeartbeatAt, Progress: a.Progress, Rebuild: a.Rebuild, LastFailure: a.LastFailure,
			Wait: around.ActivityWait(a),
		}
		if a.State == engine.Delayed {
			v.NextAt = a.ReadyAt
		}
		if a.State != engine.LeasedState {
			v.Why = v.Wait.Why(time.UTC)
		}
		if a.SessionID != "" && !slices.Contains(p.Sessions, a.SessionID) {
			p.Sessions = append(p.Sessions, a.SessionID)
		}
		p.Activities, waits = append(p.Activities, v), append(waits, v.Wait)
	}
	for seq, t := range run.Timers.All() {
		p.Timers = append(
			p.Timers, protocol.PendingTimer{Sequence: seq, TimerID: engine.StepID(run.ID, seq), FireAt: t.FireAt},
		)
	}
	for seq, w := range run.Waits.All() {
		p.Waits = append(
			p.Waits,
			protocol.PendingWait{Sequence: seq, Kind: cmp.Or(w.Kind, "signal"), SignalName: w.Name, ConditionKey: w.Key},
		)
	}
	var err error
	if around.Former, err = openChildren(ctx, r, run, p); err != nil {
		return nil, nil, err
	}
	for _, u := range run.Updates.All() {
		p.Updates = append(p.Updates, protocol.PendingUpdate{UpdateID: u.ID, UpdateName: u.Name, Applied: u.Taken})
	}
	return p, run.Wait(around, waits), nil
}

// openChildren lists the open children of a run and of the runs of its workflow id before it.
func openChildren(
	ctx context.Context, r store.Reader, run *engine.Run, p *protocol.Pending,
) ([]engine.FormerChild, error) {
	attached := map[string][]int64{}
	for seq, a := range run.Attached.All() {
		attached[a.WorkflowID] = append(attached[a.WorkflowID], seq)
	}
	add := func(of string, seq int64, c *engine.Child) *protocol.PendingChild {
		p.Children = append(p.Children, protocol.PendingChild{
			Sequence: seq, CallID: engine.StepID(of, seq), WorkflowID: c.WorkflowID, RunID: c.RunID, Type: c.Type,
			ClosePolicy: c.ClosePolicy,
			Attempt:     c.Failures + 1, Attached: attached[c.WorkflowID],
		})
		return &p.Children[len(p.Children)-1]
	}
	for seq, c := range run.Children.All() {
		add(run.ID, seq, &c)
	}
	if run.Former.Open == 0 {
		return nil, nil
	}
	former, err := r.FormerChildren(
		ctx, engine.WorkflowKey{Namespace: run.Namespace, ID: run.WorkflowID}, engine.MaxPending,
	)
	for _, f := range former {
		add(f.From, f.Seq, &f.Child).FormerRun = f.From
	}
	return former, err
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }
