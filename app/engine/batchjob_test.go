package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// One app at a time owns a batch job. Each acquisition has a new epoch, and transactions of an earlier epoch are
// refused, also those of the same app.
func TestABatchJobHasOneOwner(t *testing.T) {
	now := time.Unix(1_000, 0)
	const lease = 30 * time.Second
	created := &engine.BatchJob{Namespace: "n", ID: "j", CreatedAt: history.At(now), Limit: 2}
	first, ok := created.Acquire("a", true, lease, now)
	if !ok || first.Epoch != 1 {
		t.Fatalf("acquired: %+v", first)
	}
	if _, ok := first.Acquire("b", true, lease, now.Add(lease-1)); ok {
		t.Error("another app acquired the job before the lease expired")
	}
	if _, ok := first.Acquire("b", false, lease, now); !ok {
		t.Error("the only app of a database waits for the lease of its former process")
	}
	renewed, err := first.Renew("a", 1, lease, now.Add(lease))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := renewed.Acquire("b", true, lease, now.Add(2*lease-1)); ok {
		t.Error("another app acquired the job before the renewed lease expired")
	}
	second, ok := renewed.Acquire("b", true, lease, now.Add(2*lease))
	if !ok || second.Epoch != 2 {
		t.Fatalf("not acquired after the lease: %+v", second)
	}
	again, ok := second.Acquire("b", true, lease, now.Add(2*lease))
	if !ok {
		t.Fatal("an app cannot acquire its job again")
	}
	closed := again.Close(protocol.BatchStopped, "", "", now)
	released := again.Release()
	var missing *engine.BatchJob
	for what, err := range map[string]error{
		"another app":      renewErr(&second, "a", 2, now),
		"an earlier epoch": renewErr(&again, "b", 2, now),
		"a closed job":     renewErr(&closed, "b", 3, now),
		"a released job":   renewErr(&released, "b", 3, now),
		"a deleted job":    renewErr(missing, "b", 3, now),
	} {
		if !errors.Is(err, engine.ErrBatchLost) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, ok := closed.Acquire("b", true, lease, now); ok {
		t.Error("a closed job was acquired")
	}
}

func renewErr(j *engine.BatchJob, app string, epoch int64, now time.Time) error {
	_, err := j.Renew(app, epoch, time.Second, now)
	return err
}

// The collection ends at the limit, or with the last run, and continues after the last stored run.
func TestABatchJobCollectsRunsUpToItsLimit(t *testing.T) {
	j := engine.BatchJob{State: protocol.BatchCollecting, Limit: 3}
	heads := []engine.Head{{ID: "r1"}, {ID: "r2"}}
	next, rows := j.Collect(heads, false)
	if next.State != protocol.BatchCollecting || next.AfterRun != "r2" || len(rows) != 2 || rows[1].Number != 2 {
		t.Errorf("first page: %+v, %+v", next, rows)
	}
	if done, _ := next.Collect(nil, true); done.State != protocol.BatchRunning || done.Runs != 2 {
		t.Errorf("complete: %+v", done)
	}
	next, rows = next.Collect([]engine.Head{{ID: "r3"}}, false)
	if next.State != protocol.BatchRunning || rows[0].Number != 3 {
		t.Errorf("at the limit: %+v, %+v", next, rows)
	}
	next = next.Record(protocol.BatchRunDone).Record(protocol.BatchRunRefused)
	if next.Pending() != 1 {
		t.Errorf("%d runs without a result, want 1", next.Pending())
	}
}
