package invariants

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// schedules returns the number of random histories of a test: SOJOURN_TEST_SCHEDULES, default n.
func schedules(t *testing.T, n int) int {
	if more := os.Getenv("SOJOURN_TEST_SCHEDULES"); more != "" {
		asked, err := strconv.Atoi(more)
		if err != nil {
			t.Fatalf("SOJOURN_TEST_SCHEDULES: %v", err)
		}
		n = asked
	}
	return n
}

// seed returns the random seed: SOJOURN_TEST_SEED, by default a different one for each run.
func seed(t *testing.T) uint64 {
	text := os.Getenv("SOJOURN_TEST_SEED")
	if text == "" {
		return uint64(time.Now().UnixMicro()) % 1e9 * 1000
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("SOJOURN_TEST_SEED: %v", err)
	}
	return n
}

// patience is the maximum time of the search for an order of one history; most searches take milliseconds.
const patience = 5 * time.Minute

// tally counts the calls in the histories, so that tests without relevant calls fail.
type tally struct {
	mu        sync.Mutex // guards the fields below
	done      map[kind]int
	refused   int
	moves     int // acquisitions of a session that another worker had held
	falls     int // soft sessions that another worker acquired by the fallback while the lease was valid
	soft      int // schedules of soft sessions
	held      int // polls that the release gate blocked, in schedules with operators
	gates     int // schedules with operators
	resumes   int // schedules with workers that resume sessions
	delivered int // tasks returned because their process had dropped the state of their epoch
}

func (c *tally) add(s *schedule, history []porcupine.Operation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.operated {
		c.gates, c.held = c.gates+1, c.held+s.held
	}
	if s.resumes {
		c.resumes, c.delivered = c.resumes+1, c.delivered+s.returned
	}
	if c.done == nil {
		c.done = map[kind]int{}
	}
	last, until := map[string]string{}, map[string]int64{}
	if len(history) > 0 && history[0].Input.(call).fallback > 0 {
		c.soft++
	}
	for _, o := range history {
		in, out := o.Input.(call), o.Output.(reply)
		if !out.ok {
			c.refused++
			continue
		}
		c.done[in.kind]++
		if in.kind == claim {
			if was := last[in.session]; was != "" && was != in.worker {
				c.moves++
				if out.after < until[in.session] {
					c.falls++
				}
			}
			last[in.session] = in.worker
		}
		if in.kind == release || in.kind == closing || in.kind == giveUp {
			until[in.session] = 0
		} else if in.worker == last[in.session] {
			until[in.session] = max(until[in.session], out.until)
		}
	}
}

