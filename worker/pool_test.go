package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
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
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// borrowers records which workflows have borrowed each session at a time.
type borrowers struct {
	mu     sync.Mutex // guards the fields below
	by     map[string]string
	shared []string
}

func (b *borrowers) enter(session, run string) (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if other := b.by[session]; other != "" {
		b.shared = append(b.shared, fmt.Sprintf("%s is used by %s and %s", session, other, run))
	}
	b.by[session] = run
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.by, session)
	}
}

// Two apps serve the waiters of one pool. No member has two borrowers at a time, every workflow gets one, and the apps
// create no more members than the pool allows. Loans that are not returned end with their runs. After one app has
// stopped, the other one serves the waiters.
func TestTwoAppsLendTheMembersOfAPool(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		used := &borrowers{by: map[string]string{}}
		start := func(id string, apps ...*apptest.App) {
			var urls []string
			for _, app := range apps {
				urls = append(urls, app.URL())
			}
			r := worker.NewRegistry()
			r.Session("llama", activity.SessionDefinition{
				HandOver: activity.HandOverPrepare,
				SetUp:    func(context.Context) (string, error) { return id, nil },
			})
			r.Activity("use", func(ctx context.Context, run string) error {
				s, _ := activity.Session(ctx)
				leave := used.enter(s.ID, run)
				defer leave()
				time.Sleep(5 * time.Millisecond)
				return nil
			})
			r.Workflow("loan", func(ctx workflow.Context) (string, error) {
				s, err := workflow.Borrow(ctx, "p", workflow.BorrowOptions{})
				if err != nil {
					return "", err
				}
				for range 2 {
					if err := s.Execute(ctx, "use", workflow.Info(ctx).RunID).Get(ctx, nil); err != nil {
						return "", err
					}
				}
				return s.ID, s.Return(ctx)
			})
			r.Workflow("forget", func(ctx workflow.Context) (string, error) {
				s, err := workflow.Borrow(ctx, "p", workflow.BorrowOptions{})
				if err != nil {
					return "", err
				}
				return s.ID, nil
			})
			w, err := worker.New(workeropt.Over(&link.Socket{URLs: urls}, worker.Options{
				Registry: r, Release: "test", WorkerID: id, DataDir: t.TempDir(), Logger: slogbridge.Slog(apptest.Log(t)),
				Sessions: worker.SessionOptions{Max: 10},
			}))
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			t.Cleanup(func() {
				end()
				if err := <-done; err != nil {
					t.Errorf("worker %s: %v", id, err)
				}
			})
		}
		start("A", a)
		start("B", b, a)
		if _, err := b.Broker().SetPool(t.Context(), protocol.PoolRequest{
			Name: "p", Definition: "llama", Queue: "default", Size: 3,
		}); err != nil {
			t.Fatal(err)
		}
		begin := func(app *apptest.App, typ string, i int) string {
			run, err := app.Broker().Start(t.Context(), protocol.StartRequest{
				WorkflowID: fmt.Sprint("w", i), WorkflowType: typ, Input: json.RawMessage(`[]`),
			})
			if err != nil {
				t.Fatal(err)
			}
			return run.RunID
		}
		members := map[string]bool{}
		finish := func(runs []string) {
			for _, run := range runs {
				members[result[string](t, end(t, a, run))] = true
			}
		}
		var runs []string
		for i := range 12 {
			app := a
			if i%2 == 1 {
				app = b
			}
			runs = append(runs, begin(app, "loan", i))
		}
		finish(runs)
		for i := range 4 { // more runs than members: each loan ends with its run
			result[string](t, end(t, a, begin(b, "forget", 20+i)))
		}
		members = map[string]bool{}
		if b != a {
			b.Stop()
		}
		finish([]string{begin(a, "loan", 12), begin(a, "loan", 13)})
		used.mu.Lock()
		defer used.mu.Unlock()
		if len(used.shared) > 0 || len(members) == 0 || len(members) > 3 {
			t.Errorf("shared: %q, members: %d", used.shared, len(members))
		}
	})
}
