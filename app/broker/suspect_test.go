package broker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/querytask"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// process registers a process of a worker that renews its leases. It supersedes the process that was registered before.
func (o *harness) process(a *app, worker, incarnation string, change ...func(*protocol.RegisterRequest)) {
	o.t.Helper()
	o.hired(a, worker, func(in *protocol.RegisterRequest) {
		in.Incarnation, in.AttemptLease, in.ActivityTypes = incarnation, 600, []string{"turn", "other"}
		in.ActivitySlots, in.WorkflowSlots = new(100), new(100)
		for _, c := range change {
			c(in)
		}
	})
}

// takes polls for activities until the process gets none, or has received most of them.
func (a *app) takes(worker, incarnation string, most int) (tasks []*protocol.Task) {
	a.t.Helper()
	for len(tasks) < most {
		p := must[protocol.PollResponse](a.t)(a.Poll(a.t.Context(), protocol.PollRequest{
			WorkerID: worker, Incarnation: incarnation, Timeout: new(int64(0)),
			Kinds: []protocol.TaskKind{protocol.KindActivity},
		}))
		if len(p.Tasks) == 0 {
			break
		}
		for i := range p.Tasks {
			tasks = append(tasks, &p.Tasks[i])
		}
	}
	return tasks
}

// renews renews the lease of an attempt.
func (a *app) renews(worker, incarnation, attempt string) {
	a.t.Helper()
	task := attempt[:strings.LastIndex(attempt, "-")]
	h := must[protocol.HeartbeatResponse](a.t)(a.HeartbeatTask(a.t.Context(), protocol.HeartbeatRequest{
		TaskID: task, Owner: worker, AttemptID: attempt,
	}))
	if !h.Renewed {
		a.t.Fatalf("process %s of worker %s lost attempt %s: %+v", incarnation, worker, attempt, h)
	}
}

// activities starts a run with this number of ready activities, and returns the run's ID.
func (o *harness) activities(a *app, workflow, worker, incarnation, kind string, n int) string {
	o.t.Helper()
	run := a.start(workflow).RunID
	p := must[protocol.PollResponse](o.t)(a.Poll(o.t.Context(), protocol.PollRequest{
		WorkerID: worker, Incarnation: incarnation, Timeout: new(int64(10)),
		Kinds: []protocol.TaskKind{protocol.KindWorkflow},
	}))
	if len(p.Tasks) != 1 {
		o.t.Fatalf("%d workflow tasks", len(p.Tasks))
	}
	commands := make([]protocol.Command, n)
	for i := range commands {
		commands[i] = protocol.Command{Type: protocol.ScheduleActivity, ActivityType: kind}
	}
	a.taken(a.decide(&p.Tasks[0], commands...))
	return run
}

// activitiesRun starts a run with n activities and leases them to process p1 of worker w.
func (o *harness) activitiesRun(a *app, n int) (run string) {
	o.t.Helper()
	o.process(a, "w", "p1")
	run = o.activities(a, "one", "w", "p1", "turn", n)
	if got := a.takes("w", "p1", 100); len(got) != n {
		o.t.Fatalf("the first process gets %d tasks, want %d", len(got), n)
	}
	return run
}

// takesOne polls for one activity.
func (a *app) takesOne(worker, incarnation string) *protocol.Task {
	a.t.Helper()
	p := must[protocol.PollResponse](a.t)(a.Poll(a.t.Context(), protocol.PollRequest{
		WorkerID: worker, Incarnation: incarnation, Timeout: new(int64(0)), Max: 1,
		Kinds: []protocol.TaskKind{protocol.KindActivity},
	}))
	if len(p.Tasks) != 1 {
		a.t.Fatalf("process %s of worker %s gets %d tasks, want 1", incarnation, worker, len(p.Tasks))
	}
	return &p.Tasks[0]
}

// sweep applies all passed deadlines, like the sweeper.
func (o *harness) sweep(a *app) {
	o.t.Helper()
	var due []store.Due
	if err := o.store.View(o.t.Context(), func(r store.Reader) error {
		now, err := o.store.Now(o.t.Context())
		if err == nil {
			due, err = r.Due(o.t.Context(), now, 1000)
		}
		return err
	}); err != nil {
		o.t.Fatal(err)
	}
	for _, d := range due {
		if err := a.Due(o.t.Context(), d); err != nil {
			o.t.Fatal(err)
		}
	}
}

