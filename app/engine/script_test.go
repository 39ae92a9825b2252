package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The scripts in testdata apply commands to one run and its sessions. Every command prints its events or its refusal;
// "show" prints the open rows. IDs are printed without the run ID.
func TestScripts(t *testing.T) { playScripts(t) }

// The same scripts have the same results if runs inherit signals by an inbox instead of copies.
func TestScriptsWithoutCopiesOfInheritedSignals(t *testing.T) {
	if testing.Short() || slices.Contains(os.Args, "-rewrite") {
		t.Skip("-short runs the scripts once; -rewrite writes the output of runs that inherit copies")
	}
	inheritWithoutCopies(t, 0, maxInboxRanges)
	playScripts(t)
}

// inheritWithoutCopies sets the maximum numbers of copies and ranges for a test.
func inheritWithoutCopies(t *testing.T, copies int, ranges int) {
	was, wasRanges := maxCopied, maxInboxRanges
	maxCopied, maxInboxRanges = copies, ranges
	t.Cleanup(func() { maxCopied, maxInboxRanges = was, wasRanges })
}

func playScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := newStage()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.play(t, d)
			s.check(t)
			return out
		})
	})
}

const testRun = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

// stage is the state of a script: the runs of one workflow, its sessions, the workers and the clock.
type stage struct {
	run       *Run
	runs      int
	resets    int
	sessions  map[string]*Session
	workers   map[string]*Worker
	inherited map[string]*InheritedChild // by workflow ID
	others    map[string]*Run            // the current runs of other workflow IDs
	ends      map[string]Message         // ends of closed runs
	now       time.Time
	history   []history.Event
	inboxes   map[string]map[int64]InboxEntry
}

