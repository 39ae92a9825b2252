package broker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// onPostgres starts an app on a PostgreSQL database, with the given timeout for heartbeats of workers.
func onPostgres(t *testing.T, database, id string, alive time.Duration) (o *harness, a *app, kill func()) {
	t.Helper()
	return onPostgresWith(t, database, id, broker.Options{Alive: alive, StoreAlive: alive})
}

func onPostgresWith(t *testing.T, database, id string, with broker.Options) (o *harness, a *app, kill func()) {
	t.Helper()
	o = &harness{t: t, dispatch: dispatch.New(dispatch.Options{Log: apptest.Log(t)}), began: time.Now()}
	var err error
	if o.store, err = postgres.Open(t.Context(), database, sqldb.Options{App: id, Dispatch: o.dispatch}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(o.dispatch.Close(context.WithoutCancel(t.Context())), o.store.Close()); err != nil {
			t.Error(err)
		}
	})
	with.Release, with.App, with.Shared, with.Log = "test", id, true, apptest.Log(t)
	a, kill = o.appWith(with)
	return o, a, kill
}

// Two apps use PostgreSQL, with a thirtieth of the default timeouts. One app and its worker end at the same time, and
// the other app releases the worker's tasks, whose leases would last for minutes.
func TestTasksOfADeadAppContinueAtAnotherOnPostgres(t *testing.T) {
	database := apptest.Postgres(t)
	const alive = 2 * time.Second
	one, a, kill := onPostgres(t, database, "a", alive)
	two, b, _ := onPostgres(t, database, "b", alive)
	joined := two.at()
	one.join(a, "w", "")
	one.beat(a, "w", "", 0)
	run := a.start("one").RunID
	task := a.poll("w", protocol.KindWorkflow, 30)
	one.beat(a, "w", "", 0)
	kill()
	if at := two.freed(run, time.Minute) - joined; at < alive {
		t.Errorf("released %s after the worker registered", at)
	}
	two.join(b, "v", "v1")
	b.blamed(run, 0)
	redelivered := b.poll("v", protocol.KindWorkflow, 30)
	if redelivered == nil || redelivered.Workflow.TaskID != task.Workflow.TaskID {
		t.Fatalf("the next worker gets %+v", redelivered)
	}
	if late := b.decide(task, protocol.Command{
		Type: protocol.CompleteWorkflow,
	}); protocol.ReasonOf(late.Err) != protocol.ReasonLeaseOwnerMismatch {
		t.Errorf("the late decision: %v", late.Err)
	}
}

// If a worker and its app end, another app removes the worker from the list. The test uses a three hundredth of the
// standard times.
func TestAWorkerThatEndedWithItsAppIsRemovedOnPostgres(t *testing.T) {
	database := apptest.Postgres(t)
	one, a, kill := onPostgres(t, database, "a", 200*time.Millisecond)
	two, b, _ := onPostgres(t, database, "b", 200*time.Millisecond)
	one.join(a, "ended", "p")
	one.beat(a, "ended", "p", 0)
	two.join(b, "stays", "p")
	two.beat(b, "stays", "p", 0)
	kill()
	for end := two.at() + time.Minute; ; time.Sleep(50 * time.Millisecond) {
		two.beat(b, "stays", "p", 0)
		list := must[[]protocol.WorkerView](t)(b.Workers(t.Context(), "", "", ""))
		if len(list) == 1 && list[0].WorkerID == "stays" {
			return
		}
		if two.at() > end {
			t.Fatalf("a minute later the workers are %+v", list)
		}
	}
}