// suspicions returns the suspicions of a run's activities by sequence number; nil for an activity that is not a
// suspect.
func (a *app) suspicions(run string) map[int64]*engine.Suspicion {
	a.t.Helper()
	all := map[int64]*engine.Suspicion{}
	for seq, act := range a.run(run).Activities.All() {
		all[seq] = act.Suspect
	}
	return all
}

// suspected returns the number of suspects among the activities of a run, and how many of them were blamed.
func (a *app) suspected(run string) (suspects, blamed int) {
	for _, s := range a.suspicions(run) {
		if s != nil {
			suspects++
		}
		if s != nil && s.Blamed > 0 {
			blamed++
		}
	}
	return suspects, blamed
}

// A process with six tasks ends. None is blamed; a process gets only one of them at a time, next to any number of other
// tasks. When the process of one suspect ends, that suspect is blamed, the other tasks of the process are not
// suspected, and the other five suspects are cleared.
func TestAProcessHoldsOneSuspectAtATime(t *testing.T) {
	for _, apps := range []int{1, 2} {
		inBubble(t, fmt.Sprint(apps, " apps"), func(o *harness) {
			a, _ := o.app("a", apps > 1)
			b := a
			if apps > 1 {
				b, _ = o.app("b", true)
			}
			run := o.activitiesRun(a, 6)
			o.process(a, "w", "p2")
			if suspects, blamed := a.suspected(run); suspects != 6 || blamed != 0 {
				o.t.Fatalf("%d suspects, %d blamed, want 6 and 0", suspects, blamed)
			}
			first := a.takes("w", "p2", 100)
			if len(first) != 1 {
				o.t.Fatalf("the next process gets %d suspects, want 1", len(first))
			}
			o.process(b, "v", "q1")
			if got := b.takes("v", "q1", 100); len(got) != 1 {
				o.t.Fatalf("another worker gets %d suspects, want 1", len(got))
			}
			other := o.activities(a, "two", "w", "p2", "other", 3)
			if got := a.takes("w", "p2", 3); len(got) != 3 {
				o.t.Fatalf("in addition to its suspect the process gets %d tasks, want 3", len(got))
			}
			o.process(a, "w", "p3")
			if suspects, blamed := a.suspected(run); suspects != 1 || blamed != 1 {
				o.t.Errorf("%d suspects, %d blamed, want the one alone", suspects, blamed)
			}
			if suspects, _ := a.suspected(other); suspects != 0 {
				o.t.Errorf("%d tasks beside the suspect are suspected", suspects)
			}
			if got := a.takes("w", "p3", 100); len(got) != 7 { // the four cleared tasks and three other tasks
				o.t.Errorf("the third process gets %d tasks, want 7", len(got))
			}
		})
	}
}

// A poll that waits while suspects become ready gets one of them.
func TestAWaitingPollGetsOneSuspect(t *testing.T) {
	inBubble(t, "a poll waits", func(o *harness) {
		a, _ := o.app("a", false)
		o.activitiesRun(a, 6)
		o.process(a, "v", "q1")
		open := make(chan int)
		for range 3 {
			go func() {
				open <- len(must[protocol.PollResponse](o.t)(a.Poll(o.t.Context(), protocol.PollRequest{
					WorkerID: "v", Incarnation: "q1", Timeout: new(int64(30)), Max: 10,
					Kinds: []protocol.TaskKind{protocol.KindActivity},
				})).Tasks)
			}()
		}
		time.Sleep(time.Second)
		o.process(a, "w", "p2")
		got := 0
		for range 3 {
			got += <-open
		}
		if got != 1 {
			o.t.Errorf("three polls of one process get %d suspects, want 1", got)
		}
	})
}

