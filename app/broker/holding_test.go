package broker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// ran lists the attempts in a session as "epoch-number worker outcome", oldest first, reading pages of the given size.
func (a *app) ran(id string, epochs map[int64]int, size int) (list []string) {
	a.t.Helper()
	for token := ""; ; {
		p := must[protocol.SessionAttemptPage](a.t)(a.SessionAttempts(
			a.t.Context(), protocol.SessionAttempts{SessionID: id, PageSize: size, PageToken: token},
		))
		for _, at := range p.Attempts {
			if at.WorkflowID == "" || at.RunID == "" || !strings.HasPrefix(at.AttemptID, at.TaskID+"-") ||
				at.ActivityType != "turn" {
				a.t.Errorf("attempt %+v", at)
			}
			list = append([]string{fmt.Sprintf("%d %s %s", epochs[at.Epoch], at.Worker, at.Outcome)}, list...)
		}
		if p.NextPageToken == nil {
			return list
		}
		token = *p.NextPageToken
	}
}

// The timeline shows for each epoch its worker, start, end and reason, the number of its renewals, and its attempts.
func TestTimelineContainsEveryEpoch(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("flow")
		a.ours("a", "a1", time.Hour, time.Hour, 10)
		a.ours("b", "b1", time.Hour, time.Hour, 10)
		a.schedule("one", inSession("s"), inSession("s"), inSession("s"))
		first := a.poll("a", protocol.KindActivity, 30)
		a.taken(a.result(first, "done"))
		next := a.poll("a", protocol.KindActivity, 30)
		a.taken(a.complete(protocol.CompleteItem{
			Kind: protocol.KindActivity, TaskID: next.Activity.TaskID, Owner: "a", AttemptID: next.Activity.AttemptID,
			Failure: &protocol.Failure{Type: "Declined", Message: "no"},
		}))
		for range 2 {
			must[protocol.WorkerHeartbeatResponse](t)(a.WorkerHeartbeat(t.Context(), protocol.WorkerHeartbeat{
				WorkerID: "a", Incarnation: "a1",
				Sessions: []protocol.SessionRenewal{{SessionID: "s", Epoch: first.Activity.Session.Epoch}},
			}))
		}
		lost := a.poll("a", protocol.KindActivity, 30)
		a.ours("a", "a2", time.Hour, time.Hour, 10) // the attempt ends with the process
		second := a.poll("a", protocol.KindActivity, 30)
		if second.Activity.TaskID != lost.Activity.TaskID || !second.Activity.Session.IsNew {
			t.Fatalf("the restarted worker gets %+v", second.Activity)
		}
		a.taken(a.result(second, "done"))
		a.taken(a.decide(a.poll("flow", protocol.KindWorkflow, 30), inSession("s")))
		must[protocol.SessionView](t)(a.OperateSession(
			t.Context(), protocol.SessionOperation{SessionID: "s", Verb: "migrate", Identity: "eve", To: "b"},
		))
		third := a.poll("b", protocol.KindActivity, 30)
		v := must[protocol.SessionView](t)(a.Session(t.Context(), "", "s"))
		var what []string
		for _, e := range v.Timeline {
			what = append(what, strings.TrimSpace(e.What+" "+e.Worker))
		}
		if got := strings.Join(what, ", "); got != "claimed a, renewed a, released a, reclaimed a, released a, reclaimed b" {
			t.Fatalf("timeline: %s", got)
		}
		if e := v.Timeline[1]; e.Renewals != 2 || e.Epoch != first.Activity.Session.Epoch || e.FirstRenewal.IsZero() ||
			!e.LastRenewal.After(e.FirstRenewal.Time) {
			t.Errorf("renewals: %+v", e)
		}
		if e := v.Timeline[2]; e.Why != engine.ReasonRestarted || e.Ran != 3 || e.Epoch != first.Activity.Session.Epoch {
			t.Errorf("the end of the first process's holding: %+v", e)
		}
		if e := v.Timeline[4]; e.By != "eve" || e.Ran != 1 {
			t.Errorf("the end of the second holding: %+v", e)
		}
		epochs := map[int64]int{
			first.Activity.Session.Epoch: 1, second.Activity.Session.Epoch: 2, third.Activity.Session.Epoch: 3,
		}
		want := "1 a completed, 1 a failed, 1 a expired, 2 a completed, 3 b running"
		for _, size := range []int{1, 2, 50} {
			if got := strings.Join(a.ran("s", epochs, size), ", "); got != want {
				t.Errorf("by pages of %d ran %s, want %s", size, got, want)
			}
		}
		p := must[protocol.SessionAttemptPage](t)(a.SessionAttempts(
			t.Context(), protocol.SessionAttempts{SessionID: "s", Epoch: second.Activity.Session.Epoch},
		))
		all := must[protocol.SessionAttemptPage](t)(a.SessionAttempts(t.Context(), protocol.SessionAttempts{SessionID: "s"}))
		if !slices.ContainsFunc(all.Attempts, func(at protocol.SessionAttempt) bool {
			return at.AttemptID == next.Activity.AttemptID && at.Why == "Declined: no"
		}) {
			t.Errorf("no attempt has the class and the message of its failure: %+v", all.Attempts)
		}
		if len(p.Attempts) != 1 || p.Attempts[0].AttemptID != second.Activity.AttemptID ||
			p.Attempts[0].EndedAt.Before(p.Attempts[0].StartedAt.Time) {
			t.Errorf("of the second holding: %+v", p.Attempts)
		}
		if _, err := a.SessionAttempts(t.Context(), protocol.SessionAttempts{
			SessionID: "s", PageToken: "?",
		}); protocol.ReasonOf(err) != protocol.ReasonInvalidPageToken {
			t.Errorf("an invalid page token: %v", err)
		}
	})
}

