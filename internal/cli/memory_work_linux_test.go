package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"

	"github.com/sojourn-run/sojourn/shared/payload"
)

// An app is limited to 1 GiB. Callers with valid tokens make it hold much data at once: 100 workers poll concurrently
// for 100 waiting tasks of 1 MB (200 in the long form), many clients read large results, histories and exports, some
// without reading the response, and bundles are imported. The app uses at most 512 MB, and all tasks complete.
func TestAnAppOf1GiBServesLargeWorkWithin512MB(t *testing.T) {
	const limit, most = 1 << 30, 512_000_000
	tasks, readers, signals := 100, 16, 4
	if os.Getenv(memoryRounds) != "" {
		tasks, readers, signals = 200, 100, 12
	}
	a := launchLimited(t, limit, nil)
	large := func(format string, args ...any) string {
		return fmt.Sprintf(format, append(args, strings.Repeat("x", 1_000_000))...)
	}
	encoded, err := payload.Encode(strings.Repeat("x", 1_000_000))
	if err != nil {
		t.Fatal(err)
	}
	result, err := json.Marshal(encoded)
	if err != nil {
		t.Fatal(err)
	}
	highest := int64(0)
	together := func(name string, n int, each func(i int)) {
		t.Helper()
		if only := os.Getenv(memoryAttacks); only != "" && !regexp.MustCompile(only).MatchString(name) {
			return
		}
		began := time.Now()
		a.forgetPeak()
		all(n, each)
		t.Logf("%-40s peak %d MB, %.1f s", name, a.peak()/1e6, time.Since(began).Seconds())
		highest = max(highest, a.peak())
	}
	must := func(status int, method, path, in string) map[string]any { return a.persist(status, method, path, in) }

	together("register", tasks, func(i int) {
		must(201, "POST", "/api/worker/register", fmt.Sprintf(
			`{"worker_id":"w-%d","task_queue":"q","runtime":"test","supported_workflow_types":["x"]}`, i))
	})
	together("start with inputs of 1 MB", tasks, func(i int) {
		must(201, "POST", "/api/workflows", large(
			`{"workflow_id":"large-%d","workflow_type":"x","task_queue":"q","input":["%s"]}`, i))
	})
	var done atomic.Int64
	together("poll for tasks of 1 MB", tasks, func(i int) {
		worker := fmt.Sprintf("w-%d", i)
		poll := fmt.Sprintf(`{"worker_id":%q,"task_queue":"q","timeout_seconds":30,"poll_request_id":"1"}`, worker)
		task, _ := must(200, "POST", "/api/worker/workflow-tasks/poll", poll)["task"].(map[string]any)
		if task == nil {
			return
		}
		must(200, "POST", "/api/worker/workflow-tasks/"+task["task_id"].(string)+"/complete", fmt.Sprintf(
			`{"lease_owner":%q,"workflow_task_attempt":1,"commands":[{"type":"complete_workflow","result":%s}]}`,
			worker, result))
		done.Add(1)
	})
	run, _ := must(201, "POST", "/api/workflows",
		`{"workflow_id":"long","workflow_type":"x","task_queue":"other","input":[]}`)["run_id"].(string)
	together("signals of 1 MB", signals, func(int) {
		must(202, "POST", "/api/workflows/long/signal/s", large(`{"input":["%s"]}`))
	})
	must(200, "POST", "/api/workflows/long/terminate", `{}`)
	paths := map[string]string{
		"results": "/api/sojourn/workflows/large-1/result", "descriptions": "/api/workflows/large-1",
		"histories": "/api/workflows/long/runs/" + run + "/history?page_size=1000",
		"decoded":   "/api/workflows/long/runs/" + run + "/history?page_size=1000&decoded=true",
		"exports":   "/api/workflows/long/runs/" + run + "/history/export",
	}
	for _, name := range []string{"results", "descriptions", "histories", "decoded", "exports"} {
		together(name, readers, func(int) { must(200, "GET", paths[name], "") })
		together(name+" that are not read", readers, func(i int) { a.unread(paths[name]) })
	}
	status, bundle := a.raw("GET", paths["exports"], nil)
	for range 30 { // the previous requests still hold bytes for a moment
		if status == 200 {
			break
		}
		time.Sleep(time.Second)
		status, bundle = a.raw("GET", paths["exports"], nil)
	}
	together("imports", readers/2, func(int) {
		for range 60 {
			if status, _ := a.raw("POST", "/api/workflows/import/bundle", bundle); status != 429 {
				return // 409: the run exists
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	if n := done.Load(); n != int64(tasks) && os.Getenv(memoryAttacks) == "" {
		t.Errorf("%d of %d tasks were delivered and completed", n, tasks)
	}
	if highest > most {
		t.Errorf("the app used %d MB", highest/1_000_000)
	}
}

// forgetPeak resets the peak.
func (a *limitedApp) forgetPeak() {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", a.cmd.Process.Pid), []byte("5"), 0o600); err != nil {
		a.t.Log(err) // the highest peak still counts
	}
}

// raw makes a request with the bootstrap token and returns its whole response.
func (a *limitedApp) raw(method, path string, in []byte) (status int, out []byte) {
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, bytes.NewReader(in))
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+bootstrap)
	apptest.SetVersions(r.Header)
	r.Header.Set("Content-Type", "application/json")
	response, err := a.client.Do(r)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	if out, err = io.ReadAll(response.Body); err != nil {
		return 0, nil
	}
	return response.StatusCode, out
}

// persist repeats a request for which the app has no bytes, and returns the response.
func (a *limitedApp) persist(want int, method, path, in string) (out map[string]any) {
	for range 100 {
		status, raw := a.raw(method, path, []byte(in))
		switch {
		case status == want:
			if json.Unmarshal(raw, &out) != nil {
				a.t.Errorf("%s %s: %.200s", method, path, raw)
			}
			return out
		case status == 429 || status == 503:
			time.Sleep(time.Second) // the value of Retry-After
		case status != 0: // cut for another caller
			a.t.Errorf("%s %s: %d %.200s", method, path, status, raw)
			return nil
		}
	}
	a.t.Errorf("%s %s: no response in 100 attempts", method, path)
	return nil
}

// unread makes a request and does not read the response for a moment.
func (a *limitedApp) unread(path string) {
	conn, err := new(net.Dialer).DialContext(a.t.Context(), "tcp", strings.TrimPrefix(a.url, "http://"))
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n", path, bootstrap)
	versions := http.Header{}
	apptest.SetVersions(versions)
	_ = versions.Write(conn)
	_, _ = fmt.Fprint(conn, "\r\n")
	select {
	case <-time.After(time.Second):
	case <-a.t.Context().Done():
	}
}
