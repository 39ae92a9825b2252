package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"

	"github.com/gorilla/websocket"
)

// memoryRounds is an environment variable. If it is set, the test runs that number of rounds, with more attacks.
const memoryRounds = "SOJOURN_TEST_MEMORY_ROUNDS"

// memoryAttacks is a pattern of the attacks to make; all when it is not set.
const memoryAttacks = "SOJOURN_TEST_MEMORY_ATTACKS"

// limitedApp is an app with a memory limit: a control group if this process can create one, which kills the app above
// the limit, otherwise GOMEMLIMIT and a check of the peak.
type limitedApp struct {
	*process
	t      *testing.T
	url    string
	client *http.Client
}

func launchLimited(t *testing.T, limit int64, e env, args ...string) *limitedApp {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, addr := t.TempDir(), address(t)
	e = env{"SOJOURN_TOKEN": bootstrap, "GODEBUG": os.Getenv("GODEBUG")}.with(e)
	enter := ":"
	if group, procs := memoryGroup(t, limit); group != "" {
		enter = "echo $$ > " + filepath.Join(group, procs)
	} else {
		e["GOMEMLIMIT"] = strconv.FormatInt(limit, 10)
	}
	args = append([]string{
		"-c", enter + ` && exec "$0" "$@"`, self, "app", "--addr=" + addr,
		"--database-url=sqlite:" + filepath.Join(dir, "a.db"), "--log-level=warn",
	}, args...)
	a := &limitedApp{process: launchAs(t, "/bin/sh", dir, e, args...), t: t, url: "http://" + addr}
	a.client = &http.Client{
		Timeout: 90 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 400, DisableCompression: true},
	}
	until(t, "the app answers", func() bool {
		status, _ := a.ask("GET", "/up", "", nil)
		return status == 200
	})
	return a
}

const bootstrap = "memory-test-bootstrap-token"

// memoryGroup makes a control group of this size; "" where that is not allowed.
func memoryGroup(t *testing.T, limit int64) (dir, procs string) {
	for _, g := range []struct{ parent, limit, procs string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "cgroup.procs"},
		{"/sys/fs/cgroup", "memory.max", "cgroup.procs"},
	} {
		dir = filepath.Join(g.parent, fmt.Sprintf("sojourn-test-%d-%d", os.Getpid(), rand.IntN(1e9)))
		if os.Mkdir(dir, 0o700) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if os.WriteFile(filepath.Join(dir, g.limit), []byte(strconv.FormatInt(limit, 10)), 0o600) == nil {
			return dir, g.procs
		}
	}
	return "", ""
}

// peak returns the peak memory of the app, including the pages of its binary, which no limit counts.
func (a *limitedApp) peak() int64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n << 10
		}
	}
	return 0
}

// ask sends a request; status 0: the app closed the connection.
func (a *limitedApp) ask(method, path, token string, body io.Reader) (status int, raw []byte) {
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, body)
	if err != nil {
		return 0, nil
	}
	if s, ok := body.(*filler); ok {
		r.ContentLength = s.size
	}
	r.Header.Set("Content-Type", "application/json")
	apptest.SetVersions(r.Header)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := a.client.Do(r)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	raw, _ = io.ReadAll(io.LimitReader(response.Body, 4096))
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode, raw
}

// filler is a body that is generated while it is sent, so that the test needs no memory for it.
type filler struct {
	size             int64
	head, tail, unit string
	at               int64
}

func (f *filler) Read(p []byte) (int, error) {
	if f.at >= f.size {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && f.at < f.size {
		switch left := f.size - f.at; {
		case f.at < int64(len(f.head)):
			p[n] = f.head[f.at]
		case left <= int64(len(f.tail)):
			p[n] = f.tail[int64(len(f.tail))-left]
		default:
			p[n] = f.unit[(f.at-int64(len(f.head)))%int64(len(f.unit))]
		}
		n++
		f.at++
	}
	return n, nil
}

func body(size int64, head, unit, tail string) *filler {
	units := (size - int64(len(head)+len(tail))) / int64(len(unit))
	return &filler{size: int64(len(head)+len(tail)) + units*int64(len(unit)), head: head, unit: unit, tail: tail}
}

// all runs fn on n goroutines and waits for them.
func all(n int, fn func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { fn(i) })
	}
	group.Wait()
}