// A timeline can be read to its beginning page by page, however long it is, also after the session's row was deleted.
func TestATimelineIsReadToItsBeginning(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.ours("a", "a1", time.Hour, time.Hour, 10)
		const holdings = 260 // each acquisition has two entries
		verb := protocol.SessionVerb{WorkerID: "a", SessionID: "s"}
		for range holdings {
			must[protocol.SessionResponse](t)(a.CreateSession(t.Context(), protocol.SessionCreate{
				WorkerID: "a", Incarnation: "a1", SessionOptions: protocol.SessionOptions{SessionID: "s"},
			}))
			must[protocol.SessionResponse](t)(a.ReleaseSession(t.Context(), verb))
		}
		v := must[protocol.SessionView](t)(a.Session(t.Context(), "", "s"))
		if len(v.Timeline) != 500 || v.TimelineToken == nil || v.Timeline[499].What != "released" {
			t.Fatalf("the detail shows %d entries, and a token %v for those before", len(v.Timeline), v.TimelineToken)
		}
		read := func(size int, token string, newer []protocol.SessionEvent) []protocol.SessionEvent {
			t.Helper()
			for {
				p := must[protocol.SessionTimelinePage](t)(a.SessionTimeline(
					t.Context(), protocol.SessionTimeline{SessionID: "s", PageSize: size, PageToken: token},
				))
				newer = append(p.Timeline, newer...)
				if p.NextPageToken == nil {
					return newer
				}
				if len(p.Timeline) != size {
					t.Errorf("a page of %d entries, want %d", len(p.Timeline), size)
				}
				token = *p.NextPageToken
			}
		}
		whole := func(what string, all []protocol.SessionEvent) {
			t.Helper()
			if len(all) != 2*holdings {
				t.Fatalf("%s: %d entries, want %d", what, len(all), 2*holdings)
			}
			epoch := int64(0)
			for i, e := range all {
				want := []string{"reclaimed", "released"}[i%2]
				if i == 0 {
					want = "claimed"
				}
				if e.What != want || e.Epoch < epoch {
					t.Fatalf("%s: entry %d is %+v after epoch %d", what, i, e, epoch)
				}
				epoch = e.Epoch
			}
		}
		whole("behind the detail", read(7, *v.TimelineToken, v.Timeline))
		whole("from the newest", read(99, "", nil))
		if _, err := a.SessionTimeline(t.Context(), protocol.SessionTimeline{
			SessionID: "s", PageToken: "?",
		}); protocol.ReasonOf(err) != protocol.ReasonInvalidPageToken {
			t.Errorf("an invalid page token: %v", err)
		}
		if _, err := a.SessionTimeline(t.Context(), protocol.SessionTimeline{
			SessionID: "none",
		}); protocol.ReasonOf(err) != protocol.ReasonWorkerSessionNotFound {
			t.Errorf("a session that never existed: %v", err)
		}
		if err := a.CleanUp(t.Context(), []engine.SessionKey{{Namespace: "default", ID: "s"}}); err != nil {
			t.Fatal(err)
		}
		all := read(200, "", nil)
		if last := all[len(all)-1]; last.What != "cleaned_up" {
			t.Errorf("the last entry: %+v", last)
		}
		whole("of a row that is gone", all[:len(all)-1])
	})
}

