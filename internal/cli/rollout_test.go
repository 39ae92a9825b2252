package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func registerRollout(r *worker.Registry) {
	r.Workflow("rollout.steps", rolloutSteps)
}

// rolloutSteps runs three activities without a session and three in a session with a release policy.
func rolloutSteps(ctx workflow.Context, policy string) error {
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{ReleasePolicy: policy})
	if err != nil {
		return err
	}
	for i := range 6 {
		run := workflow.ExecuteActivity
		if i%2 == 1 {
			run = s.Execute
		}
		if err := run(ctx, "rollout.step", i).Get(ctx, nil); err != nil {
			return err
		}
	}
	return s.End(ctx)
}

// pause is the maximum time without a started task in a rollout: a worker that an app of another release rejected polls
// again after this time.
const pause = 10 * time.Second

// span is the period in which an app of a release may have dispatched tasks.
type span struct {
	release  string
	from, to time.Time
}

// rollout is two apps on one database and workers with the addresses of both, which are replaced one by one.
type rollout struct {
	*fleet
	urls    [2]string
	apps    [2]*process
	workers [4]*process
	release map[int]string // release of every worker process
	served  []span
	serves  [2]int // releases of the apps
	binary  map[string]string
	begun   int

	stop chan struct{}
	done sync.WaitGroup
	mu   sync.Mutex // guards runs
	runs map[string]string
}

// Two builds replace each other under load, N to N+1 and back, app by app and worker by worker, where the newer one has
// a schema change. No run and no step fails, none is lost or starts twice, each is run by the release under which it
// was leased, and no pause is longer than that of a rejected worker. Half of the workers use a socket and half poll
// over HTTP. The test takes 30 seconds; SOJOURN_TEST_ROLLING sets another duration, and "make rolling" takes ten
// minutes.
func TestARollingUpgradeUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	length := 30 * time.Second
	if text := os.Getenv("SOJOURN_TEST_ROLLING"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	f := newFleet(t)
	f.app["SOJOURN_DATABASE_URL"] = apptest.Postgres(t)
	f.app["SOJOURN_TOKEN"] = "sjn_bootstrap_of_this_test_and_long_enough"
	f.worker["SOJOURN_TOKEN"], f.client.token = f.app["SOJOURN_TOKEN"], f.app["SOJOURN_TOKEN"]
	// as by default: a stopped worker returns its tasks, so nothing waits for a lease
	for _, e := range []env{f.app, f.worker} {
		delete(e, "SOJOURN_ATTEMPT_LEASE")
		delete(e, "SOJOURN_SESSION_LEASE")
		delete(e, "SOJOURN_SESSION_BUFFER")
	}
	known := latestSchema(t)
	r := &rollout{
		fleet: f, release: map[int]string{}, stop: make(chan struct{}), runs: map[string]string{},
		binary: map[string]string{"1.0.0": "", "1.1.0": newerBuild(t, "1.1.0", known)},
	}
	for i := range r.urls {
		r.urls[i] = "http://" + address(t)
		r.app(i, "1.0.0")
	}
	for i := range r.workers {
		r.work(i, "1.0.0")
	}
	if got := schemaOf(t, "pgx", f.app["SOJOURN_DATABASE_URL"]); got != known {
		t.Fatalf("schema %d, want %d", got, known)
	}
	for i := range 4 {
		r.done.Add(1)
		go r.load(i)
	}
	// Tests do not depend on timing: the next process is replaced after a task has begun at the previous replacement,
	// or after a timeout.
	places := []func(string){
		func(to string) { r.app(0, to) }, func(to string) { r.work(0, to) }, func(to string) { r.work(2, to) },
		func(to string) { r.app(1, to) }, func(to string) { r.work(1, to) }, func(to string) { r.work(3, to) },
	}
	each := max(length/time.Duration(2*len(places)), 500*time.Millisecond)
	if length > time.Minute {
		each = 4 * time.Second
	}
	rounds := 0
	for end := time.Now().Add(length); rounds == 0 || time.Now().Before(end); rounds++ {
		for _, to := range []string{"1.1.0", "1.0.0"} {
			for i := range places {
				if rounds%2 == 1 { // workers before their apps
					i = len(places) - 1 - i
				}
				before := time.Now()
				places[i](to)
				time.Sleep(max(0, each-time.Since(before)))
			}
			if got := schemaOf(t, "pgx", f.app["SOJOURN_DATABASE_URL"]); got != known+1 {
				t.Errorf("schema %d, want %d", got, known+1)
			}
		}
	}
	close(r.stop)
	r.done.Wait()
	r.judge(rounds)
}

// app replaces one of the apps.
func (r *rollout) app(i int, release string) {
	r.t.Helper()
	r.ends(i)
	r.served = append(r.served, span{release: release, from: time.Now()})
	r.serves[i] = len(r.served) - 1
	r.apps[i] = launchAs(r.t, r.binary[release], r.dir, r.fleet.app.with(env{
		"SOJOURN_ADDR": r.urls[i][len("http://"):], "SOJOURN_RELEASE": release, "SOJOURN_DATA_DIR": r.t.TempDir(),
	}), "app")
	client{t: r.t, base: r.urls[i], token: r.client.token}.up()
}