// check compares a history with the model and the invariants.
func check(t *testing.T, s *schedule, history []porcupine.Operation) {
	t.Helper()
	result, info := porcupine.CheckOperationsVerbose(model, history, patience)
	if result != porcupine.Ok {
		path := filepath.Join(t.ArtifactDir(), fmt.Sprintf("ownership-%d.html", s.seed))
		if err := porcupine.VisualizePath(model, info, path); err != nil {
			t.Error(err)
		}
		t.Errorf("%s: ownership is not linearizable (%s), see %s\n%s", s, result, path, stuck(history))
	}
	if err := overCap(history, s.most); err != nil {
		t.Errorf("%s: %v", s, err)
	}
	if err := givenWhileDrained(history, s.drained); err != nil {
		t.Errorf("%s: %v", s, err)
	}
	if s.limit > 0 {
		if err := overFull(history, s.ends, s.limit); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// givenWhileDrained returns a task that an app dispatched to a worker after this app had confirmed the worker's drain.
func givenWhileDrained(history []porcupine.Operation, list []drained) error {
	for _, o := range history {
		c := o.Input.(call)
		for _, d := range list {
			if (c.kind == claim || c.kind == fetch) && c.task != "" && c.worker == d.worker && c.app == d.app &&
				o.Call > d.from && o.Return < d.to {
				return fmt.Errorf("%s: its worker is drained", model.DescribeOperation(c, o.Output))
			}
		}
	}
	return nil
}

// stuck returns the history of the first session that violates the model: the longest valid prefix, and the calls that
// do not fit after it.
func stuck(history []porcupine.Operation) string {
	for _, part := range model.Partition(history) {
		alone := model
		alone.Partition = nil
		result, info := porcupine.CheckOperationsVerbose(alone, part, patience)
		if result == porcupine.Ok {
			continue
		}
		var longest []porcupine.Operation
		for _, l := range info.PartialLinearizationsOperations()[0] {
			if len(l) > len(longest) {
				longest = l
			}
		}
		var text strings.Builder
		state := ownership{}
		for i, o := range longest {
			_, state = law(state, o.Input.(call), o.Output.(reply))
			if i > len(longest)-8 {
				fmt.Fprintf(&text, "  %s\n      %s\n", model.DescribeOperation(o.Input, o.Output), model.DescribeState(state))
			}
		}
		text.WriteString("  then none of\n")
		rest := slices.DeleteFunc(slices.Clone(part), func(o porcupine.Operation) bool { return slices.Contains(longest, o) })
		slices.SortFunc(rest, func(x, y porcupine.Operation) int { return cmp.Compare(x.Call, y.Call) })
		for _, o := range rest[:min(4, len(rest))] {
			fmt.Fprintf(&text, "  %s\n", model.DescribeOperation(o.Input, o.Output))
		}
		return text.String()
	}
	return ""
}

// play runs n schedules, parallel of them at a time, in the harnesses that in returns.
func play(t *testing.T, n, parallel int, in func() *harness, change ...func(*schedule)) {
	first := seed(t)
	t.Logf("seeds from %d", first)
	var count tally
	next := make(chan uint64, n)
	for i := range n {
		next <- first + uint64(i)
	}
	close(next)
	var wait sync.WaitGroup
	judge := func(s *schedule, history []porcupine.Operation, err error) {
		if err != nil {
			t.Errorf("%s: %v", s, err)
		}
		check(t, s, history)
		count.add(s, history)
	}
	for range parallel {
		wait.Go(func() {
			for seed := range next {
				s := newSchedule(in(), seed)
				for _, c := range change {
					c(s)
				}
				history, err := s.run()
				judge(s, history, err)
			}
		})
	}
	wait.Go(func() {
		s := newSchedule(in(), first+uint64(n))
		history, err := s.fall()
		judge(s, history, err)
	})
	wait.Go(func() {
		s := newSchedule(in(), first+uint64(n)+1)
		history, err := s.resumeAfterCut()
		judge(s, history, err)
	})
	wait.Wait()
	t.Logf("%d schedules: %v, %d refused, %d sessions moved to the other worker; %d soft, %d fell back to the other worker;"+
		" the release gate held %d polls; %d with workers that resume sessions, which handed back %d tasks", n, count.done,
		count.refused, count.moves, count.soft, count.falls, count.held, count.resumes, count.delivered)
	if count.held < count.gates {
		t.Errorf("the release gate held only %d polls in %d schedules", count.held, count.gates)
	}
	for _, k := range []kind{register, claim, fetch, renew, resume, release, closing, report} {
		// The numbers depend on the speed of the machine, because a schedule ends after a given time. With operators,
		// few sessions remain open at its end.
		if count.done[k] == 0 && (k != closing || count.gates == 0) {
			t.Errorf("%d schedules had no %s", n, k)
		}
	}
	// One schedule certainly has a fallback. On a slow machine the leases of the other schedules may end before.
	if count.falls == 0 {
		t.Errorf("none of %d schedules of soft sessions had one that fell back to another worker", count.soft)
	}
	if count.moves < n/20 || count.refused < n/20 {
		t.Errorf("%d schedules moved only %d sessions and refused only %d verbs", n, count.moves, count.refused)
	}
}

func TestASessionHasOneOwnerAtATimeWithTwoApps(t *testing.T) {
	w := onPostgres(t, 2)
	play(t, schedules(t, 100), 16, func() *harness { return w })
}

// The same invariants hold while operators drain workers and groups and route the queue from group to group at both
// apps, and processes register with the release of only one app.
func TestASessionHasOneOwnerAtATimeUnderOperators(t *testing.T) {
	operated := func(s *schedule) { s.operated = true }
	t.Run("postgres", func(t *testing.T) {
		w := onPostgres(t, 2)
		play(t, schedules(t, 48), 16, func() *harness { return w }, operated)
	})
	t.Run("sqlite", func(t *testing.T) {
		play(t, schedules(t, 48), 4, func() *harness { return onSQLite(t) }, operated)
	})
}

func TestASessionHasOneOwnerAtATimeWhileTheClockJumps(t *testing.T) {
	play(t, schedules(t, 60), 4, func() *harness { return onSQLite(t) })
}