// A blamed task waits for its backoff and then for an idle process, which receives no other task until the blamed task
// is cleared. Meanwhile other processes receive tasks.
func TestABlamedTaskIsAloneInItsProcess(t *testing.T) {
	inBubble(t, "isolated", func(o *harness) {
		a, _ := o.app("a", false)
		run := o.activitiesRun(a, 1)
		time.Sleep(4 * time.Second)
		o.process(a, "w", "p2")
		if suspects, blamed := a.suspected(run); suspects != 1 || blamed != 1 {
			o.t.Fatalf("alone in its process it is suspected %d times and blamed %d times", suspects, blamed)
		}
		o.process(a, "v", "q1")
		other := o.activities(a, "two", "v", "q1", "other", 1)
		if got := a.takes("v", "q1", 1); len(got) != 1 || got[0].Activity.TaskID != engine.StepID(other, 1) {
			o.t.Fatal("the busy worker has no task")
		}
		if got := a.takes("w", "p2", 1); len(got) != 0 {
			o.t.Fatal("the blamed task is delivered before the end of its backoff")
		}
		time.Sleep(time.Second)
		o.sweep(a)
		if got := a.takes("v", "q1", 1); len(got) != 0 {
			o.t.Fatal("a busy process gets the blamed task")
		}
		if _, err := a.LeaseTask(o.t.Context(), protocol.LeaseRequest{
			Kind: protocol.KindActivity, TaskID: engine.StepID(run, 1), WorkerID: "v", Incarnation: "q1",
		}); protocol.ReasonOf(err) != protocol.ReasonNotClaimable {
			o.t.Errorf("a busy process claims the blamed task by its ID: %v", err)
		}
		if got := a.takes("w", "p2", 1); len(got) != 1 || got[0].Activity.TaskID != engine.StepID(run, 1) {
			o.t.Fatal("an idle process does not get the blamed task")
		}
		more := o.activities(a, "three", "v", "q1", "other", 2)
		if got := a.takes("w", "p2", 10); len(got) != 0 {
			o.t.Fatalf("the process of the blamed task receives %d other tasks", len(got))
		}
		if _, err := a.LeaseTask(o.t.Context(), protocol.LeaseRequest{
			Kind: protocol.KindActivity, TaskID: engine.StepID(more, 1), WorkerID: "w", Incarnation: "p2",
		}); protocol.ReasonOf(err) != protocol.ReasonNotClaimable {
			o.t.Errorf("the process of the blamed task claims another task by its ID: %v", err)
		}
		a.start("four")
		if got := a.poll("v", protocol.KindWorkflow, 0); got == nil {
			o.t.Error("no process gets the workflow task")
		}
		if got := a.takes("v", "q1", 1); len(got) != 1 {
			o.t.Error("another process gets nothing either")
		}
		time.Sleep(10 * time.Second) // twice as long as the task ran before the loss
		o.sweep(a)
		if suspects, _ := a.suspected(run); suspects != 0 {
			o.t.Error("the blamed task is not cleared")
		}
		if got := a.takes("w", "p2", 10); len(got) != 1 || got[0].Activity.TaskID != engine.StepID(more, 2) {
			o.t.Errorf("the process then receives %d tasks, want the remaining one", len(got))
		}
	})
}

// A process that becomes idle during its poll gets the blamed task that waits for an idle process.
func TestABlamedTaskGoesToAProcessThatBecomesIdle(t *testing.T) {
	inBubble(t, "a poll waits", func(o *harness) {
		a, _ := o.app("a", false)
		run := o.activitiesRun(a, 1)
		o.process(a, "w", "p2")
		o.activities(a, "two", "w", "p2", "other", 1)
		busy := a.takes("w", "p2", 1)
		if len(busy) != 1 {
			o.t.Fatal("no task")
		}
		open := make(chan []protocol.Task)
		go func() {
			open <- must[protocol.PollResponse](o.t)(a.Poll(o.t.Context(), protocol.PollRequest{
				WorkerID: "w", Incarnation: "p2", Timeout: new(int64(60)),
				Kinds: []protocol.TaskKind{protocol.KindActivity},
			})).Tasks
		}()
		time.Sleep(time.Second)
		o.sweep(a) // the backoff has ended
		time.Sleep(time.Second)
		a.taken(a.result(busy[0], "done"))
		began := o.at()
		got := <-open
		if len(got) != 1 || got[0].Activity.TaskID != engine.StepID(run, 1) || o.at() > began {
			o.t.Errorf("the poll gets %d tasks after %s", len(got), o.at()-began)
		}
	})
}

