package invariants

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// row is one line of the truth table.
type row struct{ session, needs, task, holder, other, asked, why string }

func (r row) String() string { return r.session + "/" + r.needs + "/" + r.task + "/" + r.holder }

func truth(t *testing.T) []row {
	raw, err := os.ReadFile("testdata/truth.txt")
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if len(f) < 6 {
			t.Fatalf("line %q", line)
		}
		rows = append(rows, row{f[0], f[1], f[2], f[3], f[4], f[5], strings.Join(f[6:], " ")})
	}
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r.String()] || (r.why == "") != (r.other == "gets") {
			t.Fatalf("row %s: twice, or a reason that does not fit", r)
		}
		seen[r.String()] = true
	}
	if want := 3 * 3 * 2 * 5; len(rows) != want {
		t.Fatalf("%d rows, want %d", len(rows), want)
	}
	return rows
}

func TestEligibleWorkersAndWaitReasons(t *testing.T) {
	w := onSQLite(t)
	for i, r := range truth(t) {
		t.Run(r.String(), func(t *testing.T) {
			(&truthCase{harness: w, t: t, row: r, ns: w.namespace(fmt.Sprintf("row%d", i))}).play()
		})
	}
}

// truthCase is the run of one row of the table.
type truthCase struct {
	*harness
	row
	t     *testing.T
	ns    string
	gated bool // the owner's polls now contain another release
}

func (s *truthCase) play() {
	t, b, ctx := s.t, s.apps[0].Broker(), s.t.Context()
	lease := time.Hour
	if s.holder == "dead" {
		lease = time.Second
	}
	var offers []string
	if s.needs == "met" {
		offers = []string{"gpu"}
	}
	must[protocol.RegisterResponse](t)(b.Register(ctx, worker(s.ns, "holder", "h1", 10, lease, offers...)))
	must[protocol.RegisterResponse](t)(b.Register(ctx, worker(s.ns, "other", "o1", 10, time.Hour, offers...)))
	run := s.stage()
	if s.task == "later" {
		first := s.poll("holder", 30)
		if first == nil {
			t.Fatal("the holder does not get the first task")
		}
		if s.holder != "full" {
			if a := finish(ctx, b, s.ns, first, nil); a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
	s.becomes(b)
	if s.task == "later" {
		s.signal(b, run)
	}
	wait := int64(0)
	if s.other == "gets" {
		wait = 30
	}
	got := s.poll("other", wait)
	s.want("the other worker", s.other, got != nil)
	if s.other == "waits" {
		if why := s.why(run); !strings.Contains(why, s.row.why) {
			t.Errorf("it waits %q, want %q", why, s.row.why)
		}
	}
	if s.asked == "-" {
		return
	}
	wait = 0
	if s.asked == "gets" {
		wait = 30
	}
	s.want("the holder", s.asked, s.poll("holder", wait) != nil)
}

func (s *truthCase) want(name, what string, got bool) {
	s.t.Helper()
	if (what == "gets") != got {
		s.t.Errorf("%s gets the task: %t, want that it %s", name, got, what)
	}
}

// stage starts the run. For a row about the first task of a session it schedules that task, otherwise a task without
// requirements that the owner runs.
func (s *truthCase) stage() string {
	if s.task == "first" && s.session == "explicit" { // in this case the session itself requires it
		start := protocol.Command{
			Type: protocol.StartSession, WorkerSession: &protocol.SessionOptions{MaxActivities: 1}, Requirements: s.required(),
		}
		return s.harness.decide(s.ns, "wf", start, inSession(handle))
	}
	if s.task == "first" {
		return s.harness.decide(s.ns, "wf", s.wanted(""))
	}
	wait := protocol.Command{Type: protocol.OpenSignalWait, SignalName: "go"}
	if s.session == "explicit" {
		start := protocol.Command{Type: protocol.StartSession, WorkerSession: &protocol.SessionOptions{MaxActivities: 1}}
		return s.harness.decide(s.ns, "wf", start, inSession(handle), wait)
	}
	first := activity()
	if s.session == "implicit" {
		first = inSession("s")
	}
	return s.harness.decide(s.ns, "wf", first, wait)
}

func (s *truthCase) required() []string {
	if s.needs == "none" {
		return nil
	}
	return []string{"gpu"}
}

func (s *truthCase) wanted(started string) protocol.Command {
	c := activity()
	switch s.session {
	case "implicit":
		c.SessionID = "s"
	case "explicit":
		c.SessionID = started
	}
	c.Requirements = s.required()
	return c
}

// becomes brings the owner into the given state.
func (s *truthCase) becomes(b *broker.Broker) {
	ctx := s.t.Context()
	switch s.holder {
	case "dead":
		s.shift.Add(int64(2 * time.Second))
		s.apps[0].Dispatch().Due(time.Unix(0, 0))
	case "draining":
		must[protocol.WorkerHeartbeatResponse](s.t)(b.WorkerHeartbeat(ctx, protocol.WorkerHeartbeat{
			Namespace: s.ns, WorkerID: "holder", Incarnation: "h1", Draining: true,
		}))
		held := protocol.SessionList{Namespace: s.ns, Owner: "holder"}
		list := must[protocol.SessionPage](s.t)(b.View().Sessions(ctx, held))
		for _, v := range list.Sessions {
			must[protocol.SessionResponse](s.t)(b.ReleaseSession(ctx, protocol.SessionVerb{
				Namespace: s.ns, WorkerID: "holder", SessionID: v.SessionID, Epoch: v.Epoch, Reason: "shutdown",
			}))
		}
	case "other":
		s.gated = true
		s.release("holder")
	}
}

func (s *truthCase) release(id string) {
	none := int64(0)
	p := must[protocol.PollResponse](s.t)(s.apps[0].Broker().Poll(s.t.Context(), protocol.PollRequest{
		Namespace: s.ns, WorkerID: id, Incarnation: id[:1] + "1", Kinds: []protocol.TaskKind{protocol.KindActivity},
		Timeout: &none, Gated: true, Release: "older",
	}))
	if p.Status != protocol.PollMismatch {
		s.t.Fatalf("a worker of another release polls: %+v", p)
	}
}

// signal causes the run to schedule the later task.
func (s *truthCase) signal(b *broker.Broker, run string) {
	must[protocol.CommandReceipt](s.t)(b.Signal(s.t.Context(), protocol.SignalRequest{
		Target: protocol.Target{Namespace: s.ns, WorkflowID: "wf"}, SignalName: "go",
	}))
	s.step(s.ns, "wf", s.wanted(engine.StepID(run, 1)))
}

func (s *truthCase) poll(id string, seconds int64) *protocol.ActivityTask {
	s.t.Helper()
	if id == "holder" && s.gated {
		s.release(id)
		return nil
	}
	return must[*protocol.ActivityTask](s.t)(poll(s.t.Context(), s.apps[0].Broker(), s.ns, id, id[:1]+"1", seconds))
}

// why returns the wait reason of the waiting task.
func (s *truthCase) why(run string) string {
	v := must[protocol.RunView](s.t)(s.apps[0].View().Describe(
		s.t.Context(), protocol.Target{Namespace: s.ns, RunID: run, WorkflowID: "wf"},
	))
	for _, a := range v.Pending.Activities {
		if a.Worker == "" {
			return a.Why
		}
	}
	return "no task waits"
}
