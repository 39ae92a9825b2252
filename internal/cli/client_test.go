package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// client calls an app over HTTP.
type client struct {
	t     *testing.T
	base  string
	token string
	plain bool // responses are not compressed
}

// call sends a request; body is JSON text, bytes, or a value. An error means that there was no response.
func (c client) call(ctx context.Context, method, path string, body any) (status int, raw []byte, err error) {
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		in = bytes.NewReader(b)
	case string:
		in = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			c.t.Fatal(err)
		}
		in = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, in)
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(path, "/api/worker/") {
		r.Header.Set(protocol.HeaderWorkerVersion, protocol.WorkerVersion)
	} else {
		r.Header.Set(protocol.HeaderControlVersion, protocol.ControlVersion)
	}
	if c.plain {
		r.Header.Set("Accept-Encoding", "identity")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer a.Body.Close()
	raw, err = io.ReadAll(a.Body)
	return a.StatusCode, raw, err
}

// must is a call that must succeed.
func (c client) must(method, path string, body, out any) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), ceiling)
	defer cancel()
	status, raw, err := c.call(ctx, method, path, body)
	if err != nil || status >= 300 {
		c.t.Fatalf("%s %s: %d %.500s %v", method, path, status, raw, err)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(raw, out); err != nil {
		c.t.Fatalf("%s %s: %.500s: %v", method, path, raw, err)
	}
}

// up waits until the app responds.
func (c client) up() {
	c.t.Helper()
	until(c.t, c.base+" serves", func() bool {
		status, _, err := c.call(c.t.Context(), http.MethodGet, "/readyz", nil)
		return err == nil && status == http.StatusOK
	})
}

func (c client) start(id, typ string, args ...any) protocol.StartResponse {
	c.t.Helper()
	var a protocol.StartResponse
	c.must(http.MethodPost, "/api/workflows", map[string]any{"workflow_id": id, "workflow_type": typ, "input": args}, &a)
	return a
}

func (c client) describe(id string) protocol.RunView {
	c.t.Helper()
	var v protocol.RunView
	c.must(http.MethodGet, "/api/workflows/"+url.PathEscape(id), nil, &v)
	return v
}

// history reads a run's events until enough returns true or the run is closed. It retries while the app is down, so the
// wait may span restarts.
func (c client) history(id, run string, enough func([]history.Event) bool) []history.Event {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), ceiling)
	defer cancel()
	var all []history.Event
	for token := ""; ; {
		if n := len(all); n > 0 && (closed(all[n-1]) || enough != nil && enough(all)) {
			return all
		}
		path := fmt.Sprintf("/api/workflows/%s/runs/%s/history?page_size=1000&wait_new_event=true&next_page_token=%s",
			url.PathEscape(id), url.PathEscape(run), url.QueryEscape(token))
		status, raw, err := c.call(ctx, http.MethodGet, path, nil)
		if ctx.Err() != nil {
			text, _ := json.Marshal(all)
			c.t.Fatalf("run %s of %s does not go on:\n%s", run, id, text)
		}
		if err != nil || status == http.StatusServiceUnavailable {
			time.Sleep(20 * time.Millisecond) // the app is down: there is no event to wait for
			continue
		}
		var page struct {
			Events []history.Event `json:"events"`
			Next   *string         `json:"next_page_token"`
		}
		if err := json.Unmarshal(raw, &page); err != nil || status != http.StatusOK {
			c.t.Fatalf("history of %s: %d %.500s %v", id, status, raw, err)
		}
		all = append(all, page.Events...)
		if page.Next != nil {
			token = *page.Next
		} else if n := len(all); n > 0 && !closed(all[n-1]) {
			c.t.Fatalf("history of the open run of %s ends without a token to wait with", id)
		}
	}
}

func closed(e history.Event) bool {
	switch e.Data.(type) {
	case *history.WorkflowCompleted, *history.WorkflowFailed, *history.WorkflowCancelled, *history.WorkflowTerminated,
		*history.WorkflowTimedOut, *history.WorkflowContinuedAsNew:
		return true
	}
	return false
}

// completed waits for the end of a run, which must have completed.
func (c client) completed(id, run string) []history.Event {
	c.t.Helper()
	all := c.history(id, run, nil)
	if _, ok := all[len(all)-1].Data.(*history.WorkflowCompleted); !ok {
		raw, _ := json.MarshalIndent(all, "", " ")
		c.t.Fatalf("run %s of %s did not complete:\n%s", run, id, raw)
	}
	return all
}

// workers returns the workers that the app knows.
func (c client) workers() []protocol.WorkerView {
	c.t.Helper()
	var out struct {
		Workers []protocol.WorkerView `json:"workers"`
	}
	c.must(http.MethodGet, "/api/workers", nil, &out)
	return out.Workers
}

// metrics returns the named counters; missing ones are zero.
func (c client) metrics(names ...string) map[string]float64 {
	c.t.Helper()
	_, raw, err := c.call(c.t.Context(), http.MethodGet, "/metrics", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	found := map[string]float64{}
	for text := range strings.Lines(string(raw)) {
		name, value, ok := strings.Cut(strings.TrimSpace(text), " ")
		for _, n := range names {
			if ok && name == n {
				if found[n], err = strconv.ParseFloat(value, 64); err != nil {
					c.t.Fatal(err)
				}
			}
		}
	}
	if len(found) != len(names) {
		c.t.Fatalf("metrics: got %v, want %q", found, names)
	}
	return found
}

// outcomes returns the terminal events of a run's activities, by execution.
func outcomes(events []history.Event) map[string][]history.Data {
	m := map[string][]history.Data{}
	for _, e := range events {
		switch d := e.Data.(type) {
		case *history.ActivityCompleted:
			m[d.ExecutionID] = append(m[d.ExecutionID], d)
		case *history.ActivityFailed:
			m[d.ExecutionID] = append(m[d.ExecutionID], d)
		case *history.ActivityTimedOut:
			m[d.ExecutionID] = append(m[d.ExecutionID], d)
		case *history.ActivityCancelled:
			m[d.ExecutionID] = append(m[d.ExecutionID], d)
		}
	}
	return m
}
