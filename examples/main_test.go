package examples_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/examples"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/worker"
)

// ceiling is the maximum wait of a test for an expected event.
const ceiling = 5 * time.Minute

func TestMain(m *testing.M) {
	worker.RunExecutor(registry())
	m.Run()
	atEnd()
}

func registry() *worker.Registry {
	r := worker.NewRegistry()
	examples.Register(r)
	return r
}

// work runs a worker with the examples until stop is called or the test ends. kill ends it without a message to the
// app.
func work(t *testing.T, a *apptest.App, change func(*worker.Options)) (stop, kill func()) {
	t.Helper()
	o := workeropt.Over(link.Local{Join: a.Connections().Join}, worker.Options{
		Registry: registry(), Release: "test",
		DrainTimeout: 10 * time.Second, Logger: slogbridge.Slog(apptest.Log(t)),
		Sessions:  worker.SessionOptions{Max: 10},
		Executors: worker.ExecutorOptions{Disabled: true},
	})
	if change != nil {
		change(&o)
	}
	w, err := worker.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.Run(ctx); err != nil && !errors.Is(err, worker.ErrAborted) {
			t.Errorf("worker %s: %v", w.ID(), err)
		}
	}()
	ended := func() {
		select {
		case <-done:
		case <-time.After(ceiling):
			t.Errorf("worker %s did not end", w.ID())
		}
	}
	stop = func() { cancel(); ended() }
	t.Cleanup(stop)
	wait, over := context.WithTimeout(t.Context(), ceiling)
	defer over()
	if err := w.WaitReady(wait); err != nil {
		t.Fatal(err)
	}
	return stop, func() { w.Abort(); ended() }
}

// caller speaks to an app the way curl does.
type caller struct {
	t   *testing.T
	url string
}

// call sends a request and decodes the response into out. It returns an error for a status of 300 or more.
func (c caller) call(method, path string, in, out any) error {
	c.t.Helper()
	raw, err := json.Marshal(in)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), ceiling)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, c.url+"/api/"+path, bytes.NewReader(raw))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Durable-Workflow-Control-Plane-Version", "2")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if raw, err = io.ReadAll(answer.Body); err != nil {
		return err
	}
	if answer.StatusCode >= 300 {
		return errors.New(answer.Status + ": " + string(raw))
	}
	return json.Unmarshal(raw, out)
}

// must is call for a request that must succeed.
func (c caller) must(method, path string, in, out any) {
	c.t.Helper()
	if err := c.call(method, path, in, out); err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
}

func (c caller) start(typ, id string, args ...any) {
	c.t.Helper()
	c.must("POST", "workflows", map[string]any{"workflow_type": typ, "workflow_id": id, "input": args}, &struct{}{})
}

func (c caller) signal(id, name string, args ...any) {
	c.t.Helper()
	c.must("POST", "workflows/"+id+"/signal/"+name, map[string]any{"input": args}, &struct{}{})
}

// run is a run in the app's response.
type run struct {
	RunID    string          `json:"run_id"`
	Number   int             `json:"run_number"`
	Status   string          `json:"status"`
	Terminal bool            `json:"is_terminal"`
	Waits    string          `json:"wait_reason"`
	Output   json.RawMessage `json:"output"`
}

// until waits, by the history of the run, for a run that is as wanted.
func (c caller) until(id string, done func(run) bool) run {
	c.t.Helper()
	page, last := "", ""
	for end := time.Now().Add(ceiling); ; {
		var r run
		c.must("GET", "workflows/"+id, nil, &r)
		if done(r) {
			return r
		}
		if time.Now().After(end) || r.Terminal {
			c.t.Fatalf("run %s of %s is %s (%s): %s", r.RunID, id, r.Status, r.Waits, r.Output)
		}
		if r.RunID != last {
			page, last = "", r.RunID
		}
		var h struct {
			Next string `json:"next_page_token"`
		}
		c.must(
			"GET", "workflows/"+id+"/runs/"+r.RunID+"/history?wait_new_event=true&next_page_token="+url.QueryEscape(page), nil,
			&h,
		)
		page = h.Next
	}
}

// result waits for the end of a workflow and decodes its result.
func (c caller) result(id string, out any) {
	c.t.Helper()
	r := c.until(id, func(r run) bool { return r.Terminal })
	if r.Status != "completed" {
		c.t.Fatalf("%s: %s", r.Status, r.Output)
	}
	if err := json.Unmarshal(r.Output, out); err != nil {
		c.t.Fatalf("output %s: %v", r.Output, err)
	}
}
