package sessiontest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// scripted is a case of a file in testdata: "== NAME what it shows", then one step per line. testdata/README.md
// describes the steps.
type scripted struct {
	name, title, at string
	steps           []string
}

func readScripts(t *testing.T, glob string) (all []scripted) {
	t.Helper()
	files, err := filepath.Glob(glob)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in %s: %v", glob, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(raw), "\n") {
			line, _, _ = strings.Cut(line, "#")
			line = strings.TrimSpace(line)
			head, is := strings.CutPrefix(line, "== ")
			switch {
			case line == "":
			case is:
				name, title, _ := strings.Cut(head, " ")
				all = append(all, scripted{name: name, title: title, at: fmt.Sprintf("%s:%d", file, n+1)})
			default:
				c := &all[len(all)-1]
				c.steps = append(c.steps, fmt.Sprintf("%d %s", n+1, line))
			}
		}
	}
	return all
}

// The store's cases, on SQLite in virtual time. On PostgreSQL the steps that wait advance the store's clock, and all
// times are multiplied, so that the duration of the calls does not matter.
func TestStoreCases(t *testing.T) {
	all := readScripts(t, "testdata/*.txt")
	t.Run("sqlite", func(t *testing.T) {
		for _, c := range all {
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newScript(t, serverOptions{}, "default", 1)
					w.pass = func(d time.Duration) { time.Sleep(d); synctest.Wait() }
					w.run(c)
				})
			})
		}
	})
	t.Run("postgres", func(t *testing.T) {
		database := apptest.Postgres(t)
		for i, c := range all {
			t.Run(c.name, func(t *testing.T) {
				scale := time.Duration(100)
				// The times of this case are in seconds and must not be scaled, like its leases.
				if strings.Contains(c.at, "soft") {
					scale = 10
				}
				// time by which the script advanced the clock; the real time is added, because a stopped clock would
				// fall behind the database
				var passed time.Duration
				w := newScript(t, serverOptions{
					Database: database, ManualTime: true, Shift: func() time.Duration { return passed },
				}, fmt.Sprintf("case-%d", i), scale)
				w.tolerance = 3 * time.Second
				w.pass = func(d time.Duration) { passed += d; w.sweep() }
				w.run(c)
			})
		}
	})
}

// script runs the steps of one case.
type script struct {
	*testServer
	t         *testing.T
	namespace string
	scale     time.Duration // factor of every time in the script
	tolerance time.Duration // 0: times are exact
	pass      func(time.Duration)
	line      string

	runs  int
	tasks map[string]*protocol.ActivityTask  // last delivery by item
	asked map[string]protocol.SessionOptions // by session: the options of the last item with options
	held  map[string]map[string]int64        // worker → session → its last epoch there
	top   map[string]int64                   // session → highest epoch ever
	// the store's time at the start of the script, in microseconds: no epoch is lower
	began int64
}

func newScript(t *testing.T, o serverOptions, namespace string, scale time.Duration) *script {
	w := &script{
		testServer: open(t, o), t: t, namespace: namespace, scale: scale, tasks: map[string]*protocol.ActivityTask{},
		asked: map[string]protocol.SessionOptions{},
		held:  map[string]map[string]int64{}, top: map[string]int64{},
	}
	if namespace != "default" {
		_, err := w.CreateNamespace(t.Context(), protocol.NamespaceRequest{Name: namespace})
		w.must(err)
	}
	_, err := w.Register(t.Context(), protocol.RegisterRequest{
		Namespace: namespace, WorkerID: "flow", Incarnation: "flow-1", TaskQueue: "default", WorkflowTypes: []string{"wf"},
	})
	w.must(err)
	return w
}

func (w *script) fatal(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("line %s: %s", w.line, fmt.Sprintf(format, args...))
}

func (w *script) must(err error) {
	w.t.Helper()
	if err != nil {
		w.fatal("%v", err)
	}
}

