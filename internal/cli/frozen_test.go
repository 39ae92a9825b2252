package cli_test

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
)

// A worker that is stopped for longer than its leases, with tasks in its socket's buffer, starts none of them when it
// continues, since other workers have leased them. SOJOURN_TEST_FREEZES sets the number of freezes, with default leases
// and ten sessions each time.
func TestResumedWorkerStartsNoTaskWithAnExpiredLease(t *testing.T) {
	t.Parallel()
	leases := env{"SOJOURN_ATTEMPT_LEASE": "3s", "SOJOURN_SESSION_LEASE": "3s", "SOJOURN_SESSION_BUFFER": "1s"}
	times, each := 2, 6
	if text := os.Getenv(freezes); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		leases, times, each = env{}, n, 10
	}
	for _, way := range []string{"socket", "http"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.app["SOJOURN_TOKEN"] = "sjn_bootstrap_of_this_test_and_long_enough"
			f.worker["SOJOURN_TOKEN"], f.client.token = f.app["SOJOURN_TOKEN"], f.app["SOJOURN_TOKEN"]
			f.app["SOJOURN_DATABASE_URL"] = apptest.Postgres(t)
			for _, name := range []string{"SOJOURN_ATTEMPT_LEASE", "SOJOURN_SESSION_LEASE", "SOJOURN_SESSION_BUFFER"} {
				delete(f.app, name)
				delete(f.worker, name)
			}
			f.worker["SOJOURN_LINK"] = way
			app := launch(t, f.dir, f.app, "app")
			f.client.up()
			p := &plant{f, app, map[string]*process{}}
			// each freeze leaves some sessions that are held for minutes
			many := leases.with(env{"SOJOURN_WORKER_MAX_SESSIONS": "1000"})
			p.begin("B", many.with(env{"SOJOURN_WORKER_CONCURRENCY": "2"})) // so that A acquires most of the sessions
			// Another test covers workflow tasks that A runs while it is frozen.
			p.begin("A", many.with(env{activitiesOnly: "1", "SOJOURN_WORKER_CONCURRENCY": "64"}))
			given, late := 0, 0
			for n := range times {
				g, l := p.freeze("A", n, each)
				given, late = given+g, late+l
			}
			t.Logf("%d sessions, %d attempts lost with A, %d late begins", times*each, given, late)
			if given == 0 {
				t.Error("A was given nothing that it lost: nothing was shown")
			}
		})
	}
}

// freeze stops a worker while steps of sessions become ready, some of which the worker owns, until another worker has
// completed all of them. Then it continues the worker. It returns how many attempts were lost, and how many of these
// had begun.
func (p *plant) freeze(id string, round, sessions int) (given, late int) {
	p.t.Helper()
	name := func(i int) string { return fmt.Sprintf("frozen-%d-%d", round, i) }
	runs := make([]string, sessions)
	each := func(do func(i int)) {
		var all sync.WaitGroup
		for i := range sessions {
			all.Go(func() { do(i) })
		}
		all.Wait()
	}
	each(func(i int) { runs[i] = p.client.start(name(i), "killed.two", name(i)).RunID })
	each(func(i int) { p.waits(name(i), runs[i]) })
	worker := p.node[id]
	stood := worker.err.count(`"message":"process was paused`)
	if err := worker.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	each(func(i int) { p.signal(name(i)) })
	histories := make([][]history.Event, sessions)
	each(func(i int) { histories[i] = p.client.completed(name(i), runs[i]) })
	if err := worker.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		p.t.Fatal(err)
	}
	until(p.t, id+" notices that it stood still", func() bool {
		return worker.err.count(`"message":"process was paused`) > stood
	})
	probes := 0
	until(p.t, id+" works again", func() bool { // data in its buffer was read before this arrived
		probes++
		probe := fmt.Sprint(name(sessions), "-", probes)
		run := p.client.start(probe, "killed.one.word", probe).RunID
		return result[string](p, p.client.completed(probe, run)) == id
	})
	lost := map[string]history.Lost{}
	for i, events := range histories {
		for _, e := range events {
			d, ok := e.Data.(*history.ActivityCompleted)
			if !ok {
				continue
			}
			for _, l := range d.Lost {
				if l.Worker == id {
					given++
				}
				lost[fmt.Sprintf("%s-%d-%d", runs[i], d.Sequence, l.Delivery)] = l
			}
		}
	}
	for _, l := range ledger(p.t, p.ledger) {
		if end, ok := lost[l.AttemptID]; ok && !strings.HasSuffix(l.What, " done") && l.At.After(end.At.Time) {
			late++
			p.t.Errorf(
				"attempt %s began on %s at %s, and was lost at %s (%s)", l.AttemptID, l.Worker, l.At, end.At, cmp.Or(end.Why, "?"),
			)
		}
	}
	return given, late
}
