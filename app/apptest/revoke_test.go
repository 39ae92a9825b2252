package apptest_test

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// joined is a socket in a namespace; its Done is closed when it has ended.
func joined(t *testing.T, url, namespace string, auth any, header http.Header) *socketio.Client {
	t.Helper()
	c, err := socketio.Dial(t.Context(), url, namespace, auth, socketio.DialOptions{Header: header})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close(nil)
		_ = c.Wait(context.Background())
	})
	return c
}

// If a token is revoked at one app, the other app ends the token's connections and held requests before their timeouts.
func TestARevocationEndsWhatATokenHoldsAtAnotherApp(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		withTokens := func(o *app.Options) { o.NoAuth, o.Token = false, admin }
		here, there := apptest.Two(t, apptest.Options{Database: database, Change: withTokens})
		c := client{t: t, url: here.URL()}.as(admin)
		token := func(role string) (id, text string) {
			made := c.want(201, "POST", "/tokens", `{"name":"`+role+`","roles":["`+role+`"]}`)
			return made.text("id"), made.text("token")
		}
		workerID, worker := token("worker")
		viewerID, viewer := token("viewer")
		writerID, writer := token("writer")
		w := client{t: t, url: there.URL()}.as(worker)
		w.want(
			201, "POST", "/api/worker/register",
			`{"worker_id":"w","task_queue":"q","runtime":"external","supported_workflow_types":["flow"]}`,
		)

		polled := make(chan response, 1)
		go func() {
			polled <- w.call(
				"POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":60}`,
			)
		}()
		socket := joined(
			t, there.URL(), protocol.NamespaceWorkers, protocol.ChannelAuth{Token: worker, WorkerID: "s", Protocol: 1}, nil,
		)
		byToken := joined(t, there.URL(), protocol.NamespaceDashboard, map[string]string{"token": viewer}, nil)
		byCookie := joined(
			t, there.URL(), protocol.NamespaceDashboard, nil, http.Header{"Cookie": {signsIn(t, here.URL(), viewer)}},
		)
		changedID, changed := token("operator")
		operating := joined(t, there.URL(), protocol.NamespaceDashboard, map[string]string{"token": changed}, nil)
		other := signsIn(t, here.URL(), admin)
		signedOut := joined(t, there.URL(), protocol.NamespaceDashboard, nil, http.Header{"Cookie": {other}})
		kept := joined(t, there.URL(), protocol.NamespaceDashboard, map[string]string{"token": admin}, nil)

		// A subscriber would receive a hint about the start.
		starts := func(id string) string {
			return c.want(
				201, "POST", "/workflows", `{"workflow_id":"`+id+`","workflow_type":"other","task_queue":"nobody"}`,
			).text("run_id")
		}
		run := starts("w")
		starts("told")
		at := "/workflows/w/runs/" + run
		waits := map[string]chan response{}
		for path, as := range map[string]string{
			"GET " + at + "/history?wait_new_event=true&next_page_token=" +
				c.want(200, "GET", at+"/history?wait_new_event=true", "").text("next_page_token"): viewer,
			"GET " + at + "/history/stream":                   viewer,
			"GET /sojourn" + at + "/result?wait_seconds=60":   viewer,
			"GET /sojourn/workflows/w/result?wait_seconds=60": viewer,
			"POST /workflows/told/update/change":              writer,
			"POST /workflows":                                 writer,
		} {
			responses := make(chan response, 1)
			waits[path] = responses
			method, path, _ := strings.Cut(path, " ")
			body := ""
			if method == "POST" {
				body = `{"wait_for":"completed","wait_timeout_seconds":60}`
			}
			if path == "/workflows" {
				body = `{"workflow_id":"started","workflow_type":"other","task_queue":"nobody","wait_seconds":60}`
			}
			go func() { responses <- client{t: t, url: there.URL()}.as(as).call(method, path, body) }()
		}
		time.Sleep(100 * time.Millisecond) // the connections are open

		revoked := time.Now()
		c.want(200, "DELETE", "/tokens/"+workerID, "")
		c.want(200, "DELETE", "/tokens/"+viewerID, "")
		c.want(200, "DELETE", "/tokens/"+writerID, "")
		c.want(200, "PUT", "/tokens/"+changedID+"/roles", `{"roles":["viewer"]}`)
		client{t: t, url: here.URL()}.with("Cookie", other).want(200, "DELETE", "/sojourn/login", "")
		if got := <-polled; got.status != 401 {
			t.Errorf("a poll that was open: got %d %s", got.status, got.raw)
		}
		for path, responses := range waits {
			// A stream has already sent its status, so it only ends.
			if got := <-responses; got.status != 401 && !strings.HasSuffix(path, "/stream") {
				t.Errorf("%s: got %d %s", path, got.status, got.raw)
			}
		}
		if open := time.Since(revoked); open > 20*time.Second { // their timeouts are 30 to 60 s
			t.Errorf("what waited was open for %s more", open)
		}
		for name, s := range map[string]*socketio.Client{
			"a worker's": socket, "by token": byToken, "by cookie": byCookie, "signed out": signedOut,
			"of other roles": operating,
		} {
			select {
			case <-s.Context().Done():
			case <-t.Context().Done():
				t.Errorf("socket %s goes on", name)
			}
		}
		w.want(401, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":0}`)
		client{t: t, url: there.URL()}.with("Cookie", other).want(401, "GET", "/sojourn/me", "")
		as := client{t: t, url: there.URL()}.as(changed)
		as.want(200, "GET", "/workflows", "")
		as.want(403, "GET", "/audit", "")
		if kept.Context().Err() != nil {
			t.Error("another token's socket was ended")
		}
	})
}

