package view_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/server"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A follower of a run that does nothing for an hour gets regular keepalives, and the store is not read.
func TestFollowerReceivesKeepAlivesWithoutReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "follow.db")
	synctest.Test(t, func(t *testing.T) {
		p := apptest.OpenServer(t, "sqlite:"+path, server.Options{})
		b, db := p.Broker(), p.Store()
		started, err := b.Start(t.Context(), protocol.StartRequest{WorkflowID: "f", WorkflowType: "wf"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute) // minutes after its start an app checks once for work of previous processes
		ctx, cancel := context.WithCancel(t.Context())
		begun, events, beats := 0, 0, 0
		done := make(chan error)
		go func() {
			_, err := p.View().Follow(ctx, protocol.Target{RunID: started.RunID}, 0, view.Follower{
				Begin: func(protocol.RunView) error { begun++; return nil },
				Event: func(history.Event) error { events++; return nil },
				Beat:  func() error { beats++; return nil },
				Every: 15 * time.Second,
			})
			done <- err
		}()
		synctest.Wait()
		before := db.Stats()
		time.Sleep(time.Hour)
		synctest.Wait()
		if after := db.Stats(); after != before || begun != 1 || events != 1 || beats != 240 {
			t.Errorf("after an hour: %d beats, %d events, %+v; before %+v", beats, events, after, before)
		}
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("ended with %v", err)
		}
	})
}
