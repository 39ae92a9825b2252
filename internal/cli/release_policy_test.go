package cli_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func registerPolicies(r *worker.Registry) {
	r.Workflow("policy.session", statefulUnder)
}

// statefulUnder uses the state of a session with a release policy twice, the second time after a signal. It returns the
// workers that had the state, or why the state was missing.
func statefulUnder(ctx workflow.Context, policy string) ([]string, error) {
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{ReleasePolicy: policy})
	if err != nil {
		return nil, err
	}
	if err := s.Execute(ctx, "killed.load", policy, false).Get(ctx, nil); err != nil {
		return nil, err
	}
	first, err := workflow.Await[string](ctx, s.Execute(ctx, "killed.use", policy+" before", false))
	if err != nil {
		return nil, err
	}
	if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
		return nil, err
	}
	second, err := workflow.Await[string](ctx, s.Execute(ctx, "killed.use", policy+" after", false))
	if err != nil {
		second = err.Error()
	}
	return []string{first, second}, nil
}

// In a rolling upgrade to a build with one more migration, the older worker drains while it holds the state of
// sessions. With policy migrate, the newer worker acquires the session at once and rebuilds the state; with policy
// fail, the workflow receives a failure; with policy finish, the tasks wait, and the wait names the release, until no
// app of the older release is left.
func TestReleasePoliciesInARollingUpgrade(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.app["SOJOURN_TOKEN"] = "sjn_bootstrap_of_this_test_and_long_enough"
	f.app["SOJOURN_DATABASE_URL"] = apptest.Postgres(t)
	f.worker["SOJOURN_TOKEN"], f.client.token = f.app["SOJOURN_TOKEN"], f.app["SOJOURN_TOKEN"]
	older := launch(t, f.dir, f.app, "app")
	f.client.up()
	p := &plant{f, older, map[string]*process{}}
	p.begin("old", nil)
	policies := []string{"migrate", "fail", "finish"}
	runs := map[string]string{}
	for _, policy := range policies {
		runs[policy] = p.client.start(policy, "policy.session", policy).RunID
		p.waits(policy, runs[policy])
	}

	at, known := address(t), latestSchema(t)
	build, upgrade := newerBuild(t, "2.0.0", known), env{"SOJOURN_RELEASE": "2.0.0"}
	newer := launchAs(
		t, build, f.dir, f.app.with(upgrade).with(env{"SOJOURN_ADDR": at, "SOJOURN_DATA_DIR": t.TempDir()}), "app",
	)
	next := client{t: t, base: "http://" + at, token: f.client.token}
	next.up()
	if got := schemaOf(t, "pgx", f.app["SOJOURN_DATABASE_URL"]); got != known+1 {
		t.Fatalf("schema %d, want %d", got, known+1)
	}
	p.node["new"] = launchAs(t, build, f.dir, f.worker.with(upgrade).with(env{
		"SOJOURN_APP_URL": next.base, "SOJOURN_WORKER_ID": "new", "SOJOURN_DATA_DIR": t.TempDir(),
	}), "worker")
	p.node["new"].line(p.node["new"].err, `"message":"connected to the app"`)
	if code := p.node["old"].terminate(); code != 0 {
		t.Fatalf("the older worker ends with %d", code)
	}
	for _, policy := range policies {
		p.signal(policy)
	}
	result := func(policy string) []string {
		t.Helper()
		all := next.completed(policy, runs[policy])
		var v []string
		done := all[len(all)-1].Data.(*history.WorkflowCompleted)
		if err := payload.Decode(payload.Payload{Blob: done.Output}, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if got := result("migrate"); !slices.Equal(got, []string{"old", "new"}) {
		t.Errorf("what migrates had the state of %q", got)
	}
	if loads := p.lines("load"); len(loads) != 4 || loads[3].Worker != "new" {
		t.Errorf("the state was built by %+v", loads)
	}
	if got := result("fail"); len(got) != 2 || got[0] != "old" || !strings.Contains(got[1], "drained") {
		t.Errorf("what fails had %q", got)
	}
	until(t, "what is to finish waits for its release", func() bool {
		w := next.describe("finish").Wait
		return w != nil && w.Reason == protocol.WaitSessionRelease && w.Release == "1.0.0"
	})
	if n := len(p.lines("finish after")); n != 0 {
		t.Errorf("it ran %d times meanwhile", n)
	}
	if code := older.terminate(); code != 0 {
		t.Errorf("the older app ends with %d", code)
	}
	if got := result("finish"); !slices.Equal(got, []string{"old", "new"}) {
		t.Errorf("what finishes had the state of %q", got)
	}
	for _, one := range []*process{p.node["new"], newer} {
		if code := one.terminate(); code != 0 {
			t.Errorf("it ends with %d", code)
		}
	}
}