func (w *script) run(c scripted) {
	w.t.Logf("%s: %s", c.at, c.title)
	w.began = w.now().Add(-w.tolerance).UnixMicro()
	for _, w.line = range c.steps {
		_, step, _ := strings.Cut(w.line, " ")
		if rest, ok := strings.CutPrefix(step, "exact "); ok {
			if w.tolerance > 0 {
				return // the other checks need times with microseconds
			}
			step = rest
		}
		w.step(strings.Fields(step))
	}
}

// step runs one step.
func (w *script) step(f []string) {
	w.t.Helper()
	switch {
	case f[0] == "worker":
		w.worker(f[1], options(f[2:]))
	case f[0] == "schedule":
		w.schedule(f[1:])
	case f[0] == "wait":
		w.pass(w.duration(f[1]))
	case f[0] == "row":
		w.row(f[1], options(f[2:]))
	case f[0] == "rows":
		w.equal("rows", len(w.rows()), f[1])
	case f[0] == "cleanup":
		w.equal("removed", w.cleanup(), f[1])
	case f[0] == "timeline":
		w.timeline(f[1], f[2:])
	case f[0] == "attempts":
		w.attempts(f[1], f[2])
	case len(f) < 3:
		w.fatal("no such step")
	case f[1] == "fetches":
		w.fetch(f[0], f[2:])
	case f[1] == "completes":
		w.outcome(f[0], f[2], f[3:], func(i *protocol.CompleteItem) { i.Result, _ = payload.Encode("done") })
	case f[1] == "fails":
		w.outcome(f[0], f[2], f[3:], func(i *protocol.CompleteItem) {
			i.Failure = &protocol.Failure{Message: "no", Type: "no"}
		})
	case f[1] == "returns":
		w.outcome(f[0], f[2], f[3:], func(i *protocol.CompleteItem) { i.Returned = "handed_back" })
	case f[1] == "stops": // the worker stops during the attempt
		w.outcome(f[0], f[2], f[3:], func(i *protocol.CompleteItem) { i.Returned, i.Began = "draining", new(true) })
	case f[1] == "beats":
		w.beat(f[0], f[2])
	case f[1] == "renews":
		w.renew(f[0], f[2:])
	case f[1] == "heartbeats", f[1] == "closes", f[1] == "releases", f[1] == "drains", f[1] == "creates":
		w.verb(f[0], f[1], f[2], f[3:])
	default:
		w.fatal("no such step")
	}
}

func options(fields []string) map[string]string {
	o := map[string]string{}
	for _, f := range fields {
		k, v, _ := strings.Cut(f, "=")
		o[k] = v
	}
	return o
}

func (w *script) duration(s string) time.Duration {
	w.t.Helper()
	d, err := time.ParseDuration(s)
	w.must(err)
	return d * w.scale
}

func (w *script) equal(what string, got int, want string) {
	w.t.Helper()
	if strconv.Itoa(got) != want {
		w.fatal("%s: got %d, want %s", what, got, want)
	}
}

// worker registers a worker, or another process with the same name.
func (w *script) worker(name string, o map[string]string) {
	w.t.Helper()
	value := func(key string, standard string) time.Duration {
		if s, ok := o[key]; ok {
			standard = s
		}
		return w.duration(standard)
	}
	sessions := 10
	if s, ok := o["sessions"]; ok {
		n, err := strconv.Atoi(s)
		w.must(err)
		sessions = n
	}
	incarnation := name + "-1"
	if s, ok := o["process"]; ok {
		incarnation = name + "-" + s
	}
	_, err := w.Register(w.t.Context(), protocol.RegisterRequest{
		Namespace: w.namespace, WorkerID: name, Incarnation: incarnation, TaskQueue: "default", AnyActivity: true,
		Capabilities: []string{broker.CapSessions}, MaxSessions: &sessions,
		AttemptLease: int64(value("attempts", "120s") / time.Second),
		Session: &protocol.SessionSettings{
			LeaseMS: value("lease", "30s").Milliseconds(), IdleMS: value("idle", "300s").Milliseconds(),
		},
	})
	w.must(err)
}