// signsIn returns the cookie of a sign-in.
func signsIn(t *testing.T, url, token string) string {
	t.Helper()
	res, err := http.Post(url+"/api/sojourn/login", "application/json", strings.NewReader(`{"token":"`+token+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if len(res.Cookies()) != 1 {
		t.Fatalf("sign-in: %d", res.StatusCode)
	}
	return res.Cookies()[0].Name + "=" + res.Cookies()[0].Value
}

// An app that receives no notices from other apps detects the revocation by reading the database.
func TestRevocationAppliesAtAnAppWithoutNotifications(t *testing.T) {
	database := apptest.Postgres(t)
	withTokens := func(o *app.Options) { o.NoAuth, o.Token = false, admin }
	here := apptest.Start(t, apptest.Options{Database: database, Change: withTokens})
	there := apptest.Start(t, apptest.Options{Database: database, Change: withTokens})
	c := client{t: t, url: here.URL()}.as(admin)
	made := c.want(201, "POST", "/tokens", `{"name":"w","roles":["worker"]}`)
	w := client{t: t, url: there.URL()}.as(made.text("token"))
	w.want(
		201, "POST", "/api/worker/register",
		`{"worker_id":"w","task_queue":"q","runtime":"external","supported_workflow_types":["flow"]}`,
	)
	socket := joined(
		t, there.URL(), protocol.NamespaceWorkers,
		protocol.ChannelAuth{Token: made.text("token"), WorkerID: "s", Protocol: 1}, nil,
	)

	at, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(at.Path, "/")
	do := func(statement string) {
		t.Helper()
		db, err := pgx.Connect(t.Context(), os.Getenv("SOJOURN_TEST_POSTGRES"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close(t.Context())
		if _, err := db.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	do("ALTER DATABASE " + name + " ALLOW_CONNECTIONS false") // a process that loses its connection cannot reconnect
	do(
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + name +
			"' AND application_name = 'sojourn bus'",
	)
	for there.Store().ReceivesNotices() && t.Context().Err() == nil {
		time.Sleep(time.Millisecond) // there is no event to wait for: the app detects it at a read
	}
	c.want(200, "DELETE", "/tokens/"+made.text("id"), "")
	w.want(401, "POST", "/api/worker/workflow-tasks/poll", `{"worker_id":"w","task_queue":"q","timeout_seconds":0}`)
	select {
	case <-socket.Context().Done():
	case <-time.After(30 * time.Second): // connections are checked every minute anyway
		t.Error("its socket goes on")
	}
	do("ALTER DATABASE " + name + " ALLOW_CONNECTIONS true")
	for !there.Store().ReceivesNotices() && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
}
