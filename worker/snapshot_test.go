package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// tally is the state of a session that counts its calls.
type tally struct {
	mu sync.Mutex
	n  int
}

// counting describes workers whose sessions count their calls.
type counting struct {
	prepare  bool
	padding  int                   // bytes of each snapshot besides the count
	dir      string                // snapshot directory
	take     func(id string) error // called by OnHandOver of the worker
	restores func(id string) error // called by Restore of the worker
	hold     func(session string)  // called by OnHandOver
	options  func(*worker.Options)
}

// start starts a worker with the activity "count", which increments the count of its session and returns it, with the
// worker and whether the session was new. stop shuts the worker down.
func (c counting) start(t *testing.T, id string, carrier link.Carrier) (stop func()) {
	t.Helper()
	r := worker.NewRegistry()
	call := func(f func(string) error) error {
		if f == nil {
			return nil
		}
		return f(id)
	}
	def := activity.SessionDefinition{
		SetUp: func(context.Context) (*tally, error) { return &tally{}, nil },
		OnHandOver: func(ctx context.Context, s *tally) ([]byte, error) {
			if c.hold != nil {
				c.hold(activity.SessionID(ctx))
			}
			return []byte(strconv.Itoa(s.n) + strings.Repeat(" ", c.padding)), call(c.take)
		},
		Restore: func(_ context.Context, s *tally, data []byte) (err error) {
			s.n, err = strconv.Atoi(strings.TrimSpace(string(data)))
			return errors.Join(err, call(c.restores))
		},
	}
	if c.prepare {
		def.HandOver = activity.HandOverPrepare
	}
	r.Session("tally", def)
	r.Activity("count", func(ctx context.Context) (string, error) {
		s, err := activity.State[*tally](ctx)
		if err != nil {
			return "", err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.n++
		return fmt.Sprintf("%s %d", id, s.n), nil
	})
	o := worker.Options{
		Registry: r, Release: "test", WorkerID: id, DrainTimeout: time.Minute, DataDir: t.TempDir(),
		Logger: slogbridge.Slog(apptest.Log(t)), Sessions: worker.SessionOptions{Max: 10, SnapshotDir: c.dir},
	}
	if c.options != nil {
		c.options(&o)
	}
	w, err := worker.New(workeropt.Over(carrier, o))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		end()
		if err := <-done; err != nil {
			t.Errorf("worker %s: %v", id, err)
		}
	})
	t.Cleanup(stop)
	ready, cancel := context.WithTimeout(t.Context(), ceiling)
	defer cancel()
	if err := w.WaitReady(ready); err != nil {
		t.Fatal(err)
	}
	return stop
}

// count runs the activity "count" in the session s.
func count(t *testing.T, a *apptest.App) string {
	t.Helper()
	return countIn(t, a, "s")
}

// countIn runs the activity "count" in a session.
func countIn(t *testing.T, a *apptest.App, session string) string {
	t.Helper()
	return result[string](t, end(t, a, startCount(t, a, session)))
}

// startCount starts the activity "count" in a session and returns its run.
func startCount(t *testing.T, a *apptest.App, session string) string {
	t.Helper()
	return startIn(t, a, "count", protocol.ActivityOptions{
		SessionID: session, SessionDefinition: &protocol.ActivitySession{Name: "tally", Arguments: json.RawMessage(`[]`)},
	})
}

// startIn starts an activity and returns its run.
func startIn(t *testing.T, a *apptest.App, activity string, o protocol.ActivityOptions) string {
	t.Helper()
	run, err := a.Broker().StartActivity(
		t.Context(), protocol.ActivityRequest{ActivityType: activity, ActivityOptions: o},
	)
	if err != nil {
		t.Fatal(err)
	}
	return run.RunID
}