// The first task of an epoch that a worker receives is marked as such, also if the delivery that acquired the session
// never reached the worker.
func TestTheFirstDeliveryThatIsSeenIsNew(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("flow")
		a.ours("a", "a1", time.Hour, time.Hour, 1)
		a.schedule("one", inSession("s"), inSession("s"))
		none := int64(0)
		p := must[protocol.PollResponse](t)(a.Poll(
			t.Context(), protocol.PollRequest{WorkerID: "a", Kinds: []protocol.TaskKind{protocol.KindActivity}, Timeout: &none},
		))
		unseen := p.Tasks[0].Activity.Session
		p.Undo()
		fresh := 0 // the worker is returning a task: the other task may be dispatched before or after it
		for range 2 {
			s := a.poll("a", protocol.KindActivity, 30).Activity.Session
			if s.Epoch != unseen.Epoch {
				t.Errorf("epoch %d after %d", s.Epoch, unseen.Epoch)
			}
			if s.IsNew {
				fresh++
			}
		}
		if !unseen.IsNew || fresh != 1 {
			t.Errorf("the delivery that was undone was new: %t, and of the two that came %d", unseen.IsNew, fresh)
		}
	})
}

// A worker whose session lease expired cannot close the session: the session counts as closed for this worker and is
// free for others. A worker that never owned the session, or lost it to another worker, is rejected.
func TestAWorkerWithoutALeaseClosesNothing(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("flow")
		a.ours("a", "a1", 50*time.Millisecond, time.Hour, 10)
		a.ours("b", "b1", time.Hour, time.Hour, 10)
		a.schedule("one", inSession("s"), inSession("s"))
		held := a.poll("a", protocol.KindActivity, 30).Activity.Session
		a.expires("s")
		refused := func(name, worker string, epoch int64) {
			t.Helper()
			_, err := a.CloseSession(t.Context(), protocol.SessionVerb{SessionID: "s", WorkerID: worker, Epoch: epoch})
			if protocol.ReasonOf(err) != protocol.ReasonSessionOwner {
				t.Errorf("a close by %s: %v", name, err)
			}
		}
		refused("one that never held it", "b", 0)
		refused("one that never held it, by the holder's epoch", "b", held.Epoch)
		was := must[protocol.SessionView](t)(a.Session(t.Context(), "", "s"))
		for range 2 {
			r := must[protocol.SessionResponse](t)(a.CloseSession(
				t.Context(), protocol.SessionVerb{SessionID: "s", WorkerID: "a", Epoch: held.Epoch},
			))
			if r.Outcome != "already_closed" || r.Status != 200 {
				t.Errorf("a close of a lost session: %+v", r)
			}
		}
		is := must[protocol.SessionView](t)(a.Session(t.Context(), "", "s"))
		if is.Status != was.Status || is.Epoch != was.Epoch || is.UpdatedAt != was.UpdatedAt ||
			len(is.Timeline) != len(was.Timeline) {
			t.Errorf("the session changed\n%+v\nto\n%+v", was, is)
		}
		got := a.poll("b", protocol.KindActivity, 30)
		if got == nil || got.Activity.Session.Epoch <= held.Epoch {
			t.Fatalf("the next worker gets %+v", got)
		}
		refused("one whose successor holds it", "a", held.Epoch)
		refused("one whose successor holds it, by no epoch", "a", 0)
		if is := must[protocol.SessionView](t)(a.Session(t.Context(), "", "s")); is.Status != protocol.SessionActive ||
			is.LeaseOwner == nil || *is.LeaseOwner != "b" {
			t.Errorf("after the refused closes the session is %+v", is)
		}
	})
}

