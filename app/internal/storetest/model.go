package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// model is the expected content of a store in plain maps. Which worker may lease which task is computed by a scan of
// all of them.
type model struct {
	w        *Fixture
	t        *rapid.T
	workers  []*engine.Worker
	runs     []string // open
	leased   []store.Leased
	late     []store.Leased // leases whose delivery has ended
	tasks    map[string]*modelTask
	turn     int // number of the check, which makes names unique
	sessions map[string]modelSession
	signals  map[string]int
	started  int
}

type modelTask struct {
	run      string
	seq      int64
	session  string
	ready    bool
	delivery int64
	until    time.Time
}

type modelSession struct {
	owner string
	epoch int64
	until time.Time
}

// Model runs random operations against a store and the model, and compares their results. Leases, and the time that
// passes in the test, are whole hours, so that the machine's speed has no influence.
func Model(t *testing.T, s Suite) {
	w := s.New(t)
	turn := 0
	rapid.Check(t, func(rt *rapid.T) {
		turn++
		w.Queue = fmt.Sprint("turn", turn)
		m := &model{
			w: w, t: rt, turn: turn, tasks: map[string]*modelTask{}, sessions: map[string]modelSession{},
			signals: map[string]int{},
		}
		for i, most := range []int{0, 1, 3} {
			m.workers = append(
				m.workers, w.Worker(fmt.Sprintf("w%d-%d", i, turn), Sessions(most, 20*time.Hour), attemptLease(30*time.Hour)),
			)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"start": m.start, "claim": m.claim, "complete": m.complete, "complete late": m.completeLate, "signal": m.signal,
			"time passes": m.pass, "end": m.endRun, "": m.check,
		})
		for _, run := range m.runs {
			w.Do(run, engine.EndRun{})
		}
	})
}

func (m *model) now() time.Time {
	now, err := m.w.S.Now(m.w.T.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return now
}

func (m *model) start(t *rapid.T) {
	if len(m.runs) > 5 {
		t.Skip()
	}
	m.started++
	sessions := rapid.SliceOfN(rapid.SampledFrom([]string{"", "", "s1", "s2", "s3"}), 1, 4).Draw(t, "sessions")
	for i, s := range sessions {
		if s != "" {
			sessions[i] = fmt.Sprint(s, "-", m.turn)
		}
	}
	var commands []protocol.Command
	for _, s := range sessions {
		commands = append(commands, Activity("x", s))
	}
	run := m.w.Begun(fmt.Sprintf("flow%d-%d", m.started, m.turn), commands...)
	m.runs = append(m.runs, run)
	for i, s := range sessions {
		m.tasks[engine.StepID(run, int64(i+1))] = &modelTask{run: run, seq: int64(i + 1), session: s, ready: true}
	}
}

// mayLease reports whether a worker may have a task now.
func (m *model) mayLease(w *engine.Worker, x *modelTask, now time.Time) bool {
	if !x.ready {
		return false
	}
	if x.session == "" {
		return true
	}
	if w.MaxSessions == 0 {
		return false
	}
	if h, ok := m.sessions[x.session]; ok && h.until.After(now) {
		return h.owner == w.ID
	}
	held := 0
	for _, h := range m.sessions {
		if h.owner == w.ID && h.until.After(now) {
			held++
		}
	}
	return held < w.MaxSessions
}

func (m *model) claim(t *rapid.T) {
	w := rapid.SampledFrom(m.workers).Draw(t, "worker")
	list := m.w.LeaseTasks(protocol.KindActivity, w, 1)
	now := m.now()
	could := 0
	for _, x := range m.tasks {
		if m.mayLease(w, x, now) {
			could++
		}
	}
	if (len(list) > 0) != (could > 0) {
		t.Fatalf("worker %s got %d tasks of %d it may have", w.ID, len(list), could)
	}
	for _, l := range list {
		x := m.tasks[engine.StepID(l.Head.ID, l.Activity.Seq)]
		at := l.Activity.LeasedAt.Time
		if x == nil || !m.mayLease(w, x, at) {
			t.Fatalf("worker %s got %s, which is not for it", w.ID, Name(l))
		}
		if l.Activity.Delivery != x.delivery+1 {
			t.Fatalf("delivery %d after %d", l.Activity.Delivery, x.delivery)
		}
		x.ready, x.delivery, x.until = false, l.Activity.Delivery, l.Activity.Until.Time
		if x.session != "" {
			h, held := m.sessions[x.session]
			fresh := !held || !h.until.After(at)
			if l.IsNew != fresh || fresh && l.Session.Epoch <= h.epoch || !fresh && l.Session.Epoch != h.epoch {
				t.Fatalf("session %s: new %v at epoch %d, after %+v", x.session, l.IsNew, l.Session.Epoch, h)
			}
			m.sessions[x.session] = modelSession{w.ID, l.Session.Epoch, l.Session.LeaseUntil.Time}
		}
		m.leased = append(m.leased, l)
	}
}

func (m *model) complete(t *rapid.T) {
	if len(m.leased) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(m.leased)-1).Draw(t, "task")
	l := m.leased[i]
	m.leased = slices.Delete(m.leased, i, i+1)
	m.w.Finish(l)
	x := m.tasks[engine.StepID(l.Head.ID, l.Activity.Seq)]
	delete(m.tasks, engine.StepID(l.Head.ID, l.Activity.Seq))
	if h := m.sessions[x.session]; x.session != "" && h.owner == l.Activity.Owner && h.epoch == l.Activity.Epoch {
		m.refresh(x.session)
	}
	m.late = append(m.late, l)
}

