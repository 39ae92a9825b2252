package worker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

// control sends a request of an operator to the app.
func control(t *testing.T, a *apptest.App, method, path, body string) {
	t.Helper()
	in, err := http.NewRequestWithContext(t.Context(), method, a.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	in.Header.Set("Content-Type", "application/json")
	in.Header.Set("X-Durable-Workflow-Control-Plane-Version", "2")
	out, err := http.DefaultClient.Do(in)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Body.Close() }()
	if out.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", method, path, out.Status)
	}
}

// lossyCarrier makes connections that lose the first response to a release that carries a snapshot.
type lossyCarrier struct {
	link.Carrier
	sent *atomic.Int64
}

type lossyConn struct {
	link.Conn
	sent *atomic.Int64
}

func (c lossyCarrier) Dial(
	ctx context.Context, hello protocol.ChannelAuth, notices protocol.WorkerNotices,
) (link.Conn, error) {
	conn, err := c.Carrier.Dial(ctx, hello, notices)
	return lossyConn{conn, c.sent}, err
}

func (c lossyConn) ReleaseSession(
	ctx context.Context, in protocol.SessionVerb,
) (protocol.SessionResponse, error) {
	out, err := c.Conn.ReleaseSession(ctx, in)
	if in.Snapshot != nil && c.sent.Add(1) == 1 {
		return protocol.SessionResponse{}, errors.New("the response was lost")
	}
	return out, err
}

// The worker does not receive the response to the release with the snapshot. The app has stored the snapshot, so its
// file stays.
func TestALostResponseKeepsTheFileOfASnapshot(t *testing.T) {
	for _, how := range []string{"shutdown", "migration"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			a := apptest.Start(t, apptest.Options{})
			c := counting{dir: filepath.Join(t.TempDir(), "shared"), padding: 3 << 20}
			var sent atomic.Int64
			stop := c.start(t, "A", lossyCarrier{ways["socket"](a), &sent})
			if got := count(t, a); got != "A 1" {
				t.Fatal(got)
			}
			if how == "shutdown" {
				stop()
			} else {
				migrate(t, a, "")
				eventually(t, "A repeats the release", func() bool { return sent.Load() == 2 })
				stop()
			}
			c.start(t, "B", ways["socket"](a))
			if got := count(t, a); got != "B 2" || sent.Load() == 0 {
				t.Errorf("%s after %d releases; %q", got, sent.Load(), timelineOf(t, a))
			}
		})
	}
}

// A drain is withdrawn while the owner takes a snapshot, and an activity runs before the next drain: the first snapshot
// lacks its effects and is discarded.
func TestASnapshotOfAnEarlierRequestIsDiscarded(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	var calls atomic.Int64
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	c := counting{
		take: func(string) error {
			if calls.Add(1) == 1 {
				<-gate
			}
			return nil
		},
		options: func(o *worker.Options) { o.Sessions.SnapshotTimeout = protocol.MaxSnapshotTimeout },
	}
	c.start(t, "A", ways["socket"](a))
	t.Cleanup(open) // before the worker ends
	if got := count(t, a); got != "A 1" {
		t.Fatal(got)
	}
	control(t, a, "POST", "/api/sojourn/fleet/drain", `{"worker_id":"A"}`)
	eventually(t, "A takes a snapshot", func() bool { return calls.Load() == 1 })
	control(t, a, "POST", "/api/sojourn/fleet/resume", `{"worker_id":"A"}`)
	if got := count(t, a); got != "A 2" {
		t.Fatal(got)
	}
	requested := func() (n int) {
		for _, line := range timelineOf(t, a) {
			if strings.HasPrefix(line, protocol.SessionSnapshotRequested+" ") {
				n++
			}
		}
		return n
	}
	before := requested()
	control(t, a, "POST", "/api/sojourn/fleet/drain", `{"worker_id":"A"}`)
	eventually(t, "the second request", func() bool { return requested() > before })
	open()
	c.start(t, "B", ways["socket"](a))
	if got := count(t, a); got != "B 3" {
		t.Errorf("%s; %q", got, timelineOf(t, a))
	}
}

// OnHandOver that never returns delays the end of its worker only until the timeout of snapshots.
func TestAWorkerEndsAlthoughOnHandOverHangs(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	gate := make(chan struct{})
	t.Cleanup(func() { close(gate) })
	c := counting{
		take:    func(string) error { <-gate; return nil },
		options: func(o *worker.Options) { o.Sessions.SnapshotTimeout = time.Second },
	}
	stop := c.start(t, "A", ways["socket"](a))
	if got := count(t, a); got != "A 1" {
		t.Fatal(got)
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	select {
	case <-stopped:
	case <-time.After(ceiling):
		t.Fatal("the worker does not end")
	}
}

// The owner is connected to one app. The other app drains the owner or moves the session, and ends after its request
// for the snapshot: the first app continues.
func TestTwoAppsMoveTheStateOfASession(t *testing.T) {
	for _, how := range []string{"drain", "migration", "drain, then the app ends", "migration, then the app ends"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			database := apptest.Postgres(t)
			first := apptest.Start(t, apptest.Options{Database: database})
			second := apptest.Start(t, apptest.Options{Database: database})
			verb, ends := strings.CutSuffix(how, ", then the app ends")
			gate := make(chan struct{})
			var calls atomic.Int64
			c := counting{take: func(string) error {
				calls.Add(1)
				<-gate
				return nil
			}}
			c.start(t, "A", ways["socket"](first))
			if got := count(t, first); got != "A 1" {
				t.Fatal(got)
			}
			c.start(t, "B", ways["socket"](first))
			if verb == "drain" {
				control(t, second, "POST", "/api/sojourn/fleet/drain", `{"worker_id":"A"}`)
			} else {
				migrate(t, second, "B")
			}
			eventually(t, "A takes a snapshot", func() bool { return calls.Load() == 1 })
			if ends {
				second.Stop()
			}
			close(gate)
			if got := count(t, first); got != "B 2" {
				t.Errorf("%s; %q", got, timelineOf(t, first))
			}
		})
	}
}

// storedPayloads returns the number of payloads of snapshots in a database. The app does not count this read.
func storedPayloads(t *testing.T, database string) (n int) {
	t.Helper()
	driver, source := "pgx", database
	if path, ok := strings.CutPrefix(database, "sqlite:"); ok {
		driver, source = "sqlite", path
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM session_snapshots").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// The payload of a snapshot is removed when its age ends, and with its session.
func TestPayloadsOfSnapshotsAreRemoved(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		for _, age := range []time.Duration{2 * time.Second, time.Hour} {
			id := fmt.Sprint("A", age)
			c := counting{options: func(o *worker.Options) { o.Sessions.SnapshotMaxAge = age }}
			stop := c.start(t, id, ways["socket"](a))
			count(t, a)
			stop()
			if n := storedPayloads(t, database); n != 1 && age == time.Hour {
				t.Errorf("%d payloads after the release; %q", n, timelineOf(t, a))
			}
			if age == time.Hour {
				if _, err := a.Broker().OperateSession(t.Context(), protocol.SessionOperation{
					Namespace: "default", SessionID: "s", Verb: "close", Identity: "op",
				}); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "the payload is removed", func() bool { return storedPayloads(t, database) == 0 })
		}
	})
}