// schedule completes a workflow task with commands for items: ITEM or ITEM:SESSION, among options.
func (w *script) schedule(fields []string) {
	w.t.Helper()
	var commands []protocol.Command
	o := options(fields)
	args, err := payload.EncodeArgs("x")
	w.must(err)
	for _, f := range fields {
		if strings.Contains(f, "=") {
			continue
		}
		item, session, _ := strings.Cut(f, ":")
		c := protocol.Command{Type: protocol.ScheduleActivity, ActivityType: item, Arguments: args, SessionID: session}
		if most, ok := o["most"]; ok && session != "" {
			n, err := strconv.Atoi(most)
			w.must(err)
			c.SessionID, c.WorkerSession = "", &protocol.SessionOptions{SessionID: session, MaxActivities: protocol.Count(n)}
		}
		if lease, ok := o["lease"]; ok && c.WorkerSession != nil {
			c.WorkerSession.Lease = protocol.Count(w.duration(lease) / time.Second)
		}
		if wait, ok := o["soft"]; ok && session != "" {
			affinity, after := &c.Affinity, &c.FallbackAfter
			if c.WorkerSession != nil {
				affinity, after = &c.WorkerSession.Affinity, &c.WorkerSession.FallbackAfter
			}
			*affinity, *after = "soft", int64(w.duration(wait)/time.Second)
		}
		if c.WorkerSession != nil {
			w.asked[session] = *c.WorkerSession
		}
		if wait, ok := o["retry"]; ok {
			w.must(json.Unmarshal(
				fmt.Appendf(nil, `{"retry_policy": {"max_attempts": 2, "backoff_seconds": [%d]}}`, w.duration(wait)/time.Second),
				&c,
			))
		}
		commands = append(commands, c)
	}
	w.runs++
	_, err = w.Start(
		w.t.Context(),
		protocol.StartRequest{Namespace: w.namespace, WorkflowID: fmt.Sprintf("w%d", w.runs), WorkflowType: "wf"},
	)
	w.must(err)
	task := w.poll("flow", protocol.KindWorkflow, 1)
	if len(task) != 1 {
		w.fatal("no workflow task")
	}
	t := task[0].Workflow
	if a := w.complete(protocol.CompleteItem{
		Kind: protocol.KindWorkflow, TaskID: t.TaskID, Owner: t.LeaseOwner, Attempt: t.Attempt, Commands: commands,
	}); a.Err != nil {
		w.fatal("%v", a.Err)
	}
}

func (w *script) poll(worker string, kind protocol.TaskKind, most int) []protocol.Task {
	w.t.Helper()
	none := int64(0)
	a, err := w.Poll(w.t.Context(), protocol.PollRequest{
		Namespace: w.namespace, WorkerID: worker, Kinds: []protocol.TaskKind{kind}, Timeout: &none, Max: most,
	})
	w.must(err)
	return a.Tasks
}

func (w *script) complete(item protocol.CompleteItem) protocol.CompleteResponse {
	w.t.Helper()
	item.Namespace = w.namespace
	a, err := w.Complete(w.t.Context(), protocol.CompleteRequest{Items: []protocol.CompleteItem{item}})
	w.must(err)
	return a.Items[0]
}