// The app is limited to 256 MiB. On every listener and route, 200 connections send the largest allowed body, with the
// token of each role and without one. /up responds throughout, and acknowledged data is stored.
func TestAnAppOf256MiBSurvivesTheLargestBodies(t *testing.T) {
	const limit, connections, binary = 256 << 20, 200, 40 << 20
	rounds, roles, long := 1, []string{"none", "writer", "worker"}, os.Getenv(memoryRounds) != ""
	if long {
		roles = []string{"none", "wrong", "viewer", "writer", "worker", "operator", "admin"}
	}
	if n, err := strconv.Atoi(os.Getenv(memoryRounds)); err == nil {
		rounds = n
	}
	a := launchLimited(t, limit, nil)
	tokens := map[string]string{"none": "", "wrong": "sjn_aaaa_wrong"}
	for _, role := range []string{"viewer", "writer", "worker", "operator", "admin"} {
		in := strings.NewReader(fmt.Sprintf(`{"name":%[1]q,"roles":[%[1]q]}`, role))
		status, raw := a.ask("POST", "/api/tokens", bootstrap, in)
		var created struct{ Token string }
		if status != 201 || json.Unmarshal(raw, &created) != nil {
			t.Fatalf("a token: %d %s", status, raw)
		}
		tokens[role] = created.Token
	}
	status, raw := a.ask("POST", "/api/tokens", bootstrap, strings.NewReader(`{"name":"bystander","roles":["writer"]}`))
	var bystander struct{ Token string }
	if status != 201 || json.Unmarshal(raw, &bystander) != nil {
		t.Fatalf("a token: %d %s", status, raw)
	}
	ctx, end := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	var probes, unanswered, acknowledged, refused atomic.Int64
	var ids sync.Map
	probe := http.Client{Timeout: 20 * time.Second}
	watch.Go(func() {
		for ctx.Err() == nil {
			response, err := probe.Get(a.url + "/up")
			if probes.Add(1); err != nil || response.StatusCode != 200 {
				unanswered.Add(1)
				t.Logf("/up: %v", err)
			}
			if err == nil {
				_ = response.Body.Close()
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	watch.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			id := fmt.Sprintf("acknowledged-%d", i)
			start := fmt.Sprintf(`{"workflow_id":%q,"workflow_type":"x","task_queue":"nobody","input":["x"]}`, id)
			if status, raw := a.ask("POST", "/api/workflows", bystander.Token, strings.NewReader(start)); status == 201 {
				ids.Store(id, true)
				acknowledged.Add(1)
			} else if ctx.Err() == nil {
				refused.Add(1)
				t.Logf("a start of a bystander: %d %.200s", status, raw)
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	alive := func(what string) {
		t.Helper()
		select {
		case <-a.ended:
			t.Fatalf("%s: the app ended: %v\n%s", what, a.cmd.ProcessState, a)
		default:
		}
		t.Logf("%-40s peak %d MiB", what, a.peak()>>20)
	}
	shapes := []func(int64) *filler{
		func(n int64) *filler { return body(n, `{"x":"`, "x", `"}`) },
		func(n int64) *filler { return body(n, `{"workflow_type":"x","input":[`, "[],", `1]}`) },
		func(n int64) *filler { return body(n, `{"items":[`, "{},", `{}]}`) },
		func(n int64) *filler { return body(n, `{"workflow_type":"x","input":[{"a":1,"a":2},`, "[],", `1]}`) },
		func(n int64) *filler { return body(n, ``, "[", ``) },
		func(n int64) *filler { return body(n, `{"workflow_type":"x","input":["`, "x", `"]}`) },
	}
	type attack struct {
		name string
		each func(i int)
	}
	attacks := []attack{
		{"unfinished frames before CONNECT", func(int) { a.unfinishedFrame(ctx) }},
		{"polling bodies before CONNECT", func(int) { a.pollingPost() }},
		{"sign-ins", func(int) { a.ask("POST", "/api/sojourn/login", "", body(1_900_000, `{"token":"`, "x", `"}`)) }},
		{"frames of workers", func(int) { a.largeFrames(ctx, tokens["worker"]) }},
	}
	for _, role := range roles {
		token := tokens[role]
		var next atomic.Int64
		routes := apptest.Routes()
		attacks = append(attacks, attack{"every route as " + role, func(i int) {
			for n := int(next.Add(1)) - 1; n < len(routes) && ctx.Err() == nil; n = int(next.Add(1)) - 1 {
				rt := routes[n%len(routes)]
				if rt.Shape.Body != nil && !strings.HasSuffix(rt.Pattern, "/poll") {
					a.ask(rt.Method, pathFor(rt), token, shapes[(n+i)%len(shapes)](largest(rt)))
				}
			}
		}})
	}
	for i, shape := range shapes {
		if !long && i != 2 {
			continue
		}
		attacks = append(attacks,
			attack{fmt.Sprintf("starts of shape %d", i), func(int) {
				a.ask("POST", "/api/workflows", tokens["writer"], shape(2<<20))
			}},
			attack{fmt.Sprintf("outcomes of shape %d", i), func(int) {
				a.ask("POST", "/api/worker/tasks/complete", tokens["worker"], shape(8<<20))
			}},
			attack{fmt.Sprintf("queries of shape %d", i), func(int) {
				a.ask("POST", "/api/workflows/acknowledged-0/query/q", tokens["viewer"], shape(2<<20))
			}},
		)
	}
	for range rounds {
		for _, attack := range attacks {
			if only := os.Getenv(memoryAttacks); only != "" && !regexp.MustCompile(only).MatchString(attack.name) {
				continue
			}
			all(connections, attack.each)
			alive(attack.name)
		}
	}
	end()
	watch.Wait()
	alive("at the end")
	if unanswered.Load() > 0 || probes.Load() < 10 {
		t.Errorf("%d of %d probes were not answered", unanswered.Load(), probes.Load())
	}
	if refused.Load() > 0 || acknowledged.Load() == 0 {
		t.Errorf("%d starts of a bystander were refused, %d acknowledged", refused.Load(), acknowledged.Load())
	}
	ids.Range(func(id, _ any) bool {
		if status, raw := a.ask("GET", "/api/workflows/"+id.(string), tokens["viewer"], nil); status != 200 {
			t.Errorf("acknowledged workflow %s: %d %s", id, status, raw)
		}
		return true
	})
	if peak := a.peak(); peak > limit+binary {
		t.Errorf("the app used %d MiB", peak>>20)
	}
}

// largest returns the maximum size of a route's body.
func largest(rt apptest.Route) int64 {
	if rt.Shape.MaxBody > 0 {
		return rt.Shape.MaxBody
	}
	return 2 << 20
}

func pathFor(rt apptest.Route) string {
	parts := strings.Split(rt.Pattern, "/")
	for i, p := range parts {
		if strings.HasPrefix(p, "{") {
			parts[i] = "acknowledged-0"
		}
	}
	return strings.Join(parts, "/")
}

func (a *limitedApp) socket(ctx context.Context) *websocket.Conn {
	at := strings.Replace(a.url, "http", "ws", 1) + "/api/socket.io/?EIO=4&transport=websocket"
	ws, _, err := websocket.DefaultDialer.DialContext(ctx, at, nil)
	if err != nil {
		return nil
	}
	return ws
}

// unfinishedFrame sends a frame of 8 MB without its end, and keeps the connection open for a moment.
func (a *limitedApp) unfinishedFrame(ctx context.Context) {
	ws := a.socket(ctx)
	if ws == nil {
		return
	}
	defer func() { _ = ws.Close() }()
	raw := ws.NetConn()
	_ = raw.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := raw.Write([]byte{0x81, 0xff, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0, 0, 0, 0}); err != nil {
		return
	}
	_, _ = io.CopyN(raw, neverEnding{}, 8_000_000)
	_, _ = io.Copy(io.Discard, raw)
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) { return len(p), nil }

// pollingPost opens a session and sends a body of 8 MB on it.
func (a *limitedApp) pollingPost() {
	const at = "/api/socket.io/?EIO=4&transport=polling"
	_, raw := a.ask("GET", at, "", nil)
	var open struct{ SID string }
	if len(raw) == 0 || json.Unmarshal(raw[1:], &open) != nil {
		return
	}
	a.ask("POST", at+"&sid="+open.SID, "", body(8_000_000, "4", "x", ""))
}

// largeFrames joins as a worker and sends a call of 8 MB.
func (a *limitedApp) largeFrames(ctx context.Context, token string) {
	ws := a.socket(ctx)
	if ws == nil {
		return
	}
	defer func() { _ = ws.Close() }()
	_ = ws.SetReadDeadline(time.Now().Add(30 * time.Second))
	_, _, _ = ws.ReadMessage()
	connect := fmt.Appendf(nil, `40{"token":%q,"workerId":"w","protocol":1}`, token)
	if ws.WriteMessage(websocket.TextMessage, connect) != nil {
		return
	}
	_, created, err := ws.ReadMessage()
	if err != nil || !bytes.HasPrefix(created, []byte("40")) {
		a.t.Logf("CONNECT: %.200s %v", created, err)
		return
	}
	w, err := ws.NextWriter(websocket.TextMessage)
	if err != nil {
		return
	}
	_, err = io.Copy(w, body(8_000_000, `421["call",{"method":"completeJob","payload":{"items":[`, "{},", `{}]}}]`))
	if err == nil && w.Close() == nil {
		_, _, _ = ws.ReadMessage()
	}
}
