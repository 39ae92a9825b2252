package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/client"
)

// countedRequests is a transport that counts its requests by method and last path element.
type countedRequests struct {
	mu   sync.Mutex
	sent []string
}

func (c *countedRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.sent = append(c.sent, r.Method+" "+r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
	c.mu.Unlock()
	return http.DefaultTransport.RoundTrip(r)
}

// reset returns the counts since the last call of reset, and clears them.
func (c *countedRequests) reset() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := strings.Join(c.sent, ", ")
	c.sent = nil
	return all
}

// started holds the values that StartAndWait returned.
type started struct {
	run client.RunInfo
	err error
}

func startAndWait(ctx context.Context, c *client.Client, id string) <-chan started {
	done := make(chan started, 1)
	go func() {
		run, err := c.StartAndWait(ctx, "basket", client.Args{[]string{"tea"}}, client.StartOptions{WorkflowID: id})
		done <- started{run, err}
	}()
	return done
}

// awaitRun waits until a workflow ID has a run.
func awaitRun(t *testing.T, c *client.Client, id string) client.RunInfo {
	t.Helper()
	for {
		v, err := c.Handle(id, "").Describe(t.Context())
		if err == nil {
			return v
		}
		if client.ReasonOf(err) != client.ReasonWorkflowNotFound {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A workflow that ends within a minute costs its caller one request.
func TestAWorkflowIsStartedAndAwaitedInOneRequest(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		work(t, a)
		var sent countedRequests
		c, err := client.New(client.Options{URLs: []string{a.URL()}, HTTP: &http.Client{Transport: &sent}})
		if err != nil {
			t.Fatal(err)
		}
		other, ctx := asking(t, a.URL()), t.Context()
		run := startAndWait(ctx, c, "one")
		awaitRun(t, other, "one")
		for _, how := range []string{"later", "cash"} {
			if err := other.Handle("one", "").Signal(ctx, "pay", how); err != nil {
				t.Fatal(err)
			}
		}
		if s := <-run; s.err != nil || s.run.Status != "completed" || string(s.run.Output) != `["tea"]` {
			t.Errorf("the result: %+v, %v", s.run, s.err)
		}
		if all := sent.reset(); all != "POST workflows" {
			t.Errorf("requests: %s", all)
		}

		var items []string
		executed := make(chan error, 1)
		go func() {
			in := client.StartOptions{WorkflowID: "two"}
			executed <- c.Execute(ctx, "basket", client.Args{[]string{"milk"}}, &items, in)
		}()
		awaitRun(t, other, "two")
		if err := other.Handle("two", "").Signal(ctx, "pay", "cash"); err != nil {
			t.Fatal(err)
		}
		if err := <-executed; err != nil || strings.Join(items, " ") != "milk" {
			t.Errorf("executed: %q, %v", items, err)
		}

		sent.reset()
		var ended *client.NotCompleted
		go func() {
			in := client.StartOptions{WorkflowID: "three"}
			executed <- c.Execute(ctx, "basket", client.Args{[]string{}}, nil, in)
		}()
		awaitRun(t, other, "three")
		if err := other.Handle("three", "").Signal(ctx, "pay", "never"); err != nil {
			t.Fatal(err)
		}
		if err := <-executed; !errors.As(err, &ended) || ended.Run.Status != "failed" ||
			!strings.Contains(err.Error(), "nothing to pay with") {
			t.Errorf("a workflow that fails: %v", err)
		}
		// A start with an ID that is in use fails immediately. The client does not retry it, because the app did
		// respond.
		if s := <-startAndWait(ctx, c, "three"); client.ReasonOf(s.err) != client.ReasonWorkflowIDInUse ||
			s.run.WorkflowID != "" {
			t.Errorf("an ID that is in use: %+v, %v", s.run, s.err)
		}
		if all := sent.reset(); all != "POST workflows, POST workflows" {
			t.Errorf("requests: %s", all)
		}
	})
}

// unreliableProxy forwards requests to an app and can drop the responses to start requests.
type unreliableProxy struct {
	*httptest.Server
	target atomic.Pointer[url.URL]
	lost   atomic.Int32
	losing atomic.Bool
}

func newUnreliableProxy(t *testing.T, to string) *unreliableProxy {
	t.Helper()
	p := &unreliableProxy{}
	p.to(t, to)
	p.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(p.target.Load()) },
		ModifyResponse: func(r *http.Response) error {
			if p.losing.Load() && r.Request.Method == http.MethodPost {
				p.lost.Add(1)
				panic(http.ErrAbortHandler)
			}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	})
	t.Cleanup(p.Close)
	return p
}