// If no process is idle for five minutes, a blamed task is dispatched like any other suspect.
func TestABlamedTaskSharesAProcessAfterFiveMinutes(t *testing.T) {
	inBubble(t, "busy", func(o *harness) {
		a, _ := o.app("a", false)
		o.activitiesRun(a, 1)
		o.process(a, "w", "p2")
		o.activities(a, "two", "w", "p2", "other", 1)
		if got := a.takes("w", "p2", 1); len(got) != 1 {
			t.Fatal("no task")
		}
		time.Sleep(time.Second)
		o.sweep(a)
		time.Sleep(5*time.Minute - time.Second)
		o.sweep(a)
		if got := a.takes("w", "p2", 10); len(got) != 0 {
			o.t.Fatalf("the busy process gets %d tasks within five minutes", len(got))
		}
		time.Sleep(time.Second)
		o.sweep(a)
		if got := a.takes("w", "p2", 10); len(got) != 1 {
			o.t.Fatalf("the busy process gets %d tasks after five minutes, want 1", len(got))
		}
	})
}

// One worker is sufficient: after a minute, tasks that are suspected of one loss are dispatched to any process.
func TestSuspectsGoToAnyProcessAfterAMinute(t *testing.T) {
	inBubble(t, "one worker", func(o *harness) {
		a, _ := o.app("a", false)
		run := o.activitiesRun(a, 5)
		time.Sleep(4 * time.Minute)
		o.process(a, "w", "p2")
		if got := a.takes("w", "p2", 10); len(got) != 1 {
			o.t.Fatalf("%d tasks at once, want 1", len(got))
		}
		time.Sleep(time.Minute - time.Millisecond)
		o.sweep(a)
		if got := a.takes("w", "p2", 10); len(got) != 0 {
			o.t.Fatalf("%d more tasks within the minute", len(got))
		}
		time.Sleep(time.Millisecond)
		o.sweep(a)
		if got := a.takes("w", "p2", 10); len(got) != 4 {
			o.t.Fatalf("%d tasks after a minute, want the other 4", len(got))
		}
		if suspects, _ := a.suspected(run); suspects != 5 {
			o.t.Errorf("%d are suspects, want all", suspects)
		}
	})
}

// The suspect that ran for the shortest time before the loss is dispatched first.
func TestTheSuspectThatRanShortestIsDispatchedFirst(t *testing.T) {
	inBubble(t, "shortest", func(o *harness) {
		a, _ := o.app("a", false)
		o.process(a, "w", "p1")
		run := o.activities(a, "one", "w", "p1", "turn", 5)
		for range 5 {
			a.takesOne("w", "p1")
			time.Sleep(time.Second)
		}
		o.process(a, "w", "p2")
		for want := int64(5); want > 0; want-- {
			got := a.takes("w", "p2", 10)
			if len(got) != 1 || got[0].Activity.TaskID != engine.StepID(run, want) {
				o.t.Fatalf("the process gets %d tasks, want only activity %d", len(got), want)
			}
			a.taken(a.result(got[0], "done"))
		}
	})
}

// All tasks of a process that has ended are judged together when its first lease expires; each task is released when
// its own lease expires.
func TestExpiredLeasesOfAProcessAreJudgedTogether(t *testing.T) {
	for _, apps := range []int{1, 2} {
		inBubble(t, fmt.Sprint(apps, " apps"), func(o *harness) {
			a, kill := o.app("a", apps > 1)
			at := a
			o.process(a, "w", "p1")
			run := o.activities(a, "one", "w", "p1", "turn", 3)
			for range 3 {
				a.takesOne("w", "p1")
				time.Sleep(10 * time.Second)
			}
			if apps > 1 {
				kill()
				at, _ = o.app("b", true)
			}
			time.Sleep(600*time.Second - 30*time.Second)
			free := []int{}
			for range 3 {
				time.Sleep(3 * time.Second) // gives an app time that may receive the worker's heartbeat
				o.sweep(at)
				n, _ := at.suspected(run)
				free = append(free, n)
				time.Sleep(7 * time.Second)
			}
			if _, blamed := at.suspected(run); blamed != 0 || !slices.Equal(free, []int{1, 2, 3}) {
				o.t.Errorf("%d are blamed; released one after the other: %v", blamed, free)
			}
		})
	}
}

