package client_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/codec"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// The client encodes results and details of failures, and the worker decodes them; history contains neither.
func TestTheResultOfAnAwakeableReachesTheCode(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		secret := encrypting(t, aesKey("k1", 1))
		encryptedWorker(t, a.URL(), codec.Compress(0), secret)
		c, ctx := encryptedClient(t, b.URL(), codec.Compress(0), secret), t.Context()
		w, err := c.Start(ctx, "permit", nil, client.StartOptions{WorkflowID: "p"})
		if err != nil {
			t.Fatal(err)
		}
		var waits []client.PendingWait
		for len(waits) < 2 {
			v, err := w.Describe(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if v.Pending != nil {
				waits = v.Pending.Waits
			}
			time.Sleep(10 * time.Millisecond)
		}
		granted, denied := waits[0].AwakeableID, waits[1].AwakeableID
		if granted != w.RunID+"-1" || denied != w.RunID+"-2" {
			t.Errorf("awakeables %q and %q", granted, denied)
		}
		for id, reason := range map[string]client.Reason{
			w.RunID + "-3": client.ReasonAwakeableNotFound, "none": client.ReasonAwakeableNotFound, "": client.ReasonInvalid,
		} {
			if err := c.CompleteAwakeable(ctx, id, 1); client.ReasonOf(err) != reason {
				t.Errorf("%q: %v, want %s", id, err, reason)
			}
		}
		if err := c.CompleteAwakeable(ctx, granted, "granted"); err != nil {
			t.Fatal(err)
		}
		failure := activity.NewError("Denied", "no", activity.Details("the-reason"))
		if err := c.FailAwakeable(ctx, denied, failure); err != nil {
			t.Fatal(err)
		}
		if err := c.CompleteAwakeable(ctx, denied, "late"); client.ReasonOf(err) != client.ReasonAwakeableResolved {
			t.Errorf("a second outcome: %v", err)
		}
		var result string
		if err := w.Result(ctx, &result); err != nil || result != "granted, no, the-reason" {
			t.Errorf("result %q, %v", result, err)
		}
		for e, err := range encryptedClient(t, b.URL()).Handle("p", w.RunID).History(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(e.Type, "Awakeable") && strings.Contains(readable(string(e.Attributes)), "the-reason") {
				t.Errorf("%s is readable: %s", e.Type, e.Attributes)
			}
		}
	})
}