func (p *unreliableProxy) to(t *testing.T, app string) {
	t.Helper()
	u, err := url.Parse(app)
	if err != nil {
		t.Fatal(err)
	}
	p.target.Store(u)
}

// If the connection breaks after the request was sent, before or after the end of the run, the caller receives the
// result, and there is one run.
func TestALostResponseOfAStartThatWaitsStartsNothingTwice(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		work(t, a)
		proxy := newUnreliableProxy(t, a.URL())
		through, direct, ctx := asking(t, proxy.URL), asking(t, a.URL()), t.Context()

		early := startAndWait(ctx, through, "early")
		first := awaitRun(t, direct, "early")
		proxy.CloseClientConnections() // the app has received the request, and the run is open
		if err := direct.Handle("early", "").Signal(ctx, "pay", "cash"); err != nil {
			t.Fatal(err)
		}
		if s := <-early; s.err != nil || s.run.RunID != first.RunID || string(s.run.Output) != `["tea"]` {
			t.Errorf("cut before the end: %+v, %v", s.run, s.err)
		}

		proxy.losing.Store(true)
		late := startAndWait(ctx, through, "late")
		first = awaitRun(t, direct, "late")
		if err := direct.Handle("late", "").Signal(ctx, "pay", "cash"); err != nil {
			t.Fatal(err)
		}
		for proxy.lost.Load() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		proxy.losing.Store(false)
		if s := <-late; s.err != nil || s.run.RunID != first.RunID || string(s.run.Output) != `["tea"]` {
			t.Errorf("cut after the end: %+v, %v", s.run, s.err)
		}
		if runs := collect(t, direct.Runs(ctx, "WorkflowType = 'basket'")); len(runs) != 2 {
			t.Errorf("%d runs, want 2: %+v", len(runs), runs)
		}
	})
}

// An app that shuts down responds with the open run, and the client waits for the result at the next app.
func TestAStartThatWaitsOutlivesItsApp(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		proxy := newUnreliableProxy(t, a.URL())
		c := asking(t, proxy.URL)
		run := startAndWait(t.Context(), c, "one")
		first := awaitRun(t, c, "one")
		a.Stop()
		next := apptest.Start(t, apptest.Options{Database: database})
		work(t, next)
		proxy.to(t, next.URL())
		if err := asking(t, next.URL()).Handle("one", "").Signal(t.Context(), "pay", "cash"); err != nil {
			t.Fatal(err)
		}
		if s := <-run; s.err != nil || s.run.RunID != first.RunID || s.run.Status != "completed" {
			t.Errorf("the result: %+v, %v", s.run, s.err)
		}
	})
}

// If the workflow runs for longer than a minute, the client continues to wait with requests for its result.
func TestAStartWaitsLongerThanOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		respond := func(r *http.Request) (*http.Response, error) {
			sent = append(sent, r.Method+" "+r.URL.Path)
			body := `{"workflow_id":"w","run_id":"r","is_terminal":false}`
			if len(sent) < 3 {
				time.Sleep(time.Minute)
			} else {
				body = `{"workflow_id":"w","run_id":"r2","is_terminal":true,"status":"completed"}`
			}
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
		}
		c, err := client.New(client.Options{
			URLs: []string{"http://app"}, HTTP: &http.Client{Transport: roundTripper(respond)},
		})
		if err != nil {
			t.Fatal(err)
		}
		run, err := c.StartAndWait(t.Context(), "w", nil, client.StartOptions{WorkflowID: "w"})
		want := "POST /api/workflows, GET /api/sojourn/workflows/w/runs/r/result, GET /api/sojourn/workflows/w/runs/r/result"
		if err != nil || run.RunID != "r2" || strings.Join(sent, ", ") != want {
			t.Errorf("got %+v, %v, with %q", run, err, sent)
		}
	})
}

// A start that no app can have received fails at once if no app ever responded: the URL may be wrong.
func TestAStartThatWaitsFailsAtOnceWhereNoAppEverResponded(t *testing.T) {
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	defer tls.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for name, at := range map[string]string{"no app": "http://" + closed.Addr().String(), "an unknown CA": tls.URL} {
		var sent countedRequests
		c, err := client.New(client.Options{URLs: []string{at}, HTTP: &http.Client{Transport: &sent}})
		if err != nil {
			t.Fatal(err)
		}
		run, err := c.StartAndWait(t.Context(), "w", nil, client.StartOptions{})
		if all := sent.reset(); err == nil || run.WorkflowID != "" || all != "POST workflows" {
			t.Errorf("%s: %+v, %v, with %s", name, run, err, all)
		}
	}
}