// refresh reads the lease of a session from the store: other tests check that work extends it.
func (m *model) refresh(session string) {
	row := m.w.sessionRow(session)
	h := m.sessions[session]
	if row.Epoch != h.epoch || row.Owner != h.owner {
		m.t.Fatalf("session %s is %s at %d, want %s at %d", session, row.Owner, row.Epoch, h.owner, h.epoch)
	}
	h.until = row.LeaseUntil.Time
	m.sessions[session] = h
}

func (m *model) completeLate(t *rapid.T) {
	if len(m.late) == 0 {
		t.Skip()
	}
	l := rapid.SampledFrom(m.late).Draw(t, "task")
	_, err := m.w.S.Commit(m.w.T.Context(), Finishing(l))
	var refused *protocol.Error
	if !errors.As(err, &refused) {
		t.Fatalf("late completion of %s: %v, want a refusal", Name(l), err)
	}
}

func (m *model) signal(t *rapid.T) {
	if len(m.runs) == 0 {
		t.Skip()
	}
	run := rapid.SampledFrom(m.runs).Draw(t, "run")
	m.w.Do(run, engine.SignalRun{Name: "s"})
	m.signals[run]++
}

func (m *model) pass(t *rapid.T) {
	m.w.Pass(time.Duration(rapid.IntRange(1, 25).Draw(t, "hours")) * time.Hour)
	m.w.Sweep()
	now := m.now()
	m.leased = slices.DeleteFunc(m.leased, func(l store.Leased) bool {
		id := engine.StepID(l.Head.ID, l.Activity.Seq)
		x := m.tasks[id]
		if x.until.After(now) {
			return false
		}
		m.late = append(m.late, l)
		x.ready = true
		return true
	})
}

func (m *model) endRun(t *rapid.T) {
	if len(m.runs) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(m.runs)-1).Draw(t, "run")
	run := m.runs[i]
	m.runs = slices.Delete(m.runs, i, i+1)
	m.w.Do(run, engine.EndRun{Terminate: true})
	for id, x := range m.tasks {
		if x.run == run {
			delete(m.tasks, id)
		}
	}
	m.leased = slices.DeleteFunc(m.leased, func(l store.Leased) bool {
		if l.Head.ID == run {
			m.late = append(m.late, l)
		}
		return l.Head.ID == run
	})
}

// check compares everything that can be read.
func (m *model) check(t *rapid.T) {
	open := map[string]int{}
	for _, x := range m.tasks {
		open[x.run]++
	}
	for _, run := range m.runs {
		r := m.w.Run(run)
		if r.Activities.Len() != open[run] {
			t.Fatalf("run %s has %d open activities, want %d", run, r.Activities.Len(), open[run])
		}
		if got := r.Signals.Len(); got != m.signals[run] {
			t.Fatalf("run %s has %d unseen signals, want %d", run, got, m.signals[run])
		}
		for i, e := range m.w.History(run) {
			if e.Seq != int64(i+1) {
				t.Fatalf("event %d of run %s is numbered %d", i+1, run, e.Seq)
			}
		}
		for k, a := range r.Activities.All() {
			x := m.tasks[engine.StepID(run, k)]
			if x == nil || (a.State == engine.Ready) != x.ready || a.Delivery != x.delivery {
				t.Fatalf("activity %s is %s at delivery %d, want %+v", engine.StepID(run, k), a.State, a.Delivery, x)
			}
		}
	}
}
