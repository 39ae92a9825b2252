package workflow_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func TestChangesAreVersioned(t *testing.T) {
	old := func(ctx workflow.Context) (int, error) {
		return workflow.DefaultVersion, workflow.ExecuteActivity(ctx, "old").Get(ctx, nil)
	}
	changed := func(oldest, latest int) func(workflow.Context) (int, error) {
		return func(ctx workflow.Context) (int, error) {
			v := workflow.Version(ctx, "step", oldest, latest)
			if w := workflow.Version(ctx, "step", oldest, latest); w != v {
				return 0, errors.New("two answers")
			}
			if v == workflow.DefaultVersion {
				return v, workflow.ExecuteActivity(ctx, "old").Get(ctx, nil)
			}
			return v, workflow.ExecuteActivity(ctx, fmt.Sprint("new", v)).Get(ctx, nil)
		}
	}
	a := start(t, old)
	a.drain(nil)
	a.def = define(t, changed(workflow.DefaultVersion, 1))
	a.complete(1, nil)
	a.drain(nil)
	want(t, "run from before the change", a.output(), any(int64(-1)))

	a = start(t, changed(workflow.DefaultVersion, 1))
	a.drain(nil)
	a.def = define(t, changed(1, 2))
	a.complete(2, nil)
	a.drain(nil)
	want(t, "run from after the first change", a.output(), any(int64(1)))

	a = start(t, changed(workflow.DefaultVersion, 1))
	a.drain(nil)
	m := replay.New(define(t, changed(2, 3)), replay.Options{})
	defer m.Close()
	if _, err := m.Apply(a.task(len(a.events)), a.events); err == nil ||
		replay.TaskFailure(err).Type != "NonDeterminism" {
		t.Errorf("a version that is no longer supported: got %v", err)
	}
}

func TestRunsKeepTheirVersionOfTheWorkflow(t *testing.T) {
	say := func(word string) func(workflow.Context) (string, error) {
		return func(ctx workflow.Context) (string, error) {
			return word, workflow.ExecuteActivity(ctx, word).Get(ctx, nil)
		}
	}
	both := define(t, say("one"))
	if err := both.Add(2, say("two")); err != nil {
		t.Fatal(err)
	}
	finish := func(a *app) any {
		for seq := range a.run.Activities.All() {
			a.complete(seq, nil)
			break
		}
		a.drain(nil)
		return a.output()
	}
	a := start(t, say("one"))
	a.drain(nil)
	a.def = both
	want(t, "run from before", finish(a), any("one"))

	a = start(t, say("one"))
	a.def = both
	a.drain(nil)
	m := replay.New(define(t, say("one")), replay.Options{})
	_, err := m.Apply(a.task(len(a.events)), a.events)
	m.Close()
	if v, ok := errors.AsType[*workflow.VersionError](err); !ok || v.Version != 2 {
		t.Errorf("worker without the version: got %v", err)
	}
	want(t, "new run", finish(a), any("two"))
}

// The number of a registered version is recorded from the first run on, even while it is the only version. Otherwise
// its runs would use the lowest remaining version after this version was removed.
func TestARegisteredVersionIsRecordedFromTheFirst(t *testing.T) {
	say := func(word string) func(workflow.Context) (string, error) {
		return func(ctx workflow.Context) (string, error) {
			return word, workflow.ExecuteActivity(ctx, word).Get(ctx, nil)
		}
	}
	versions := func(words map[int]string) *workflow.Definition {
		d := &workflow.Definition{Name: "wf"}
		for v, word := range words {
			if err := d.Add(v, say(word)); err != nil {
				t.Fatal(err)
			}
		}
		return d
	}
	marker := func(a *app) int {
		for _, e := range a.events {
			if d, ok := e.Data.(*history.VersionMarkerRecorded); ok {
				return d.Version
			}
		}
		return 0
	}
	a := start(t, say("one"))
	a.def = versions(map[int]string{1: "one"})
	a.drain(nil)
	want(t, "recorded", marker(a), 1)
	m := replay.New(versions(map[int]string{2: "two", 3: "three"}), replay.Options{})
	_, err := m.Apply(a.task(len(a.events)), a.events)
	m.Close()
	if v, ok := errors.AsType[*workflow.VersionError](err); !ok || v.Version != 1 {
		t.Errorf("a worker without version 1: got %v", err)
	}
	a.def = versions(map[int]string{1: "one", 2: "two"})
	a.complete(2, nil)
	a.drain(nil)
	want(t, "its version next to a newer one", a.output(), any("one"))

	a = start(t, say("one"))
	a.drain(nil)
	want(t, "recorded of code without a version", marker(a), 0)
	a.def = versions(map[int]string{1: "one"})
	a.complete(1, nil)
	a.drain(nil)
	want(t, "begun without a version", a.output(), any("one"))
}
