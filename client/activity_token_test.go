package client_test

import (
	"encoding/base64"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/codec"
	"github.com/sojourn-run/sojourn/worker/activity"
)

// The client encodes the results and the details of failures of pending attempts, and the worker decodes them; history
// contains neither.
func TestTheOutcomeOfAPendingAttemptReachesTheCode(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		secret := encrypting(t, aesKey("k1", 1))
		encryptedWorker(t, a.URL(), codec.Compress(0), secret)
		c, ctx := encryptedClient(t, b.URL(), codec.Compress(0), secret), t.Context()
		w, err := c.Start(ctx, "licence", client.Args{"anna"}, client.StartOptions{WorkflowID: "p"})
		if err != nil {
			t.Fatal(err)
		}
		first := pendingToken(t, w)
		if err := c.FailActivity(ctx, first, activity.NewError("Busy", "later", activity.Details("the-reason"))); err != nil {
			t.Fatal(err)
		}
		second := pendingToken(t, w)
		if second == first {
			t.Fatalf("both attempts have the token %s", first)
		}
		if err := c.CompleteActivity(ctx, first, "late"); client.ReasonOf(err) != client.ReasonAttemptResolved {
			t.Errorf("a result with the first token: %v", err)
		}
		if err := c.FailActivity(ctx, second, activity.NewError(
			"Denied", "no", activity.NonRetryable, activity.Details("the-reason"),
		)); err != nil {
			t.Fatal(err)
		}
		if err := c.CompleteActivity(ctx, pendingToken(t, w), "the-licence"); err != nil {
			t.Fatal(err)
		}
		var result string
		if err := w.Result(ctx, &result); err != nil || result != "Denied, the-reason, the-licence" {
			t.Errorf("result %q, %v", result, err)
		}
		outcomes := 0
		for e, err := range encryptedClient(t, b.URL()).Handle("p", w.RunID).History(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(e.Type, "Activity") && e.Type != "ActivityScheduled" {
				outcomes++
			}
			for _, secret := range []string{"the-reason", "the-licence"} {
				if strings.Contains(readable(string(e.Attributes)), secret) {
					t.Errorf("%s is readable: %s", e.Type, e.Attributes)
				}
			}
		}
		if outcomes < 3 {
			t.Errorf("history contains %d events of attempts", outcomes)
		}
	})
}

// pendingToken waits until an attempt of the run is pending and returns its token.
func pendingToken(t *testing.T, w *client.Workflow) (token string) {
	t.Helper()
	for token == "" {
		v, err := w.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if v.Pending != nil {
			for _, step := range v.Pending.Activities {
				token = step.Token
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return token
}

// readable returns the attributes of an event, followed by their values without base64.
func readable(attributes string) string {
	all := attributes
	for _, blob := range regexp.MustCompile(`[A-Za-z0-9+/]{16,}=*`).FindAllString(attributes, -1) {
		if raw, err := base64.StdEncoding.DecodeString(blob); err == nil {
			all += string(raw)
		}
	}
	return all
}