// When a worker of a published SDK stops, it deletes each session that it holds. The task that waits in the session
// must then run on another worker, under a higher epoch.
func TestTheDeleteOfAStoppingWorkerReleasesItsSession(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("flow")
		a.ours("a", "a1", time.Hour, time.Hour, 10)
		a.ours("b", "b1", time.Hour, time.Hour, 10)
		a.schedule("one", inSession("s"), inSession("s"))
		held := a.poll("a", protocol.KindActivity, 30).Activity.Session
		for i, outcome := range []string{"closed", "already_closed"} {
			r := must[protocol.SessionResponse](t)(a.CloseSession(t.Context(), protocol.SessionVerb{
				SessionID: "s", WorkerID: "a", Epoch: held.Epoch, Reason: protocol.ReasonWorkerShutdown,
			}))
			if v := r.Session; r.Outcome != outcome || v.Status != protocol.SessionClosed || v.LeaseOwner == nil ||
				*v.LeaseOwner != "a" || v.ClosedAt.IsZero() {
				t.Errorf("DELETE %d: %s, %+v", i+1, r.Outcome, v)
			}
		}
		got := a.poll("b", protocol.KindActivity, 30)
		if got == nil || got.Activity.Session.Epoch <= held.Epoch || !got.Activity.Session.IsNew {
			t.Fatalf("the next worker gets %+v", got)
		}
	})
}

// Describe lists a lost delivery of an open activity with its worker, epoch, duration and last heartbeat. The attempts
// of the session contain the same, also after the activity has ended. Describe returns the stack trace of the last
// failure.
func TestALostAttemptIsVisible(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("flow")
		a.ours("a", "a1", time.Hour, time.Hour, 10)
		retried := inSession("s")
		retried.RetryPolicy = &retry.Policy{MaxAttempts: new(3)}
		a.schedule("one", retried)
		failed := a.poll("a", protocol.KindActivity, 30).Activity
		a.taken(a.complete(protocol.CompleteItem{
			Kind: protocol.KindActivity, TaskID: failed.TaskID, Owner: "a", AttemptID: failed.AttemptID,
			Failure: &protocol.Failure{Type: "Declined", Message: "no", StackTrace: "turn.go:7"},
		}))
		lost := a.poll("a", protocol.KindActivity, 30).Activity
		const progress = `{"message":"page 7","current":7}`
		must[protocol.HeartbeatResponse](t)(a.HeartbeatTask(t.Context(), protocol.HeartbeatRequest{
			Kind: protocol.KindActivity, TaskID: lost.TaskID, AttemptID: lost.AttemptID, Owner: "a",
			Epoch: lost.Session.Epoch, Beat: true, Progress: []byte(progress),
		}))
		a.ours("a", "a2", time.Hour, time.Hour, 10)
		check := func(where string, l history.Lost) {
			t.Helper()
			if l.Worker != "a" || l.Epoch != lost.Session.Epoch || l.Why != engine.ReasonRestarted || l.StartedAt.IsZero() ||
				!l.HeartbeatAt.After(l.StartedAt.Time) || !l.At.After(l.HeartbeatAt.Time) ||
				string(l.HeartbeatDetails) != progress {
				t.Errorf("%s: lost delivery %+v", where, l)
			}
		}
		v := must[protocol.RunView](t)(a.Describe(t.Context(), protocol.Target{WorkflowID: "one"}))
		if open := v.Pending.Activities; len(open) != 1 || len(open[0].Lost) != 1 || open[0].Stack != "turn.go:7" {
			t.Fatalf("open activities: %+v", open)
		}
		check("describe", v.Pending.Activities[0].Lost[0])
		listed := func(when string) {
			t.Helper()
			p := must[protocol.SessionAttemptPage](t)(a.SessionAttempts(t.Context(), protocol.SessionAttempts{SessionID: "s"}))
			for _, at := range p.Attempts {
				if at.Outcome == "expired" {
					check("attempts, "+when, history.Lost{
						Worker: at.Worker, Epoch: at.Epoch, Why: at.Why, StartedAt: at.StartedAt, At: at.EndedAt,
						HeartbeatAt: at.Heartbeat, HeartbeatDetails: at.HeartbeatDetails,
					})
					return
				}
			}
			t.Errorf("attempts, %s: %+v", when, p.Attempts)
		}
		listed("open")
		a.taken(a.result(a.poll("a", protocol.KindActivity, 30), "done"))
		listed("closed")
	})
}
