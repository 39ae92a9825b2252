package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/storetest"
)

// An app that is killed right after a commit sends no more notices. Other apps do not poll for settings of queues, such
// as a drain, so the commit's transaction notifies them: the notification comes from the committer's connection.
func TestCommitNotifiesOfADecision(t *testing.T) {
	url := database(t)
	w := ofURL(url).New(t)
	ear, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer ear.Close(context.Background())
	if _, err := ear.Exec(t.Context(), "LISTEN sojourn"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	notices := func(decided bool) uint32 {
		for {
			n, err := ear.WaitForNotification(ctx)
			if err != nil {
				t.Fatalf("no notification with decided = %v: %v", decided, err)
			}
			if strings.Contains(n.Payload, `"d":true`) == decided {
				return n.PID
			}
		}
	}
	w.Start("hinted")
	hints := notices(false)
	w.Commit(storetest.DecideQueue(storetest.Queue, engine.DrainBuild{BuildID: "v1"}))
	if by := notices(true); by == hints {
		t.Errorf("connection %d tells decisions behind their commits", by)
	}
}