// ends stops an app if it runs.
func (r *rollout) ends(i int) {
	r.t.Helper()
	if r.apps[i] == nil {
		return
	}
	if code := r.apps[i].terminate(); code != 0 {
		r.t.Errorf("an app ends with %d", code)
	}
	r.served[r.serves[i]].to = time.Now()
}

// leased reports whether an app of a release ran at a time.
func (r *rollout) leased(release string, at time.Time) bool {
	return slices.ContainsFunc(r.served, func(s span) bool {
		return s.release == release && !at.Before(s.from) && !at.After(s.to)
	})
}

// work replaces one of the workers. The new worker starts before the old one drains, as in a deployment.
func (r *rollout) work(i int, release string) {
	r.t.Helper()
	old := r.workers[i]
	r.begun++
	first, second := r.urls[i%2], r.urls[1-i%2]
	w := launchAs(r.t, r.binary[release], r.dir, r.worker.with(env{
		"SOJOURN_APP_URL": first + "," + second, "SOJOURN_RELEASE": release, "SOJOURN_DATA_DIR": r.t.TempDir(),
		"SOJOURN_WORKER_ID": fmt.Sprintf("w%d-%d", i, r.begun), "SOJOURN_LINK": []string{"socket", "http"}[i/2],
	}), "worker")
	r.workers[i], r.release[w.cmd.Process.Pid] = w, release
	w.line(w.err, `"message":"connected to the app"`)
	if old != nil {
		if code := old.terminate(); code != 0 {
			r.t.Errorf("a worker ends with %d", code)
		}
	}
}

// load starts runs at any app that responds, a few per second.
func (r *rollout) load(i int) {
	defer r.done.Done()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		id := fmt.Sprintf("run-%d-%d", i, n)
		for at := i; ; at++ {
			status, raw, err := client{t: r.t, base: r.urls[at%2], token: r.client.token}.call(
				r.t.Context(), http.MethodPost, "/api/workflows", map[string]any{
					"workflow_id": id, "workflow_type": "rollout.steps", "duplicate_policy": "use-existing",
					"input": []any{[]string{"migrate", "finish"}[n%2]},
				})
			var a protocol.StartResponse
			if err == nil && status < 300 && json.Unmarshal(raw, &a) == nil {
				r.mu.Lock()
				r.runs[id] = a.RunID
				r.mu.Unlock()
				break
			}
			if err == nil && status != http.StatusServiceUnavailable {
				r.t.Errorf("a start is answered with %d %s", status, raw)
				return
			}
			select {
			case <-r.stop:
				return
			case <-tick.C:
			}
		}
		select {
		case <-r.stop:
			return
		case <-tick.C:
		}
	}
}

// judge waits for the end of all runs and checks the ledger.
func (r *rollout) judge(rounds int) {
	c := client{t: r.t, base: r.urls[0], token: r.client.token}
	// tasks that a leaving worker had not started are dispatched to another worker
	ends, back := map[string]history.Attempt{}, 0
	for id, run := range r.runs {
		for _, e := range c.completed(id, run) {
			seq, attempt := history.EndedAttempt(e.Data)
			if seq == 0 {
				continue
			}
			done, ok := e.Data.(*history.ActivityCompleted)
			if !ok || slices.ContainsFunc(attempt.Lost, func(l history.Lost) bool {
				return l.Why != engine.ReturnedDraining && l.Why != engine.ReturnedUnstarted
			}) {
				r.t.Errorf("%s: a step ended with %s, as attempt %d, lost %v", id, e.Data.Type(), attempt.Number, attempt.Lost)
				continue
			}
			back += len(attempt.Lost)
			ends[done.ExecutionID] = attempt
		}
	}
	for _, p := range r.workers {
		if code := p.terminate(); code != 0 {
			r.t.Errorf("a worker ends with %d", code)
		}
	}
	for i := range r.apps {
		r.ends(i)
	}
	lines, seen, by := ledger(r.t, r.ledger), map[string]line{}, map[string]int{}
	longest := time.Duration(0)
	for i, l := range lines {
		if first, ran := seen[l.Execution]; ran {
			r.t.Errorf("a step ran twice: %+v, and %+v; it ended as %+v", first, l, ends[l.Execution])
		}
		seen[l.Execution] = l
		ran, lease := r.release[l.Process], ends[l.Execution]
		if ran != lease.Release || !r.leased(ran, lease.StartedAt.Time) {
			r.t.Fatalf("step %s was leased under release %q at %s, and ran in a worker of %q: apps served in %+v",
				l.Task, lease.Release, lease.StartedAt, ran, r.served)
		}
		by[r.release[l.Process]]++
		if i > 0 {
			longest = max(longest, l.At.Sub(lines[i-1].At))
		}
	}
	if back > max(1, len(ends)/200) { // the number depends on the load of the machine
		r.t.Errorf("%d of %d steps were given to workers that were leaving", back, len(ends))
	}
	if len(ends) != 6*len(r.runs) || len(lines) != len(ends) {
		r.t.Errorf("%d steps ended and %d ran, of %d runs of six", len(ends), len(lines), len(r.runs))
	}
	r.t.Logf("%d rounds, %d workers: %d runs, steps by release %v, %d handed on by who was leaving, longest pause %s",
		rounds, r.begun, len(r.runs), by, back, longest)
	if by["1.0.0"] == 0 || by["1.1.0"] == 0 {
		r.t.Error("a release did nothing")
	}
	if longest > pause {
		r.t.Errorf("for %s nothing began", longest)
	}
}