// Workflow tasks are judged together with activities: a loss without blame does not quarantine a workflow task, three
// losses with blame do.
func TestWorkflowTasksAreQuarantinedWhenBlamed(t *testing.T) {
	inBubble(t, "workflow tasks", func(o *harness) {
		a, _ := o.app("a", false)
		o.process(a, "w", "p0")
		run := a.start("one").RunID
		lease := func(process string) bool {
			p := must[protocol.PollResponse](o.t)(a.Poll(o.t.Context(), protocol.PollRequest{
				WorkerID: "w", Incarnation: process, Timeout: new(int64(0)), Max: 1,
				Kinds: []protocol.TaskKind{protocol.KindWorkflow},
			}))
			return len(p.Tasks) == 1
		}
		other := o.activities(a, "two", "w", "p0", "turn", 1) // for the run that is dispatched first
		_ = other
		for i := 1; i <= 3; i++ {
			process := fmt.Sprint("p", i)
			o.process(a, "w", process)
			if !lease(process) {
				o.t.Fatalf("process %d gets no task", i)
			}
			o.process(a, "w", process+"b")
			time.Sleep(time.Minute)
			o.sweep(a)
		}
		quarantined := 0
		for _, id := range []string{run, other} {
			if k := a.run(id).Task; k != nil && k.State == engine.Quarantined {
				quarantined++
			}
		}
		if quarantined != 1 {
			o.t.Errorf("%d workflow tasks are quarantined, want the one that was blamed three times", quarantined)
		}
	})
}

// Two apps lease tasks of different queues to one process at the same time: the process gets only one suspect.
func TestTwoAppsGiveAProcessOneSuspectOnPostgres(t *testing.T) {
	database := apptest.Postgres(t)
	one, a, _ := onPostgres(t, database, "a", time.Minute)
	_, b, _ := onPostgres(t, database, "b", time.Minute)
	process := func(incarnation string) {
		one.hired(a, "w", func(in *protocol.RegisterRequest) {
			in.Incarnation, in.AttemptLease, in.TaskQueues = incarnation, 600, []string{"default", "more"}
		})
	}
	takes := func(a *app, incarnation, queue string, most int) []protocol.Task {
		return must[protocol.PollResponse](t)(a.Poll(t.Context(), protocol.PollRequest{
			WorkerID: "w", Incarnation: incarnation, Queues: []string{queue}, Timeout: new(int64(0)), Max: most,
			Kinds: []protocol.TaskKind{protocol.KindActivity}, Free: map[protocol.TaskKind]int{protocol.KindActivity: most},
		})).Tasks
	}
	process("p1")
	run := a.start("one").RunID
	commands := make([]protocol.Command, 40)
	for i := range commands {
		commands[i] = protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "turn"}
		if i%2 > 0 {
			commands[i].Queue = "more"
		}
	}
	a.taken(a.decide(a.poll("w", protocol.KindWorkflow, 10), commands...))
	for _, queue := range []string{"default", "more"} {
		for n := 0; n < len(commands)/2; {
			got := len(takes(a, "p1", queue, 50))
			if n += got; got == 0 {
				t.Fatalf("the first process gets %d tasks of queue %s", n, queue)
			}
		}
	}
	process("p2")
	for open := len(commands); open > 0; {
		var all sync.WaitGroup
		var mu sync.Mutex // guards got
		var got []protocol.Task
		for queue, at := range map[string]*app{"default": a, "more": b} {
			for range 2 {
				all.Go(func() {
					some := takes(at, "p2", queue, 10)
					mu.Lock()
					defer mu.Unlock()
					got = append(got, some...)
				})
			}
		}
		all.Wait()
		if len(got) > 1 {
			t.Fatalf("with %d open, two apps gave the process %d suspects", open, len(got))
		}
		for i := range got { // no suspect at all: each time, the other app had locked the row of the worker
			a.taken(a.result(&got[i], "done"))
			open--
		}
	}
	if n := a.run(run).Activities.Len(); n != 0 {
		t.Errorf("%d activities are open", n)
	}
}