// fetch polls for a worker and compares the tasks: the expected items, or none, and options that all must have. An
// epoch of a new acquisition must be higher than all before.
func (w *script) fetch(worker string, fields []string) {
	w.t.Helper()
	o := options(fields)
	var want, got []string
	for _, f := range fields {
		if !strings.Contains(f, "=") && f != "nothing" {
			want = append(want, f)
		}
	}
	ask := max(1, len(want))
	if n, ok := o["ask"]; ok {
		var err error
		ask, err = strconv.Atoi(n)
		w.must(err)
	}
	for _, t := range w.poll(worker, protocol.KindActivity, ask) {
		a := t.Activity
		item := a.ActivityType
		got = append(got, item)
		if last := w.tasks[item]; last != nil && last.AttemptID == a.AttemptID {
			w.fatal("item %s: delivery %s came twice", item, a.AttemptID)
		}
		w.tasks[item] = a
		if n, ok := o["attempt"]; ok {
			w.equal("attempt of "+item, a.Attempt, n)
		}
		session := "none"
		if s := a.Session; s != nil {
			session = s.SessionID
			if s.IsNew != (s.Epoch > w.top[session]) || s.Epoch < w.top[session] || s.Epoch < w.began {
				w.fatal("session %s: epoch %d, new %t, after epoch %d", session, s.Epoch, s.IsNew, w.top[session])
			}
			w.top[session] = s.Epoch
			if w.held[worker] == nil {
				w.held[worker] = map[string]int64{}
			}
			w.held[worker][session] = s.Epoch
		}
		if id, ok := o["session"]; ok && id != session {
			w.fatal("item %s: got session %s, want %s", item, session, id)
		}
	}
	if !slices.Equal(got, want) {
		w.fatal("%s got %q, want %q", worker, got, want)
	}
}

func (w *script) task(worker, item string) *protocol.ActivityTask {
	w.t.Helper()
	t := w.tasks[item]
	if t == nil || t.LeaseOwner != worker {
		w.fatal("%s never had item %s", worker, item)
	}
	return t
}

// outcome reports an outcome of the last delivery of an item; with "refused=REASON" it must be refused.
func (w *script) outcome(worker, item string, fields []string, fill func(*protocol.CompleteItem)) {
	w.t.Helper()
	t := w.task(worker, item)
	in := protocol.CompleteItem{Kind: protocol.KindActivity, TaskID: t.TaskID, Owner: worker, AttemptID: t.AttemptID}
	fill(&in)
	w.refused(w.complete(in).Err, fields)
}

func (w *script) refused(err error, fields []string) {
	w.t.Helper()
	want := protocol.Reason(options(fields)["refused"])
	if want == "" {
		w.must(err)
	} else if protocol.ReasonOf(err) != want {
		w.fatal("got %v, want a refusal %s", err, want)
	}
}

// beat renews the lease of an attempt.
func (w *script) beat(worker, item string) {
	w.t.Helper()
	t := w.task(worker, item)
	a, err := w.HeartbeatTask(w.t.Context(), protocol.HeartbeatRequest{
		Namespace: w.namespace, Kind: protocol.KindActivity, TaskID: t.TaskID, Owner: worker, AttemptID: t.AttemptID,
	})
	w.must(err)
	if !a.Renewed {
		w.fatal("the attempt was not renewed: %+v", a)
	}
}

// renew sends one renewal for all or the named sessions that the worker believes to hold; the last field is the number
// of sessions that it still holds.
func (w *script) renew(worker string, fields []string) {
	w.t.Helper()
	names := fields[:len(fields)-1]
	in := protocol.WorkerHeartbeat{Namespace: w.namespace, WorkerID: worker}
	for id, epoch := range w.held[worker] {
		if len(names) == 0 || slices.Contains(names, id) {
			in.Sessions = append(in.Sessions, protocol.SessionRenewal{SessionID: id, Epoch: epoch})
		}
	}
	a, err := w.WorkerHeartbeat(w.t.Context(), in)
	w.must(err)
	n := 0
	for _, s := range a.Sessions {
		if s.Held {
			n++
		}
	}
	w.equal("renewed", n, fields[len(fields)-1])
}

// verb sends a request for the session under the worker's last epoch.
func (w *script) verb(worker, verb, session string, fields []string) {
	w.t.Helper()
	in := protocol.SessionVerb{
		Namespace: w.namespace, WorkerID: worker, SessionID: session, Epoch: w.held[worker][session],
	}
	var err error
	switch verb {
	case "heartbeats":
		_, err = w.HeartbeatSession(w.t.Context(), in)
	case "closes":
		_, err = w.CloseSession(w.t.Context(), in)
	case "releases":
		_, err = w.ReleaseSession(w.t.Context(), in)
	case "creates":
		_, err = w.CreateSession(w.t.Context(), protocol.SessionCreate{
			Namespace: w.namespace, WorkerID: worker, Incarnation: worker + "-1", SessionOptions: w.asked[session],
		})
	case "drains":
		_, err = w.OperateSession(
			w.t.Context(),
			protocol.SessionOperation{Namespace: w.namespace, SessionID: session, Verb: "migrate", Identity: "test"},
		)
	}
	w.refused(err, fields)
}

