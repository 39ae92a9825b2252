package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/server"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

// At the default drain timeout of 25 s, running code has 20 s to finish, and the whole drain ends within 25 s.
func TestRunningTasksGetTheDrainTimeoutLessFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := apptest.OpenServer(t, "", server.Options{})
		began := make(chan struct{}, 2)
		cancelled := make(chan time.Time, 1)
		r := worker.NewRegistry()
		r.Activity("finishes", func(context.Context) (string, error) {
			began <- struct{}{}
			time.Sleep(19*time.Second + 900*time.Millisecond)
			return "done", nil
		})
		r.Activity("hangs", func(ctx context.Context) error {
			began <- struct{}{}
			<-ctx.Done()
			cancelled <- time.Now()
			return ctx.Err()
		})
		w, err := worker.New(workeropt.Over(link.Local{Join: p.Connections().Join}, worker.Options{
			Registry: r, Release: "test",
			Logger:    slogbridge.Slog(apptest.Log(t)),
			DataDir:   t.TempDir(),
			Executors: worker.ExecutorOptions{Disabled: true},
		}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ran := make(chan error, 1)
		go func() { ran <- w.Run(ctx) }()
		for _, typ := range []string{"finishes", "hangs"} {
			in := protocol.ActivityRequest{WorkflowID: typ, ActivityType: typ}
			if _, err := p.Broker().StartActivity(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			<-began
		}
		drain := time.Now()
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		if took := time.Since(drain); took > 25*time.Second {
			t.Errorf("the drain took %s", took)
		}
		if had := (<-cancelled).Sub(drain); had < 20*time.Second {
			t.Errorf("running tasks had %s of the drain timeout, want 20 s", had)
		}
		v, err := p.View().Describe(t.Context(), protocol.Target{WorkflowID: "finishes"})
		time.Sleep(20 * time.Second) // in virtual time: the bubble must not end while activity code runs
		if err != nil || v.Status != "completed" {
			t.Errorf("the activity that needed 19.9 s: %s, %v", v.Status, err)
		}
	})
}