// If a claim cannot lock a worker's row, because another app has locked it, it leases no suspect to that worker: the
// leases of the other app are not known yet.
func TestNoSuspectIsLeasedWithoutTheLockOfItsWorkerOnPostgres(t *testing.T) {
	database := apptest.Postgres(t)
	o, a, _ := onPostgres(t, database, "a", time.Minute)
	o.activitiesRun(a, 4)
	o.process(a, "w", "p2")
	other, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.WithoutCancel(t.Context()))
	for _, statement := range []string{"BEGIN", "SELECT 1 FROM workers WHERE worker_id = 'w' FOR UPDATE"} {
		if _, err := other.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if got := a.takes("w", "p2", 10); len(got) != 0 {
		t.Errorf("the worker gets %d suspects while another app has locked its row", len(got))
	}
	if _, err := other.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	a.eventually("it gets one", func() bool { return len(a.takes("w", "p2", 1)) == 1 })
}

// A query task is not dispatched to the process of a blamed task if another process can run it.
func TestAQueryGoesToAnotherProcessThanABlamedTask(t *testing.T) {
	for _, other := range []bool{true, false} {
		inBubble(t, fmt.Sprint("another process ", other), func(o *harness) {
			a, _ := o.app("a", false)
			answers := func(in *protocol.RegisterRequest) { in.Capabilities = append(in.Capabilities, querytask.CapQueries) }
			o.process(a, "w", "p1", answers)
			run := o.activities(a, "one", "w", "p1", "turn", 1)
			a.takes("w", "p1", 100)
			o.process(a, "w", "p2", answers)
			time.Sleep(time.Second)
			o.sweep(a)
			if got := a.takes("w", "p2", 10); len(got) != 1 {
				o.t.Fatalf("the idle process gets %d tasks, want the blamed one", len(got))
			}
			if other {
				o.process(a, "v", "q1", answers)
			}
			ctx, cancel := context.WithCancel(o.t.Context())
			defer cancel()
			asked := make(chan error, 1)
			go func() {
				_, err := a.Query(ctx, protocol.QueryRequest{Target: protocol.Target{RunID: run}, QueryName: "state"})
				asked <- err
			}()
			synctest.Wait()
			query := func(worker, incarnation string) int {
				return len(must[protocol.PollResponse](o.t)(a.Poll(o.t.Context(), protocol.PollRequest{
					WorkerID: worker, Incarnation: incarnation, Timeout: new(int64(1)),
					Kinds: []protocol.TaskKind{protocol.KindQuery},
				})).Tasks)
			}
			if got := query("w", "p2"); got != map[bool]int{true: 0, false: 1}[other] {
				o.t.Errorf("with another process %t, the process of the blamed task gets %d queries", other, got)
			}
			if other && query("v", "q1") != 1 {
				o.t.Error("the other process does not get the query")
			}
			cancel()
			<-asked
		})
	}
}

// Only an outcome resets a task's count of blamed losses: a task that ends its process each time after it was cleared
// fails after the same number of losses.
func TestATaskThatRepeatedlyEndsItsProcessFails(t *testing.T) {
	inBubble(t, "late", func(o *harness) {
		a, _ := o.app("a", false)
		o.process(a, "w", "p0")
		run := o.activities(a, "one", "w", "p0", "turn", 1)
		losses := 0
		for ; losses < 10 && a.run(run).Activities.Len() > 0; losses++ {
			if got := a.takes("w", fmt.Sprint("p", losses), 100); len(got) != 1 {
				o.t.Fatalf("after %d losses the process gets %d tasks, want 1", losses, len(got))
			}
			for range 3 { // the process renews the lease; the task is cleared after five minutes
				time.Sleep(2 * time.Minute)
				o.sweep(a)
				a.renews("w", fmt.Sprint("p", losses), engine.AttemptID(run, 1, int64(losses+1)))
			}
			if suspects, _ := a.suspected(run); suspects != 0 {
				o.t.Fatal("the suspect is not cleared")
			}
			o.process(a, "w", fmt.Sprint("p", losses+1))
			time.Sleep(time.Minute)
			o.sweep(a)
		}
		if losses != engine.DefaultBlamedLosses {
			o.t.Errorf("the task is given up after %d losses, want %d", losses, engine.DefaultBlamedLosses)
		}
	})
}
