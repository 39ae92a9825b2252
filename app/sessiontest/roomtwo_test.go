package sessiontest

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

// counted sums a counter of the apps over all of its labels.
func counted(t *testing.T, name string, apps ...*testServer) (n int) {
	t.Helper()
	for _, p := range apps {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/metrics", nil)
		r.RemoteAddr = "127.0.0.1:1" // without tokens the app serves only this machine
		p.server.Handler().ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("metrics: %d %s", w.Code, w.Body)
		}
		for lines := bufio.NewScanner(w.Body); lines.Scan(); {
			what, value, _ := strings.Cut(lines.Text(), " ")
			if what != name && !strings.HasPrefix(what, name+"{") {
				continue
			}
			v, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			n += v
		}
	}
	return n
}

// The owner has its maximum of sessions and is connected to one app; the session that needs its place comes from
// another app. The owner is notified and releases its session that has been idle for longest. Each app counts only its
// own actions.
func TestSessionIsEvictedForOneOfAnotherApp(t *testing.T) {
	database := apptest.Postgres(t)
	var passed atomic.Int64 // time by which the test advanced the store's clock, and no other clock
	o := serverOptions{Database: database, Shift: func() time.Duration {
		return time.Duration(passed.Load())
	}, Metrics: true}
	h := &harness{t: t, began: time.Now(), testServer: open(t, o)}
	second := open(t, o)
	h.uses(func(r *worker.Registry, p *proc) {
		r.Activity("work", func(ctx context.Context, item string, millis int) (string, error) {
			return p.name, h.work(ctx, p, item, time.Duration(millis)*ms)
		})
	})
	h.flow("one", one)
	h.start("A", plainly, most(2))
	atOther := func(id string) {
		t.Helper()
		a, err := second.Start(
			t.Context(), protocol.StartRequest{WorkflowType: "one", Input: fmt.Appendf(nil, `[%q, %q, 1]`, id, id)},
		)
		if err != nil {
			t.Fatal(err)
		}
		h.equal("who has "+id, output[string](h, a.RunID), "A")
	}
	gaveWay := func(id string) {
		t.Helper()
		if gave := h.last(id); gave.What != "released" || gave.Why != "evicted_cap" || gave.By != "A" || gave.Worker != "A" {
			t.Errorf("%s says %+v, want that A was told and released it", id, gave.SessionEvent)
		}
	}
	for _, id := range []string{"s0", "s1"} {
		output[string](h, h.begin("one", id, id, 1))
	}
	passed.Store(int64(11 * sec))

	atOther("s2")
	gaveWay("s0")
	h.allHeld("A", "s1", "s2")

	atOther("s0") // the evicted session is used again soon after
	gaveWay("s1")
	h.allHeld("A", "s0", "s2")
	if repeated := h.last("s0"); repeated.What != "reclaimed" || !strings.HasPrefix(repeated.Why, "evicted_cap ") {
		t.Errorf("the timeline of s0 ends with %+v, want the release for another session", repeated.SessionEvent)
	}

	for name, want := range map[string]int{
		"sojourn_session_claims_total": 4, "sojourn_session_evictions_total": 2, "sojourn_sessions_thrashed_total": 1,
	} {
		got := counted(t, name, h.testServer, second)
		for late := time.Now().Add(time.Minute); got < want &&
			time.Now().Before(late); got = counted(t, name, h.testServer, second) {
			time.Sleep(10 * ms)
		}
		h.equal(name, got, want)
	}
}