// timelineOf returns the kinds of the session's timeline with their reasons.
func timelineOf(t *testing.T, a *apptest.App) (kinds []string) {
	t.Helper()
	page, err := a.View().SessionTimeline(t.Context(), protocol.SessionTimeline{Namespace: "default", SessionID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Timeline {
		kinds = append(kinds, e.What+" "+e.Why)
	}
	return kinds
}

func migrate(t *testing.T, a *apptest.App, to string) {
	t.Helper()
	if _, err := a.Broker().OperateSession(t.Context(), protocol.SessionOperation{
		Namespace: "default", SessionID: "s", Verb: "migrate", To: to, Identity: "op",
	}); err != nil {
		t.Fatal(err)
	}
}

// Over every transport and on both databases the count continues after a shutdown, a migration and a hand-over with
// prepared state.
func TestStateMovesWithASessionOverEveryTransport(t *testing.T) {
	for way, carrier := range ways {
		for name, prepare := range map[string]bool{"released": false, "prepared": true} {
			t.Run(way+" "+name, func(t *testing.T) {
				t.Parallel()
				apptest.Databases(t, func(t *testing.T, database string) {
					a := apptest.Start(t, apptest.Options{Database: database})
					c := counting{prepare: prepare}
					stop := c.start(t, "A", carrier(a))
					for n := 1; n <= 2; n++ {
						if got := count(t, a); got != fmt.Sprint("A ", n) {
							t.Fatal(got)
						}
					}
					c.start(t, "B", carrier(a))
					stop()
					if got := count(t, a); got != "B 3" {
						t.Errorf("after the shutdown: %s; %q", got, timelineOf(t, a))
					}
					c.start(t, "C", carrier(a))
					migrate(t, a, "C")
					if got := count(t, a); got != "C 4" {
						t.Errorf("after the migration: %s; %q", got, timelineOf(t, a))
					}
					if v, err := a.View().Session(t.Context(), "default", "s"); err != nil || v.Snapshot != nil {
						t.Errorf("the snapshot %+v remains, %v", v.Snapshot, err)
					}
				})
			})
		}
	}
}

// A snapshot above the limit of the app goes through the directory; without a directory, with a changed file, or when
// Restore fails the state is lost, and the timeline and the reason of the loss say so.
func TestALargeSnapshotIsAFile(t *testing.T) {
	for name, test := range map[string]struct {
		c    func(dir string) counting
		do   func(t *testing.T, file string)
		want string
		lost string
	}{
		"stored": {c: func(dir string) counting { return counting{dir: dir, padding: 3 << 20} }, want: "B 2"},
		"no directory": {
			c: func(string) counting { return counting{padding: 3 << 20} }, want: "B 1", lost: "snapshot_failed",
		},
		"corrupt": {
			c:    func(dir string) counting { return counting{dir: dir, padding: 3 << 20} },
			do:   func(t *testing.T, file string) { write(t, file, "7") },
			want: "B 1", lost: "restore_failed: the checksum",
		},
		"missing": {
			c: func(dir string) counting { return counting{dir: dir, padding: 3 << 20} },
			do: func(t *testing.T, file string) {
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			},
			want: "B 1", lost: "restore_failed",
		},
		"not restored": {
			c: func(dir string) counting {
				return counting{restores: func(string) error { return errors.New("broken") }}
			},
			want: "B 1", lost: "restore_failed: broken",
		},
		"not taken": {
			c:    func(dir string) counting { return counting{take: func(string) error { return errors.New("no disk") }} },
			want: "B 1", lost: "snapshot_failed: OnHandOver: no disk",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := apptest.Start(t, apptest.Options{})
			dir := filepath.Join(t.TempDir(), "shared")
			c := test.c(dir)
			stop := c.start(t, "A", ways["socket"](a))
			if got := count(t, a); got != "A 1" {
				t.Fatal(got)
			}
			stop()
			files, _ := filepath.Glob(filepath.Join(dir, "ns-default", "*"))
			if c.dir != "" && len(files) != 1 {
				t.Fatalf("files %q", files)
			}
			for _, file := range files {
				if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%v, %v", info, err)
				}
				if info, err := os.Stat(filepath.Dir(file)); err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("%v, %v", info, err)
				}
				if test.do != nil {
					test.do(t, file)
				}
			}
			c.start(t, "B", ways["socket"](a))
			if got := count(t, a); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			lost := ""
			for _, line := range timelineOf(t, a) {
				if reason, ok := strings.CutPrefix(line, protocol.SessionSnapshotLost+" "); ok {
					lost = reason
				}
			}
			if (lost == "") != (test.lost == "") || !strings.HasPrefix(lost, test.lost) {
				t.Errorf("lost because of %q, want %q; %q", lost, test.lost, timelineOf(t, a))
			}
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
