package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/server"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
)

// brokenNotices is the store of an app that receives no token notifications of other apps, and reports this.
type brokenNotices struct{ store.Store }

func (brokenNotices) ReceivesNotices() bool { return false }

// withoutTokenNotices is a dispatcher that receives no token notifications, like a dispatcher of another app after a
// lost notification.
type withoutTokenNotices struct{ store.Dispatcher }

func (u withoutTokenNotices) Changed(c store.Changed) {
	c.Tokens = nil
	u.Dispatcher.Changed(c)
}

// An app without notifications ends everything that runs under a token within a second after another app revoked it,
// and rejects new requests at once, even if it has admitted the token just before.
func TestRevocationAppliesWithinASecondWithoutNotifications(t *testing.T) {
	const root = "the-token-of-the-bootstrap-0123456789"
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "test.db")
		p := apptest.OpenServer(t, "", server.Options{
			Shared: true, Token: root,
			Open: func(ctx context.Context, app string, d store.Dispatcher) (store.Store, error) {
				s, err := sqlite.Open(ctx, path, sqldb.Options{App: app, Dispatch: withoutTokenNotices{d}})
				return brokenNotices{s}, err
			},
		})
		there := auth.New(auth.Options{Store: p.Store(), Bootstrap: root})
		admin, err := there.Authenticate(t.Context(), root)
		if err != nil {
			t.Fatal(err)
		}
		made, err := there.Create(t.Context(), admin, auth.TokenRequest{Roles: []auth.Role{auth.Worker}})
		if err != nil {
			t.Fatal(err)
		}
		call := func(path, body string) int {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(
				t.Context(), http.MethodPost, "http://127.0.0.1/api/worker/"+path, strings.NewReader(body),
			)
			r.Header.Set("Authorization", "Bearer "+made.Token)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-Durable-Workflow-Protocol-Version", "1.0")
			p.Handler().ServeHTTP(w, r)
			return w.Code
		}
		if got := call(
			"register", `{"worker_id":"w","task_queue":"q","runtime":"external","supported_workflow_types":["flow"]}`,
		); got != http.StatusCreated {
			t.Fatalf("registration: %d", got)
		}
		poll := func(seconds string) int {
			return call("workflow-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":`+seconds+`}`)
		}
		open := make(chan int, 1)
		go func() { open <- poll("60") }()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := poll("0"); got != http.StatusOK {
			t.Fatalf("before: %d", got)
		}
		revoked := time.Now()
		if _, err := there.Revoke(t.Context(), admin, made.ID, false); err != nil {
			t.Fatal(err)
		}
		if got := poll("0"); got != http.StatusUnauthorized || time.Since(revoked) > 0 {
			t.Errorf("right after: %d, %s later", got, time.Since(revoked))
		}
		if got := <-open; got != http.StatusUnauthorized || time.Since(revoked) > time.Second {
			t.Errorf("a poll that was open: %d, %s later", got, time.Since(revoked))
		}
	})
}
