package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// traced is a carrier that records the app to which it connected last.
type traced struct {
	link.Carrier
	at *atomic.Pointer[string]
}

func (c traced) Apps() int { return c.Carrier.(interface{ Apps() int }).Apps() }

func (c traced) Dial(
	ctx context.Context, hello protocol.ChannelAuth, notices protocol.WorkerNotices,
) (link.Conn, error) {
	conn, err := c.Carrier.Dial(ctx, hello, notices)
	if err == nil {
		at := conn.String()
		c.at.Store(&at)
	}
	return conn, err
}

// Nine workers connect to three apps, and each runs an activity in a session while one app is unavailable. The apps
// have equal numbers of workers before the outage and after the workers have returned. No activity runs twice, and no
// session moves.
func TestWorkersReturnToTheirAppWithTheirSessionsAndTasks(t *testing.T) {
	outer := t // cleanup of the workers runs before the apps stop
	database := apptest.Postgres(t)
	var apps []*apptest.App
	var urls []string
	for range 3 {
		a := apptest.Start(t, apptest.Options{Database: database})
		apps, urls = append(apps, a), append(urls, a.URL())
	}
	t.Run("workers", func(t *testing.T) {
		to := func(i int) link.Carrier {
			if i%2 == 0 {
				return &link.HTTP{URLs: urls, ReturnWithin: 200 * time.Millisecond}
			}
			return &link.Socket{URLs: urls, ReturnWithin: 200 * time.Millisecond}
		}
		var ids []string // three workers choose each app
		for n, of := 0, map[string]int{}; len(ids) < 9; n++ {
			id := fmt.Sprint("w", n)
			conn, err := to(len(ids)).Dial(t.Context(), protocol.ChannelAuth{WorkerID: id, Protocol: 1}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if at := conn.String(); of[at] < 3 {
				of[at]++
				ids = append(ids, id)
			}
			conn.Close()
		}
		at := make([]atomic.Pointer[string], len(ids))
		counts := func() (n [3]int) {
			for i := range at {
				if p := at[i].Load(); p != nil {
					n[slices.Index(urls, *p)]++
				}
			}
			return n
		}
		var mu sync.Mutex
		began := map[string]int{}
		leave := make(chan struct{})
		var runs []string
		for i, id := range ids {
			start(t, apps[1], traced{to(i), &at[i]}, func(o *worker.Options) {
				o.WorkerID, o.Queues, o.Sessions.Max = id, []string{id}, 1
				o.Registry.Workflow("stay", func(ctx workflow.Context) ([]string, error) {
					s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
					if err != nil {
						return nil, err
					}
					var first, second string
					if err := s.Execute(ctx, "hold").Get(ctx, &first); err != nil {
						return nil, err
					}
					err = s.Execute(ctx, "epoch").Get(ctx, &second)
					return []string{first, second}, err
				})
				epoch := func(ctx context.Context) (string, error) {
					return fmt.Sprint(activity.Info(ctx).WorkerID, " ", activity.SessionEpoch(ctx)), nil
				}
				o.Registry.Activity("epoch", epoch)
				o.Registry.Activity("hold", func(ctx context.Context) (string, error) {
					mu.Lock()
					began[id]++
					mu.Unlock()
					<-leave
					return epoch(ctx)
				})
			})
			answer, err := apps[1].Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "stay", TaskQueue: id})
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, answer.RunID)
		}
		total := func() (n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, times := range began {
				n += times
			}
			return n
		}
		eventually(t, "each activity begins", func() bool { return total() == len(ids) })
		even := [3]int{3, 3, 3}
		if n := counts(); n != even {
			t.Errorf("the apps have %v workers", n)
		}
		address := urls[0][len("http://"):]
		apps[0].Stop()
		eventually(t, "the others take its workers", func() bool { return counts()[0] == 0 })
		apptest.Start(outer, apptest.Options{Database: database, Change: func(o *app.Options) { o.Addr = address }})
		eventually(t, "its workers return", func() bool { return counts() == even })
		close(leave)
		for i, run := range runs {
			want := ids[i] + " "
			got := result[[]string](t, end(t, apps[1], run))
			if got[0] != got[1] || got[0][:len(want)] != want {
				t.Errorf("run of %s: activities ran at %q", ids[i], got)
			}
		}
		if n := total(); n != len(ids) {
			t.Errorf("%d activities began %d times", len(ids), n)
		}
	})
}