func (w *script) view(fn func(store.Reader) error) {
	w.t.Helper()
	w.must(w.store.View(w.t.Context(), fn))
}

func (w *script) now() time.Time {
	w.t.Helper()
	now, err := w.store.Now(w.t.Context())
	w.must(err)
	return now
}

// row compares a session's row: owner, status, active; lease and last as times from now.
func (w *script) row(id string, o map[string]string) {
	w.t.Helper()
	var s engine.Session
	var err error
	w.view(func(r store.Reader) error {
		s, err = r.Session(w.t.Context(), engine.SessionKey{Namespace: w.namespace, ID: id})
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return err
	})
	if _, none := o["gone"]; none != (err != nil) {
		w.fatal("row of %s: %+v, %v", id, s, err)
	}
	now := w.now()
	for k, want := range o {
		got := ""
		switch k {
		case "gone":
			continue
		case "owner":
			got = s.Owner
		case "status":
			got = string(s.Status)
		case "active":
			got = strconv.Itoa(s.Active)
		case "ready":
			got = strconv.Itoa(s.Ready)
		case "lease", "last":
			at := s.LeaseUntil.Time
			if k == "last" {
				at = s.LastActivity.Time
			}
			if off := at.Sub(now) - w.duration(want); off.Abs() > w.tolerance {
				w.fatal("%s of %s: %s from now, want %s", k, id, at.Sub(now), w.duration(want))
			}
			continue
		default:
			w.fatal("no such column %s", k)
		}
		if got != want {
			w.fatal("%s of %s: got %s, want %s", k, id, got, want)
		}
	}
}

// timeline compares the timeline of a session.
func (w *script) timeline(id string, want []string) {
	w.t.Helper()
	v, err := w.Session(w.t.Context(), w.namespace, id)
	w.must(err)
	var got []string
	for _, e := range v.Timeline {
		if e.What != "renewed" {
			got = append(got, e.What+":"+e.Worker+":"+e.Why)
		}
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		w.fatal("timeline of %s: got %q, want %q", id, got, want)
	}
}

func (w *script) rows() (list []engine.Session) {
	w.t.Helper()
	w.view(func(r store.Reader) (err error) {
		list, err = r.Sessions(w.t.Context(), store.SessionQuery{Namespace: w.namespace, Limit: 1000})
		return err
	})
	return list
}

// attempts compares the number of times that an item was leased.
func (w *script) attempts(item, want string) {
	w.t.Helper()
	n := -1
	for _, s := range w.rows() {
		w.view(func(r store.Reader) error {
			list, err := r.SessionTasks(w.t.Context(), s.Key(), 100)
			for _, a := range list {
				if a.Type == item {
					n = a.Attempt
				}
			}
			return err
		})
	}
	w.equal("attempts of "+item, n, want)
}

// cleanup deletes sessions that may be deleted, and returns their number.
func (w *script) cleanup() int {
	w.t.Helper()
	now, before := w.now(), len(w.rows())
	w.view(func(r store.Reader) error {
		keys, err := r.Removable(w.t.Context(), now, now.Add(-time.Hour), 1000)
		if err != nil {
			return err
		}
		return w.CleanUp(w.t.Context(), keys)
	})
	return before - len(w.rows())
}

// sweep runs the due work like a sweeper.
func (w *script) sweep() {
	w.t.Helper()
	for range 10 {
		var due []store.Due
		now := w.now()
		w.view(func(r store.Reader) (err error) { due, err = r.Due(w.t.Context(), now, 1000); return err })
		for _, d := range due {
			w.must(w.Due(w.t.Context(), d))
		}
		if len(due) == 0 {
			return
		}
	}
}
