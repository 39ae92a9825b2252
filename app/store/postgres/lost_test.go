package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/storetest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A server that replaces a lost one may reuse the lost server's transaction IDs, so cached versions are dropped.
func TestALostConnectionDropsCachedVersions(t *testing.T) {
	url := database(t)
	s, err := postgres.Open(t.Context(), url, sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := &storetest.Fixture{T: t, S: s, Queue: storetest.Queue}
	one, other := w.Start("one"), w.Start("other")
	trips := func(run string) int64 {
		before := s.Stats().RoundTrips
		w.Do(run, engine.SignalRun{Name: "x"})
		return s.Stats().RoundTrips - before
	}
	remembered := false
	for range 100 { // until the machine is fast enough for both
		trips(one)
		trips(other)
		if remembered = trips(one) == 1 && trips(other) == 1; remembered {
			break
		}
	}
	if !remembered {
		t.Fatal("a step never took a single round trip")
	}
	admin, err := pgx.Connect(t.Context(), server(t))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	const cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND application_name = 'sojourn committer'"
	if _, err := admin.Exec(t.Context(), cut, nameOf(url)); err != nil {
		t.Fatal(err)
	}
	w.Do(one, engine.SignalRun{Name: "x"}) // this call finds that the connection is lost
	if n := trips(other); n < 2 {
		t.Errorf("a step behind a lost connection took %d round trip: it has to read what there is", n)
	}
	if n := trips(other); n != 1 {
		t.Errorf("the next step took %d round trips, want 1", n)
	}
}

// Connections are terminated while changes are being committed. Every acknowledged change is stored exactly once, and
// no refused change is stored.
func TestLostConnectionsLoseNothing(t *testing.T) {
	url := database(t)
	s, err := postgres.Open(t.Context(), url, sqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := &storetest.Fixture{T: t, S: s, Queue: storetest.Queue}
	run := w.Start("flow")
	admin, err := pgx.Connect(t.Context(), server(t))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	var mu sync.Mutex
	stored := map[string]bool{}
	// called from time to time by callers, so that a slow machine has as many terminations as a fast one
	cut := func() {
		const all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND application_name = 'sojourn committer'"
		if _, err := admin.Exec(context.Background(), all, nameOf(url)); err != nil {
			t.Error(err)
		}
	}
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for k := range 60 {
				name := string(rune('a'+i)) + "-" + string(rune('A'+k%26)) + string(rune('A'+k/26))
				_, err := s.Commit(context.Background(), storetest.Step(run, engine.SignalRun{Name: name}, store.Keys{}))
				if err != nil && !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("signal %s: %v", name, err)
				}
				mu.Lock()
				if stored[name] = err == nil; len(stored)%20 == 0 {
					cut()
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	found := map[string]int{}
	for _, v := range w.Run(run).Signals.All() {
		found[v.Name]++
	}
	ok := 0
	for name, acknowledged := range stored {
		if acknowledged {
			ok++
		}
		if n := found[name]; acknowledged && n != 1 || n > 1 {
			t.Errorf("signal %s, acknowledged %v, is there %d times", name, acknowledged, n)
		}
	}
	if ok < len(stored)/2 {
		t.Errorf("only %d of %d signals were acknowledged", ok, len(stored))
	}
	w.Do(run, engine.EndRun{})
}

// recordingDispatcher is a dispatcher that records notices of other apps.
type recordingDispatcher struct {
	*storetest.Line
	changed, missed chan struct{}
}

func (e *recordingDispatcher) Backlog(string, string, protocol.TaskKind, ...store.RoutingKey) {
	nudge(e.changed)
}
func (e *recordingDispatcher) Missed() { nudge(e.missed) }

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// hears waits for a signal on either channel.
func hears(t *testing.T, what string, a, b <-chan struct{}) {
	t.Helper()
	select {
	case <-a:
	case <-b:
	case <-time.After(2 * time.Minute):
		t.Fatalf("waited in vain to hear of %s", what)
	}
}

// From its opening on, a store receives notices of other apps' commits. If it may have missed some, it reports this to
// the dispatcher; otherwise a waiting poll would find the task only at its end.
func TestCommitsOfOtherAppsAreNotifiedOrReportedAsMissed(t *testing.T) {
	url := database(t)
	open := func(o sqldb.Options) *storetest.Fixture {
		s, err := postgres.Open(t.Context(), url, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return &storetest.Fixture{T: t, S: s, Queue: storetest.Queue}
	}
	admin, err := pgx.Connect(t.Context(), server(t))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	e := &recordingDispatcher{&storetest.Line{}, make(chan struct{}, 1), make(chan struct{}, 1)}
	open(sqldb.Options{Dispatch: e})
	const listening = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND application_name = 'sojourn bus' AND query = 'LISTEN sojourn'"
	var n int
	if err := admin.QueryRow(t.Context(), listening, nameOf(url)).Scan(&n); err != nil || n != 1 {
		t.Errorf("an app that opened the database has %d connections that listen, want 1 (%v)", n, err)
	}
	other := open(sqldb.Options{})
	other.Start("before")
	hears(t, "a start", e.changed, nil)
	const cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1 AND application_name = 'sojourn bus'"
	if err := admin.QueryRow(t.Context(), cut, nameOf(url)).Scan(&n); err != nil || n != 3 {
		// a sender that never sent a notice has no connection
		t.Fatalf("%d connections were cut, want 3 (%v)", n, err)
	}
	hears(t, "its own broken connection", e.missed, nil)
	other.Start("after") // the other app's sender fails to send this notice, because its connection was terminated
	hears(t, "a start that may be lost on the way", e.changed, e.missed)
	other.Start("at last")
	hears(t, "a start", e.changed, nil)
}

func nameOf(url string) string {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		panic(err)
	}
	return cfg.Database
}

// Two apps cannot lock rows that both insert at the same time. They have to insert them in the same order; otherwise
// they deadlock until the server aborts one of them, a second later.
func TestAppsThatAddTheSameRowsDoNotCross(t *testing.T) {
	url := database(t)
	var worlds []*storetest.Fixture
	for range 2 {
		s, err := postgres.Open(t.Context(), url, sqldb.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		worlds = append(worlds, &storetest.Fixture{T: t, S: s, Queue: storetest.Queue})
	}
	for round := range 20 {
		var wg sync.WaitGroup
		for _, w := range worlds {
			wg.Go(func() {
				_, err := w.S.Commit(context.Background(), store.Transaction{Decide: func(
					_ store.Rows, now time.Time,
				) (store.Writes, error) {
					var out store.Writes
					for class := range 40 {
						id := w.ID()
						out.Runs = append(out.Runs, engine.DecideStart(engine.Start{RunID: id, Number: 1, Request: protocol.StartRequest{
							Namespace: storetest.Namespace, WorkflowID: id, WorkflowType: fmt.Sprint("type", class),
							TaskQueue:   fmt.Sprint("queue", round),
							FairnessKey: fmt.Sprint("class", class),
						}}, now))
					}
					return out, nil
				}})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	for _, w := range worlds {
		if err := w.S.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	for others, end := 1, time.Now().Add(2*time.Minute); others > 0; { // their changes are counted when they have ended
		if err := c.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"+
				" AND backend_type = 'client backend'").Scan(&others); err != nil || time.Now().After(end) {
			t.Fatalf("%d connections are left: %v", others, err)
		}
	}
	var deadlocks int
	if err := c.QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").
		Scan(&deadlocks); err != nil {
		t.Fatal(err)
	}
	if deadlocks > 0 {
		t.Errorf("the server had to end %d transactions that waited for each other", deadlocks)
	}
}

// hearsRuns is a dispatcher that records the runs in notices of other apps.
type hearsRuns struct {
	*storetest.Line
	runs chan string
}

func (h *hearsRuns) Changed(c store.Changed) {
	for _, r := range c.Runs {
		h.runs <- r.RunID
	}
}

// A store that closes sends its pending notices first, including those whose sending had begun. For an app that leaves,
// the last notice is its end, which other apps do not poll for.
func TestClosingStoreSendsItsLastNotifications(t *testing.T) {
	url := database(t)
	h := &hearsRuns{&storetest.Line{}, make(chan string, 100)}
	stays, err := postgres.Open(t.Context(), url, sqldb.Options{Dispatch: h})
	if err != nil {
		t.Fatal(err)
	}
	defer stays.Close()
	for i := range 20 {
		s, err := postgres.Open(t.Context(), url, sqldb.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w := &storetest.Fixture{T: t, S: s, Queue: storetest.Queue}
		run := w.Start(fmt.Sprint("last ", i))
		time.Sleep(time.Duration(i) * time.Millisecond / 4)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		select {
		case notified := <-h.runs:
			if notified != run {
				t.Errorf("notified of run %s, want %s", notified, run)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no notice of the last commit of app %d arrived", i)
		}
	}
}