func newStage() *stage {
	return &stage{
		sessions: map[string]*Session{}, workers: map[string]*Worker{},
		inherited: map[string]*InheritedChild{}, others: map[string]*Run{}, ends: map[string]Message{},
		inboxes: map[string]map[int64]InboxEntry{},
		now:     time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
}

func (s *stage) worker(id string) *Worker {
	if s.workers[id] == nil {
		s.workers[id] = &Worker{
			Namespace: "default", ID: id, Incarnation: id + "-1", Queues: []string{"default"}, AnyActivity: true,
			WorkflowTypes: []string{"sample"}, BuildID: "b1", Capabilities: []string{
				"session:llama", "session_prepare:llama", "session:tally", "session_prepare:tally", "session_snapshot:tally",
			},
			MaxSessions:  10,
			AttemptLease: 120e6, SessionLease: 30e6, SessionIdle: 300e6,
		}
	}
	return s.workers[id]
}

// lose ends deliveries of a process that held the given numbers of tasks and suspects. It adds suspects among the
// deliveries to suspects.
func (s *stage) lose(why string, tasks, suspects int, lost ...LostTask) string {
	in := Lose{Why: why, Process: fmt.Sprintf("p%d", s.now.Unix()), Leased: tasks}
	for _, l := range lost {
		if s.run.SuspicionOf(l.Seq) != nil {
			suspects++
		}
	}
	for _, l := range lost {
		l.Part = JudgeLoss(tasks, suspects, s.run.SuspicionOf(l.Seq) != nil)
		in.Tasks = append(in.Tasks, l)
	}
	return s.apply(in)
}

// processEnded ends the run's leases at a worker, or only its expired leases.
func (s *stage) processEnded(worker, why string, expired bool) string {
	in := Lose{Why: why, Process: worker + "/", Expired: expired}
	if t := s.run.Task; t != nil && t.State == LeasedState && t.Owner == worker {
		in.Tasks = append(in.Tasks, LostTask{Number: t.Number, Delivery: t.Delivery})
	}
	for seq, a := range s.run.Activities.All() {
		if a.State == LeasedState && a.Owner == worker {
			in.Tasks = append(in.Tasks, LostTask{Seq: seq, Delivery: a.Delivery})
		}
	}
	in.Leased = len(in.Tasks)
	suspects := 0
	for _, l := range in.Tasks {
		if s.run.SuspicionOf(l.Seq) != nil {
			suspects++
		}
	}
	for i := range in.Tasks {
		l := &in.Tasks[i]
		l.Part = JudgeLoss(in.Leased, suspects, s.run.SuspicionOf(l.Seq) != nil)
	}
	return s.apply(in)
}

// suspects returns the suspicions of the run's tasks.
func (s *stage) suspects() string {
	var out strings.Builder
	line := func(name string, x *Suspicion) {
		if x == nil {
			return
		}
		fmt.Fprintf(&out, "%s: %s, %d blamed, ran %s", name, countNoun(x.Losses, "loss"), x.Blamed,
			time.Duration(x.Ran)*time.Microsecond)
		for _, flag := range []struct {
			on   bool
			name string
		}{{x.Limited(), "limited"}, {x.Freed, "freed"}, {x.Alone, "isolated"}} {
			if flag.on {
				out.WriteString(", " + flag.name)
			}
		}
		out.WriteByte('\n')
	}
	line("task", s.run.SuspicionOf(0))
	for seq, a := range s.run.Activities.All() {
		line(fmt.Sprintf("activity %d %s", seq, a.Type), a.Suspect)
	}
	return out.String()
}

func (s *stage) play(t *testing.T, d *datadriven.TestData) string {
	arg := func(name, other string) string {
		if d.HasArg(name) {
			d.ScanArgs(t, name, &other)
		}
		return other
	}
	num := func(name string, other int64) int64 {
		n, err := strconv.ParseInt(arg(name, fmt.Sprint(other)), 10, 64)
		if err != nil {
			d.Fatalf(t, "%s: %v", name, err)
		}
		return n
	}
	by := arg("by", "a")
	executor := func() *protocol.ExecutorLoss {
		if !d.HasArg("executor") {
			return nil
		}
		return &protocol.ExecutorLoss{
			Executor: arg("executor", ""), Calls: int(num("calls", 1)), Verdict: arg("verdict", ""), StateLost: arg("state", ""),
		}
	}
	stack := func() string { return strings.Repeat("main.go:7 ", int(num("stack", 0))) }
	switch d.Cmd {
	case "start":
		dec := DecideStart(Start{RunID: testRun, Number: 1, Request: protocol.StartRequest{
			Namespace: "default", WorkflowID: "wf", WorkflowType: arg("type", "sample"), TaskQueue: "default",
			RunTimeout: num("run-timeout", 0), ExecutionTimeout: num("execution-timeout", 0), StartDelay: num("delay", 0),
			Priority: new(int(num("priority", DefaultPriority))), FairnessKey: arg("fairness-key", ""),
			FairnessWeight: int(num("fairness-weight", 0)),
		}, BuildID: arg("build", "")}, s.now)
		return s.take(dec)
	case "start-activity": // an activity run; the command schedules its activity
		return s.take(DecideActivityRun(Start{RunID: testRun, Number: 1, Request: protocol.StartRequest{
			Namespace: "default", WorkflowID: "wf", TaskQueue: "default", Priority: new(int(num("priority", DefaultPriority))),
		}}, commands(t, d)[0], s.environment(), s.now))
	case "facts":
		return s.run.facts()
	case "lease":
		s.run = merged(s.run, s.run.Leased(Lessee{Worker: s.worker(by)}, s.now))
		return fmt.Sprintf("task %d delivery %d, shown %d\n", s.run.Task.Number, s.run.Task.Delivery, s.run.Task.Shown)
	case "do":
		in := CompleteTask{
			Number: num("n", s.run.Tasks), Holder: s.holder(by, num("delivery", s.taskDelivery())), Commands: commands(t, d),
			Hash: hash(d), Ends: s.ends,
		}
		in.Code = Code{
			Runtime: arg("runtime", ""),
			Signals: map[string][]string{s.run.Type: strings.Fields(strings.ReplaceAll(arg("declares", ""), "+", " "))},
		}
		list := func(n int64) json.RawMessage {
			return json.RawMessage("[" + strings.TrimSuffix(strings.Repeat("{},", int(n)), ",") + "]")
		}
		in.Streams.Waits, in.Streams.Cursors = list(num("waits", 0)), list(num("cursors", 0))
		for _, c := range in.Commands {
			_, own := s.run.Inbox.InheritedOf(c.Unreceived)
			for _, k := range own {
				if k > int64(len(s.history)) {
					continue
				}
				if e, ok := s.history[k-1].Data.(*history.SignalReceived); ok {
					in.Carry = append(in.Carry, Signal{Name: e.SignalName, ID: e.SignalID, Value: e.Value})
				}
			}
		}
		return s.apply(in)
	case "fail-task":
		return s.apply(FailTask{
			Number: num("n", s.run.Tasks), Holder: s.holder(by, num("delivery", s.taskDelivery())), Hash: "f" + d.Input,
			Failure: protocol.Failure{
				Type: arg("type", ""), Message: strings.TrimSpace(d.Input), StackTrace: stack(), Sequence: num("sequence", 0),
			},
		})
	case "release-task":
		if d.HasArg("lost") {
			lost := LostTask{Number: s.run.Tasks, Delivery: num("delivery", s.taskDelivery())}
			return s.lose(arg("why", "x"), int(num("tasks", 1)), int(num("suspects", 0)), lost)
		}
		return s.apply(ReleaseTask{
			Number: s.run.Tasks, Delivery: num("delivery", s.taskDelivery()), Why: arg("why", "x"), Undone: d.HasArg("undone"),
			Counts: d.HasArg("counts"),
		})
	case "take":
		return s.takeActivity(t, d, num("seq", 1), by)
	case "complete":
		seq := num("seq", 1)
		in := CompleteActivity{
			Seq: seq, Holder: s.holder(by, num("delivery", s.delivery(seq))), Epoch: num("epoch", 0), Result: arg("result", ""),
			Hash: "h",
		}
		if d.HasArg("then") { // the following lines are the commands of an eager workflow task
			ago, err := time.ParseDuration(arg("ago", "0s"))
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			in.Eager = &EagerTask{
				SeenThrough: num("seen", s.run.LastSeq), At: history.At(s.now.Add(-ago)), Commands: commands(t, d), Hash: hash(d),
				Lessee: Lessee{Worker: s.worker(by)}, Budget: d.HasArg("budget"),
			}
			if d.HasArg("drained") {
				in.Eager.Queue = &Queue{Builds: map[string]Build{"b1": {DrainedAt: history.At(s.now)}}}
			}
			dec, err := DecideRun(s.run, s.environment(), in, s.now)
			if err == nil && dec.Answer.Fused {
				return "fused\n" + s.apply(in)
			}
		}
		return s.apply(in)
	case "fail":
		seq := num("seq", 1)
		return s.apply(FailActivity{Seq: seq, Holder: s.holder(
			by, num("delivery", s.delivery(seq)),
		), Failure: protocol.Failure{
			Type: arg("type", "Oops"), Message: strings.TrimSpace(d.Input), NonRetryable: d.HasArg("non-retryable"),
			StackTrace: stack(), Kind: arg("kind", ""), TimeoutType: arg("timeout", ""),
			Diagnostics: json.RawMessage(arg("diagnostics", "")),
		}, Executor: executor()})
	case "beat":
		seq := num("seq", 1)
		beat := HeartbeatActivity{Seq: seq, Holder: s.holder(by, num("delivery", s.delivery(seq))), Beat: d.HasArg("user")}
		if d.HasArg("rebuild") {
			beat.Rebuild = &protocol.Recovered{
				Rebuild: "load", Reason: "missing_state", Retries: int(num("retries", 0)), Outcome: arg("rebuild", ""),
			}
		}
		if d.HasArg("progress") {
			beat.Beat, beat.Progress = true, json.RawMessage(arg("progress", ""))
		}
		if d.HasArg("set_up") {
			beat.Rebuild = &protocol.Recovered{SetUp: &protocol.SetUp{
				Definition: "llama", Outcome: arg("set_up", ""), Timeout: num("timeout", 60), Waited: d.HasArg("waited"),
			}}
		}
		return s.apply(beat)
	case "pend": // the worker reports that the attempt is pending
		seq := num("seq", 1)
		return s.apply(PendActivity{
			Seq: seq, Holder: s.holder(by, num("delivery", s.delivery(seq))), Version: arg("version", ""),
		})
	case "resolve": // a caller of the API reports the outcome of an attempt
		seq := num("seq", 1)
		in := ResolveActivity{
			Seq: seq, Delivery: num("delivery", s.delivery(seq)), Result: arg("result", ""), Hash: "h",
		}
		if d.HasArg("fail") {
			in.Failure = &protocol.Failure{
				Type: arg("fail", ""), Message: "no", NonRetryable: d.HasArg("non-retryable"), Cancelled: d.HasArg("cancelled"),
			}
		}
		return s.apply(in)
	case "outside-beat":
		seq := num("seq", 1)
		return s.apply(BeatActivity{
			Seq: seq, Delivery: num("delivery", s.delivery(seq)), Progress: json.RawMessage(arg("progress", "")),
		})
	case "clock-jump": // after the clock has advanced
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.now = s.now.Add(by)
		return s.apply(FollowClock{ClockJump(by)})
	case "return":
		seq := num("seq", 1)
		if d.HasArg("lost") {
			lost := LostTask{Seq: seq, Delivery: num("delivery", s.delivery(seq))}
			return s.lose(arg("why", "x"), int(num("tasks", 1)), int(num("suspects", 0)), lost)
		}
		var began *bool
		if d.HasArg("began") {
			began = new(arg("began", "") == "true")
		}
		var setUp *protocol.Recovered
		if d.HasArg("set_up") {
			setUp = &protocol.Recovered{
				Cause: "no GPU", SetUp: &protocol.SetUp{Definition: "llama", Outcome: arg("set_up", "")},
			}
		}
		return s.apply(ReleaseActivity{
			Recovered: setUp,
			Seq:       seq, Delivery: num("delivery", s.delivery(seq)), Why: arg("why", "x"), Undone: d.HasArg("undone"),
			Counts: d.HasArg("counts"), Owner: arg("owner", ""), Executor: executor(), Began: began,
		})
	case "ended": // the process of a worker ended, with all tasks that it had of this run
		return s.processEnded(by, arg("why", "worker_restarted"), false)
	case "suspects":
		return s.suspects()
	case "clear":
		return s.apply(Clear{Seqs: []int64{num("seq", 1)}, Task: d.HasArg("task"), Losses: []string{arg("loss", "a/")}})
	case "due":
		alive := func(string, Lease) (bool, error) { return d.HasArg("heard"), nil }
		if d.HasArg("seq") {
			in := DueActivity{Seq: num("seq", 1), Liveness: alive}
			var ended *ProcessEnded
			if _, err := DecideRun(s.run, s.environment(), in, s.now); errors.As(err, &ended) {
				return s.processEnded(ended.Worker, LeaseExpired, true)
			}
			return s.apply(in)
		}
		if d.HasArg("timer") {
			return s.apply(FireTimer{Seq: num("timer", 1)})
		}
		in := Due{Liveness: alive}
		var ended *ProcessEnded
		if _, err := DecideRun(s.run, s.environment(), in, s.now); errors.As(err, &ended) {
			return s.processEnded(ended.Worker, LeaseExpired, true)
		}
		return s.apply(in)
	case "end-queued":
		return s.apply(EndQueued{Seq: num("seq", 1)})
	case "signal":
		return s.apply(SignalRun{Name: arg("name", "go"), Value: arg("value", "")})
	case "awakeable":
		in := ResolveAwakeable{
			Seq: num("seq", 1), ID: s.run.AwakeableID(num("seq", 1)), Result: arg("result", ""), Hash: "h", Identity: "ops",
		}
		if d.HasArg("fail") {
			in.Failure = &protocol.Failure{Type: arg("fail", ""), Message: "no"}
		}
		return s.apply(in)
	case "other":
		other := &Run{Head: Head{
			ID: "OTHER", WorkflowID: arg("id", ""), Type: "sub", Number: num("number", 1),
			Status: protocol.RunStatus(arg("status", "running")),
		}}
		if d.HasArg("of") {
			other.Parent = &Parent{RunID: testRun[:25] + "E", WorkflowID: arg("of", ""), Seq: num("seq", 1)}
			if d.HasArg("own") { // a child of the current run
				other.Parent.RunID = testRun
			}
			if d.HasArg("former") { // a child of an earlier run, whose ID differs from that of the current one
				s.inherited[other.WorkflowID].From = other.Parent.RunID
			}
		}
		if d.HasArg("untold") {
			other.Undelivered.Put(1, Message{Kind: ChildEnded})
		}
		s.others[other.WorkflowID] = other
		if !other.Status.Open() && !d.HasArg("unread") {
			s.ends[other.WorkflowID] = Message{
				Kind: ChildEnded, Run: other.ID, Number: 1, Status: other.Status, Value: arg("result", ""),
			}
		}
		return ""
	case "child", "former":
		m := Message{
			Kind: ChildEnded, ToRun: testRun, ToSeq: num("seq", 1), Run: "CHILD",
			Status: protocol.RunStatus(arg("status", "completed")),
			Value:  arg("result", ""),
		}
		c, _ := s.run.Children.Get(m.ToSeq)
		if d.Cmd == "former" && s.inherited[arg("id", "")] != nil {
			f := s.inherited[arg("id", "")]
			c, m.ToRun, m.ToSeq = f.Child, f.From, num("seq", f.Seq)
		}
		m.Number = num("number", c.Number)
		if m.Status != protocol.RunCompleted && m.Status != protocol.RunContinued {
			m.Failure = &history.Failure{
				Category: arg("category", "application"), ExceptionType: arg("type", ""), Message: strings.TrimSpace(d.Input),
			}
		}
		if d.Cmd == "former" {
			return s.apply(InheritedReport{m, arg("id", "")})
		}
		return s.apply(ChildReport{m})
	case "older-build": // removes what an older build did not store
		h := &s.run.Head
		h.FirstSeen, h.Settled, h.Waitless, h.Heeds, h.Heeded = 0, 0, false, false, 0
		return ""
	case "parent":
		s.run.Parent = &Parent{RunID: testRun[:25] + "P", WorkflowID: "parent", Seq: 7}
		return ""
	case "update":
		return s.apply(AcceptUpdate{Name: arg("name", "set"), Value: arg("value", "")})
	case "cancel":
		return s.apply(EndRun{Reason: strings.TrimSpace(d.Input)})
	case "terminate":
		return s.apply(EndRun{Terminate: true, Reason: strings.TrimSpace(d.Input)})
	case "reset":
		return s.reset(d.HasArg("drop"), ResetPoint{Event: num("event", 0), To: protocol.ResetTo(arg("to", ""))})
	case "request-cancellation":
		return s.apply(RequestCancellation{})
	case "repair":
		return s.apply(Repair{})
	case "end-abandoned":
		return s.apply(EndAbandoned{Why: "run removed"})
	case "advance":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.now = s.now.Add(by)
		return ""
	case "session":
		return s.session(t, d, arg("id", ""), by, num("epoch", 0))
	case "show":
		return s.show()
	}
	d.Fatalf(t, "unknown command %s", d.Cmd)
	return ""
}

func (s *stage) holder(by string, delivery int64) Holder {
	return Holder{Owner: by, Delivery: delivery}
}

func (s *stage) taskDelivery() int64 {
	if s.run.Task == nil {
		return 1
	}
	return s.run.Task.Delivery
}

func (s *stage) delivery(seq int64) int64 {
	a, _ := s.run.Activities.Get(seq)
	return a.Delivery
}

func (s *stage) environment() Environment {
	w := Environment{Session: func(id string) *Session { return s.sessions[id] }}
	for _, sess := range s.sessions {
		if sess.WorkflowID == "wf" && !sess.Terminal {
			w.Chain = append(w.Chain, sess)
		}
	}
	w.Inherited = func(id string) *InheritedChild { return s.inherited[id] }
	w.Bound = func() (list []*InheritedChild) {
		for _, id := range sortedKeys(s.inherited) {
			if s.inherited[id].Bound() {
				list = append(list, s.inherited[id])
			}
		}
		return list
	}
	w.Workflow = func(id string) (*Run, bool) { return s.others[id], s.others[id] != nil }
	return w
}

// inheritedEvents stores the signals that a new run inherits by an inbox, and returns their events. The engine must
// then decide as if they were copies.
func (s *stage) inheritedEvents(d *InheritedSignals, at history.Time) (events []history.Event) {
	if s.inboxes[d.Inbox] == nil {
		s.inboxes[d.Inbox] = map[int64]InboxEntry{}
	}
	for _, e := range d.Added {
		s.inboxes[d.Inbox][e.Number] = e
	}
	for _, r := range d.Ranges {
		for n := r[0]; n <= r[1]; n++ {
			data, err := history.DecodeData("SignalReceived", s.inboxes[d.Inbox][n].Body)
			if err != nil {
				panic(err)
			}
			events = append(events, history.Event{Seq: d.First + int64(len(events)), At: at, Data: data})
		}
	}
	return events
}

// inboxSignals returns the signals that the run inherits by an inbox.
func (s *stage) inboxSignals() (all InboxSignals) {
	all.Sizes = map[int64]InboxSize{}
	for n, e := range s.inboxes[s.run.Inbox.ID] {
		all.Sizes[n] = InboxSize{e.Bytes - int64(len(e.Body)), e.Bytes}
	}
	refs := &InheritedSignals{Inbox: s.run.Inbox.ID, Ranges: s.run.Inbox.Ranges}
	for _, e := range s.inheritedEvents(refs, history.Time{}) {
		d := e.Data.(*history.SignalReceived)
		all.Signals = append(all.Signals, Signal{Name: d.SignalName, ID: d.SignalID, Value: d.Value})
	}
	return all
}

func (s *stage) apply(in Input) string {
	if c, ok := in.(CompleteTask); ok && s.run.Inbox != nil {
		c.Inbox.Sizes = s.inboxSignals().Sizes // the broker loads the sizes for unreceived signals
		in = c
		if _, err := DecideRun(s.run, s.environment(), in, s.now); errors.Is(err, ErrInboxUnread) {
			c.Inbox = s.inboxSignals()
			in = c
		}
	}
	before := s.run.Fork()
	before.inbox = s.run.inbox
	d, err := DecideRun(s.run, s.environment(), in, s.now)
	second, errRepeated := DecideRun(s.run, s.environment(), in, s.now)
	if fmt.Sprint(err) != fmt.Sprint(errRepeated) || short(d.Events) != short(second.Events) ||
		short(d.Unrecorded) != short(second.Unrecorded) {
		return "DECIDING TWICE DIFFERS\n"
	}
	if before.show() != s.run.show() {
		return "THE DECISION CHANGED ITS RUN\n"
	}
	if err != nil {
		return "refused: " + strings.ReplaceAll(err.Error(), testRun, "RUN") + "\n"
	}
	out := s.take(d)
	if d.Answer.Refused != nil {
		out += "refused: " + strings.ReplaceAll(d.Answer.Refused.Error(), testRun, "RUN") + "\n"
	}
	return out
}

func (s *stage) take(d Decision) string {
	if s.run == nil || d.After == 0 {
		s.run, s.history = d.Next, nil
	} else {
		s.run = merged(s.run, d.Next)
	}
	if d.Inherits != nil {
		events := s.inheritedEvents(d.Inherits, d.Events[0].At)
		d.Events = slices.Insert(slices.Clone(d.Events), 1, events...)
		s.run.inbox = s.inboxSignals()
	}
	s.history = append(s.history, d.Events...)
	out := short(d.Events)
	for _, w := range d.Answer.Warnings {
		out += fmt.Sprintf("warning %s of %s: %s\n", w.Code, shortID(w.Subject), w.Message)
	}
	for _, c := range d.Sessions {
		sess := c.Session
		s.sessions[sess.ID] = &sess
		out += timeline(c)
	}
	if d.DropInherited {
		clear(s.inherited)
		out += "  the chain ends\n"
	}
	for _, c := range d.Inherited {
		s.inherited[c.Child.Child.WorkflowID] = &c.Child
		if c.Deleted {
			delete(s.inherited, c.Child.Child.WorkflowID)
		}
	}
	for _, c := range d.Spawn {
		out += fmt.Sprintf(
			"starts run %d of child %s, type %s", c.Number, shortID(c.Request.WorkflowID), c.Request.WorkflowType,
		)
		if c.Request.StartDelay > 0 {
			out += fmt.Sprintf(", after %d s", c.Request.StartDelay)
		}
		out += "\n"
	}
	for k, m := range s.run.Undelivered.All() {
		out += fmt.Sprintf(
			"owes %s %s%s: %s %s\n", m.Kind, shortID(m.WorkflowID), strings.TrimPrefix(m.ToRun, testRun[:25]), m.Name, m.Status,
		)
		s.run.Undelivered.Delete(k)
	}
	for _, e := range d.Unrecorded {
		out += "not recorded: " + strings.TrimPrefix(short([]history.Event{e}), strconv.FormatInt(e.Seq, 10)+" ")
	}
	if d.Continue != nil {
		s.runs++
		out += fmt.Sprintf(
			"continues as run %d of %s, carrying %d signals\n", d.Continue.Number, d.Continue.Request.WorkflowType,
			s.carried(d.Continue),
		)
		if n := len(d.Continue.Updates); n > 0 {
			out += fmt.Sprintf("carrying %d updates\n", n)
		}
		next := *d.Continue
		next.RunID = testRun
		if s.run.Activities.Len() > 0 { // a stage has only one run: delete the earlier one
			out += s.apply(EndAbandoned{Why: "run removed"})
		}
		out += s.take(DecideStart(next, s.now))
	}
	return out
}

// carried returns the number of signals that the next run inherits.
func (s *stage) carried(next *Start) int64 {
	if next.Inbox == nil {
		return int64(len(next.Carry))
	}
	return elementCount(next.Inbox.Ranges)
}

func merged(base, fork *Run) *Run {
	base.Merge(fork)
	return base
}

func (s *stage) takeActivity(t *testing.T, d *datadriven.TestData, seq int64, by string) string {
	a, ok := s.run.Activities.Get(seq)
	if !ok || a.State != Ready {
		return "not ready\n"
	}
	l := Lessee{Worker: s.worker(by), Counted: true, Draining: d.HasArg("draining")}
	for _, sess := range s.sessions {
		if sess.HeldBy(by, s.now) {
			l.Sessions++
		}
	}
	if d.HasArg("incarnation") {
		d.ScanArgs(t, "incarnation", &l.Worker.Incarnation)
	}
	if d.HasArg("release") {
		d.ScanArgs(t, "release", &l.Worker.Release)
	}
	sess := s.sessions[a.SessionID]
	if v := Admit(TaskRequirements{
		Kind: protocol.KindActivity, Type: a.Type, Requirements: a.Requirements, Session: sess,
	}, l, s.now); !v.OK {
		return fmt.Sprintf("not admitted: %s: %s\n", v.Reason, v.Text())
	}
	leased, entries, isNew := LeaseActivity(a, sess, l, noWatermark, s.now)
	s.run.Activities.Put(seq, leased)
	out := fmt.Sprintf("attempt %d delivery %d", leased.Attempt, leased.Delivery)
	if h := leased.LastHeartbeat; h != nil {
		out += fmt.Sprintf(", last heartbeat %s of attempt %d at %s", h.Details, h.Attempt, h.At.Format("15:04:05"))
	}
	if sess != nil {
		out += fmt.Sprintf(" in session %s", shortID(sess.ID))
		if isNew {
			out += ", new"
		}
		return out + "\n" + timeline(SessionChange{Session: *sess, Timeline: entries})
	}
	return out + "\n"
}

func (s *stage) session(t *testing.T, d *datadriven.TestData, id, by string, epoch int64) string {
	var in SessionInput
	h := SessionHolder{Worker: by, Epoch: epoch}
	outcome := ""
	switch verb := d.CmdArgs[0].Key; verb {
	case "create":
		l := Lessee{Worker: s.worker(by), Counted: true}
		in = CreateSession{
			Namespace: "default", Options: protocol.SessionOptions{SessionID: id}, Lessee: l, EpochWatermark: noWatermark,
			Outcome: &outcome,
		}
	case "renew":
		in = RenewSession{SessionHolder: h}
	case "heartbeat":
		in = RenewSession{SessionHolder: h, Touch: true}
	case "release":
		why := "test"
		if d.HasArg("why") {
			d.ScanArgs(t, "why", &why)
		}
		r := ReleaseSession{SessionHolder: h, Why: why}
		if why == "failed" {
			r.Failed = "out_of_memory"
		}
		if d.HasArg("follows") {
			r.SnapshotFollows = true
		}
		if d.HasArg("snapshot") {
			r.Snapshot = &protocol.SessionSnapshot{Data: payload.Payload{Blob: "x"}, Bytes: 1, Checksum: "c"}
		}
		if d.HasArg("lost") {
			r.SnapshotFailed = "no disk"
		}
		in = r
	case "close":
		closing := CloseSession{SessionHolder: h}
		if d.HasArg("why") {
			d.ScanArgs(t, "why", &closing.Why)
		}
		if d.HasArg("operator") {
			closing = CloseSession{Operator: "op"}
		}
		in = closing
	case "migrate":
		m := MigrateSession{Operator: "op", Force: d.HasArg("force")}
		if d.HasArg("for") {
			d.ScanArgs(t, "for", &m.For)
		}
		in = m
	case "drain":
		in = DrainSession{Worker: by, Operator: "op", Deadline: d.HasArg("deadline")}
	case "skip":
		in = SkipHolder{Worker: by, Incarnation: by + "-1", Silent: !d.HasArg("heard")}
	case "prepare":
		to, held := "b", 0
		if d.HasArg("to") {
			d.ScanArgs(t, "to", &to)
		}
		if d.HasArg("held") {
			d.ScanArgs(t, "held", &held)
		}
		if d.HasArg("release") {
			d.ScanArgs(t, "release", &s.worker(to).Release)
		}
		p := PrepareSession{
			Owner: s.worker(by), Successor: Lessee{Worker: s.worker(to), Counted: true, Sessions: held}, Operator: "op",
			Balance: d.HasArg("balance"),
		}
		if d.HasArg("balance") {
			p.Operator = ""
		}
		in = p
	case "preparing":
		r := RenewPreparation{
			Worker: s.worker(by), Epoch: epoch, Prepared: d.HasArg("prepared"),
		}
		if d.HasArg("restored") {
			r.Restored = "c"
		}
		if epoch == 0 && s.sessions[id] != nil {
			r.Epoch = s.sessions[id].Epoch
		}
		if d.HasArg("failed") {
			r.Failed = "set-up failed"
		}
		in = r
	case "keep":
		in = UndrainSession{Worker: by}
	case "drain_preparation":
		p := Preparation{}
		if s.sessions[id].Prepare != nil {
			p = *s.sessions[id].Prepare
		}
		in = DrainPreparation{Preparation: p, Operator: "op"}
	case "due":
		due := DueSession{Settled: d.HasArg("settled")}
		if d.HasArg("served") {
			due.Served = []string{""}
			d.ScanArgs(t, "served", &due.Served[0])
		}
		in = due
	case "cleanup":
		in = CleanUp{Before: s.now}
	default:
		d.Fatalf(t, "unknown session verb %s", verb)
	}
	if strings.HasPrefix(id, "#") {
		id = testRun + "-" + id[1:]
	}
	c, err := DecideSession(s.sessions[id], in, s.now)
	if err != nil {
		return "refused: " + strings.ReplaceAll(err.Error(), testRun, "RUN") + "\n"
	}
	if c.Delete {
		delete(s.sessions, id)
	} else {
		s.sessions[id] = &c.Session
	}
	out := outcome
	if out != "" {
		out += "\n"
	}
	return out + timeline(c) + describe(&c.Session, s.now)
}

func timeline(c SessionChange) string {
	out := ""
	for _, e := range c.Timeline {
		out += fmt.Sprintf("  session %s %s", shortID(c.Session.ID), e.What)
		if e.Worker != "" {
			out += " by " + e.Worker
		}
		if e.Why != "" {
			out += ": " + e.Why
		}
		out += "\n"
	}
	return out
}

func describe(s *Session, now time.Time) string {
	out := fmt.Sprintf("session %s %s", shortID(s.ID), s.Status)
	if s.Owner != "" {
		out += " owner " + s.Owner
	}
	if s.Held(now) {
		out += fmt.Sprintf(" until +%s", s.LeaseUntil.Sub(now))
	}
	if p := s.Prepare; p != nil {
		out += fmt.Sprintf(" successor %s until +%s", p.Worker, p.Until.Sub(now))
	}
	if p := s.Snapshot; p != nil {
		out += fmt.Sprintf(" snapshot of %s until +%s", p.Worker, p.Until.Sub(now))
	}
	return out + fmt.Sprintf(" active %d ready %d word %s\n", s.Active, s.Ready, s.StoredRoutingWord(s.RoutingWord(now, "")))
}

func (s *stage) show() string {
	out := s.run.show()
	for _, id := range sortedKeys(s.sessions) {
		out += describe(s.sessions[id], s.now)
	}
	for _, id := range sortedKeys(s.inherited) {
		f := s.inherited[id]
		out += fmt.Sprintf(
			"former child %s %s of command %d, run %d, %d failures\n", shortID(id), f.Type, f.Seq, f.Number, f.Failures,
		)
	}
	if n := s.run.Inherited; n.Open != len(s.inherited) {
		out += fmt.Sprintf("BUT THE RUN COUNTS %d\n", n.Open)
	}
	return out
}

// facts returns the values with which the run was started and that it passes on.
func (s *Run) facts() string {
	out := fmt.Sprintf("run %d of %s in queue %s, priority %d", s.Number, s.Type, s.Queue, s.Priority)
	if s.BuildID != "" {
		out += ", build " + s.BuildID
	}
	if s.FairnessKey != "" {
		out += fmt.Sprintf(", class %s of weight %d", s.FairnessKey, s.FairnessWeight)
	}
	for _, d := range []struct {
		name string
		at   history.Time
	}{{"run", s.RunDeadline}, {"execution", s.ExecutionDeadline}} {
		if !d.at.IsZero() {
			out += fmt.Sprintf(", %s until %s", d.name, d.at.Format("15:04:05"))
		}
	}
	out += "\n"
	for k, a := range s.Activities.All() {
		out += fmt.Sprintf("activity %d in queue %s, priority %d", k, a.Queue, a.Priority)
		if a.FairnessKey != "" {
			out += fmt.Sprintf(", class %s of weight %d", a.FairnessKey, a.FairnessWeight)
		}
		out += "\n"
	}
	return out
}

func (s *Run) show() string {
	out := fmt.Sprintf("%s, %d events, command %d\n", s.Status, s.LastSeq, s.CommandSeq)
	for _, id := range s.Selected {
		out += "selected in " + id + "\n"
	}
	if t := s.Task; t != nil {
		out += fmt.Sprintf("task %d %s delivery %d attempt %d for %s", t.Number, t.State, t.Delivery, t.Attempt, t.Cause.Kind)
		if t.Problem != "" {
			out += ": " + t.Problem
		}
		if t.Stack != "" {
			out += fmt.Sprintf(", a stack of %d bytes", len(t.Stack))
		}
		out += "\n"
	}
	for k, a := range s.Activities.All() {
		out += fmt.Sprintf("activity %d %s %s delivery %d attempt %d", k, a.Type, a.State, a.Delivery, a.Attempt)
		if a.Owner != "" {
			out += " by " + a.Owner
		}
		out += "\n"
	}
	for k, t := range s.Timers.All() {
		out += fmt.Sprintf("timer %d at %s\n", k, t.FireAt.Format("15:04:05"))
	}
	for k, w := range s.Waits.All() {
		out += fmt.Sprintf("wait %d for %s%s, signal %d\n", k, w.Kind, w.Name, w.Signal)
	}
	if s.Memo != nil {
		out += fmt.Sprintf("memo %s\n", s.Memo)
	}
	if s.SearchAttributes != nil {
		out += fmt.Sprintf("search attributes %s\n", s.SearchAttributes)
	}
	for k, c := range s.Children.All() {
		out += fmt.Sprintf("child %d %s run %d, %d failures\n", k, c.Type, c.Number, c.Failures)
	}
	for k, a := range s.Attached.All() {
		out += fmt.Sprintf("attached %d to %s %s\n", k, shortID(a.WorkflowID), a.Type)
	}
	for k, u := range s.Updates.All() {
		out += fmt.Sprintf("update %d %s %s", k, shortID(u.ID), u.Name)
		if u.Taken {
			out += ", its handler waits"
		}
		out += "\n"
	}
	for k, sig := range s.inheritedSignals() {
		if k > s.Seen {
			out += fmt.Sprintf("unseen signal %d %s\n", k, sig.Name)
		}
	}
	for k, sig := range s.Signals.All() {
		out += fmt.Sprintf("unseen signal %d %s\n", k, sig.Name)
	}
	for k, sig := range s.inheritedSignals() {
		if k <= s.Seen {
			out += fmt.Sprintf("unread signal %d %s\n", k, sig.Name)
		}
	}
	for k, sig := range s.Unread.All() {
		out += fmt.Sprintf("unread signal %d %s\n", k, sig.Name)
	}
	return out
}

// check runs after every command: folding the history's events must yield the same state as the steps, except for
// leases.
func (s *stage) check(t *testing.T) {
	t.Helper()
	if s.run == nil {
		return
	}
	folded := &Run{Head: Head{Namespace: "default"}}
	for i, e := range s.history {
		if e.Seq != int64(i+1) {
			t.Fatalf("event %d is at position %d", e.Seq, i+1)
		}
		folded.Evolve(e)
	}
	if !s.run.Status.Open() { // no event records what happens to abandoned activities after the close
		for seq := range folded.Activities.All() {
			if a, open := s.run.Activities.Get(seq); open {
				folded.Activities.Put(seq, a)
			} else {
				folded.Activities.Delete(seq)
			}
		}
	}
	got, want := folded.open(), s.run.open()
	if got != want {
		t.Fatalf("folding the history gives\n%s\nthe steps gave\n%s", got, want)
	}
}

// open returns the open items of the run, except leases and tasks, which are not part of history.
func (s *Run) open() string {
	out := fmt.Sprintf("%s %d %d\n", s.Status, s.LastSeq, s.CommandSeq)
	for k, a := range s.Activities.All() {
		out += fmt.Sprintln("activity", k, a.Type, a.SessionID, a.Failures)
	}
	for k, tm := range s.Timers.All() {
		out += fmt.Sprintln("timer", k, tm.FireAt)
	}
	for k, w := range s.Waits.All() {
		out += fmt.Sprintln("wait", k, w.Kind, w.Name, w.Signal, w.SignalID, w.Value)
	}
	out += fmt.Sprintln("memo", string(s.Memo), string(s.SearchAttributes))
	for k, c := range s.Children.All() {
		out += fmt.Sprintln("child", k, c)
	}
	for k, a := range s.Attached.All() {
		out += fmt.Sprintln("attached", k, a)
	}
	for k, u := range s.Updates.All() {
		out += fmt.Sprintln("update", k, u.ID, u.Name, u.Taken)
	}
	return out
}

func short(events []history.Event) string {
	out := ""
	for _, e := range events {
		raw, _ := json.Marshal(e.Data)
		var m map[string]any
		_ = json.Unmarshal(raw, &m)
		out += fmt.Sprintf("%d %s", e.Seq, e.Type())
		if strings.HasPrefix(e.Type(), "Attached") {
			out += fmt.Sprintf(" %v", m["workflow_id"])
		}
		for _, k := range []string{
			"sequence", "command_sequence", "activity_type", "signal_name", "session_id", "target", "effect", "timeout_kind",
			"attempt_number",
			"failure_category", "exception_type", "message", "reason", "closed_reason", "timer_kind", "condition_key",
			"update_id", "update_name", "result", "child_run_number", "child_workflow_type", "policy",
			"attributes", "merged",
			"selection_group_id", "member_key", "operation_kind", "operation_identity", "outcome", "resolution_event_id",
			"definition", "session_definition", "session_warning",
		} {
			if v, ok := m[k]; ok {
				out += fmt.Sprintf(" %s=%v", k, v)
			}
		}
		if source, _ := m["source_kind"].(string); source == "activity_execution" {
			out += fmt.Sprintf(" of %v", m["source_id"])
		}
		if x, _ := m["exception"].(map[string]any); x["diagnostics"] != nil {
			out += fmt.Sprintf(" diagnostics=%v", x["diagnostics"])
		}
		if stack, ok := m["stack_trace"].(string); ok {
			out += fmt.Sprintf(" stack of %d bytes", len(stack))
		}
		out += "\n"
	}
	return strings.ReplaceAll(out, testRun, "RUN")
}

func shortID(id string) string { return strings.ReplaceAll(id, testRun, "RUN") }

func hash(d *datadriven.TestData) string { return "h" + d.Input }

// commands parses one command per line: its type, then member=value pairs; values are JSON or plain words.
func commands(t *testing.T, d *datadriven.TestData) []protocol.Command {
	var list []protocol.Command
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		m := map[string]any{"type": fields[0]}
		for _, f := range fields[1:] {
			k, v, _ := strings.Cut(f, "=")
			var parsed any
			if k == "entries" {
				p, err := payload.FromJSON([]byte(v))
				if err != nil {
					d.Fatalf(t, "%s: %v", line, err)
				}
				m[k] = p
				continue
			}
			if json.Unmarshal([]byte(v), &parsed) != nil {
				parsed = strings.ReplaceAll(v, "RUN", testRun)
			}
			m[k] = parsed
		}
		raw, _ := json.Marshal(m)
		var c protocol.Command
		if err := json.Unmarshal(raw, &c); err != nil {
			d.Fatalf(t, "%s: %v", line, err)
		}
		list = append(list, c)
	}
	return list
}

func sortedKeys[V any](m map[string]V) []string {
	var t Table[string, bool]
	for k := range m {
		t.Put(k, true)
	}
	return t.keys()
}
