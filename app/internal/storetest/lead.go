package storetest

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// FollowsInSessions checks that a step in a session soon after another step of the same run has no index entry, and
// that readers still find the attempts that ended in the session, and the time of the last one, also in an app that did
// not store it. count returns the number of event rows that are in the index and the number of event rows outside of
// it.
func FollowsInSessions(t *testing.T, s Suite, count func() (lead, follow int)) {
	apps := []*Fixture{s.Fixture(t, "a", Options{App: "one"})}
	if s.Shared {
		apps = append(apps, s.Fixture(t, "a", Options{App: "two"}))
	}
	w, last := apps[0], apps[len(apps)-1]
	const idle, each = 5 * time.Minute, 30
	worker := w.Worker("w", Sessions(10, time.Hour), func(x *engine.Worker) { x.SessionIdle = idle.Microseconds() })
	var runs [2][]store.Leased
	for k := range runs {
		var in []string
		for range each {
			in = append(in, "s")
		}
		w.startInSessions(in...)
		runs[k] = w.leaseAll(worker, each)
	}
	pass := func(d time.Duration) {
		for _, app := range apps {
			app.Pass(d)
		}
	}
	var want []store.RunEvent
	for i := range each {
		app := apps[i/4%len(apps)]
		// The last but one step writes the row's last activity and follows the step before it. So a reader must start a
		// second before the time in the row, and that step may only follow a recent one.
		switch i {
		case each - 3:
			pass(idle/10 - 1200*time.Millisecond - 300*time.Millisecond)
		case each - 2, each - 1:
			pass(400 * time.Millisecond)
		}
		for k := range runs {
			l := runs[k][i]
			c := engine.CompleteActivity{
				Seq: l.Activity.Seq, Holder: engine.Holder{Owner: l.Activity.Owner, Delivery: l.Activity.Delivery}, Hash: "h",
				Result: "cmVzdWx0",
			}
			if i == 7 { // later steps are read without this one
				c.Result = strings.Repeat("cmVzdWx0", 4<<10)
			}
			var events []history.Event
			app.Commit(recording(Step(l.Head.ID, c, store.Keys{Activities: []int64{l.Activity.Seq}}), &events))
			want = append([]store.RunEvent{{Run: l.Head.ID, WorkflowID: l.Head.WorkflowID, Event: events[0]}}, want...)
		}
		if i%8 == 7 {
			pass(400 * time.Millisecond)
		}
	}
	lead, follow := count()
	t.Logf("%d rows lead, %d follow", lead, follow)
	if follow < each || lead < 2 || lead+follow != 2*each {
		t.Errorf("of %d rows %d are in the index and %d are not", 2*each, lead, follow)
	}
	key := engine.SessionKey{Namespace: Namespace, ID: "s"}
	for _, size := range []int{1, 7, 50, 200} {
		var got []store.RunEvent
		for before, more := (store.RunEvent{}), true; more; {
			var page []store.RunEvent
			last.View(func(r store.Reader) (err error) {
				page, err = r.SessionHistory(t.Context(), key, before, size)
				return err
			})
			if got = append(got, page...); len(page) > 0 {
				before = page[len(page)-1]
			}
			more = len(page) == size
		}
		if len(got) != len(want) {
			t.Fatalf("by %d: %d ends, want %d", size, len(got), len(want))
		}
		for i := range want {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("by %d: end %d is %+v, want %+v", size, i, got[i], want[i])
			}
		}
	}
	// According to its row the session is already idle; attempts that ended since then show that it is not.
	now, err := last.S.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pass(want[0].At.Add(idle - 300*time.Millisecond).Sub(now))
	if n := last.Renew("w", "s"); n != 1 {
		t.Errorf("%d renewals right before the session is idle, whose row says %s", n, last.sessionRow("s").LastActivity)
	}
	pass(600 * time.Millisecond)
	if n := last.Renew("w", "s"); n != 0 {
		t.Errorf("%d renewals once the session is idle", n)
	}
	last.Commit(SessionStep("s", engine.ReleaseSession{SessionHolder: engine.SessionHolder{Worker: "w"}, Why: "test"}))
	last.View(func(r store.Reader) error {
		line, err := r.Timeline(t.Context(), key, 0, 10)
		if len(line) == 0 || line[len(line)-1].Ran != 2*each {
			t.Errorf("the timeline ends with %+v, want %d attempts", line, 2*each)
		}
		return err
	})
}
