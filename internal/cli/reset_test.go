package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The app is killed (SIGKILL) while it resets runs, and starts again. Each acknowledged reset is found when its request
// is repeated. A reset without a response was committed completely or not at all: after the repetition, each workflow
// has two runs. The first has ended, and the second continues without running its completed activity again.
func TestResetsSurviveAKilledApp(t *testing.T) {
	t.Parallel()
	onDatabases(t, "killed", func(p *plant) {
		p.begin("w", nil)
		const workflows, callers = 24, 4
		ids, runs := p.waitingRuns(workflows)
		path := func(id string) string { return resetPath(id, runs[id]) }
		acknowledged := map[string]string{} // new run by workflow ID
		responses := make(chan struct{}, workflows)
		var mu sync.Mutex
		var g sync.WaitGroup
		for i := range callers {
			g.Go(func() {
				for n := i; n < workflows; n += callers {
					status, raw, err := p.client.call(p.t.Context(), http.MethodPost, path(ids[n]), resetBody)
					if err != nil {
						return // the app was killed
					}
					var out protocol.ResetReceipt
					if err := json.Unmarshal(raw, &out); err != nil || status != http.StatusAccepted {
						p.t.Errorf("reset of %s: %d %s %v", ids[n], status, raw, err)
					}
					mu.Lock()
					acknowledged[ids[n]] = out.RunID
					mu.Unlock()
					responses <- struct{}{}
				}
			})
		}
		for range callers {
			<-responses
		}
		p.app.kill()
		g.Wait()
		if len(acknowledged) == workflows {
			p.t.Fatal("the app was killed after the last reset")
		}
		p.app = launch(p.t, p.dir, p.fleet.app, "app")
		p.client.up()

		for _, id := range ids {
			var out protocol.ResetReceipt
			p.client.must(http.MethodPost, path(id), resetBody, &out)
			first, done := acknowledged[id]
			if done && (out.RunID != first || !out.Retained) {
				p.t.Errorf("reset of %s: the first response was %s, the repeated one %+v", id, first, out)
			}
			p.wasResetOnce(id, runs[id], out.RunID)
		}
	})
}

const resetBody = `{"to":"last_task","request_id":"r1"}`

func resetPath(id, run string) string {
	return "/api/sojourn/workflows/" + id + "/runs/" + run + "/reset"
}

// waitingRuns starts n workflows and waits until each waits for a signal after its first activity.
func (p *plant) waitingRuns(n int) (ids []string, runs map[string]string) {
	p.t.Helper()
	runs = map[string]string{}
	for i := range n {
		id := fmt.Sprintf("order-%d", i)
		ids = append(ids, id)
		runs[id] = p.client.start(id, "takeover.two", "", id).RunID
	}
	for _, id := range ids {
		p.waits(id, runs[id])
	}
	return ids, runs
}

// wasResetOnce checks that a workflow has two runs: the first one has ended, and the second one continues without
// running its completed activity again.
func (p *plant) wasResetOnce(id, first, second string) {
	p.t.Helper()
	if v := p.client.describe(id); second == first || v.RunID != second || v.RunCount != 2 {
		p.t.Errorf("after the reset of %s to run %s: current run %s of %d", id, second, v.RunID, v.RunCount)
	}
	old := p.client.history(id, first, nil)
	end, ok := old[len(old)-1].Data.(*history.WorkflowTerminated)
	if !ok || end.NewRunID != second {
		p.t.Errorf("the first run of %s ended with %s", id, old[len(old)-1].Data.Type())
	}
	p.signal(id)
	p.client.completed(id, second)
	for _, item := range []string{id + " before", id} {
		if n := len(p.lines(item)); n != 1 {
			p.t.Errorf("activity %q ran %d times", item, n)
		}
	}
}

// reset resets a run, and repeats the request while the app reports that its database is unavailable.
func (c client) reset(id, run string) (out protocol.ResetReceipt) {
	for {
		status, raw, err := c.call(c.t.Context(), http.MethodPost, resetPath(id, run), resetBody)
		if err == nil && status == http.StatusServiceUnavailable {
			continue
		}
		if err == nil && status < 300 {
			err = json.Unmarshal(raw, &out)
		}
		if err != nil || status >= 300 {
			c.t.Errorf("reset of %s: %d %s %v", id, status, raw, err)
		}
		return out
	}
}

// An app is frozen (SIGSTOP) while callers reset runs at it, and each request is repeated at another app. When the app
// continues (SIGCONT), it responds to the first requests with the same runs: each workflow was reset once.
func TestResetsAreRepeatedWhileAnAppIsFrozen(t *testing.T) {
	t.Parallel()
	p, there := onTwoApps(t)
	const workflows, callers = 24, 4
	ids, runs := p.waitingRuns(workflows)
	responses := map[string]protocol.ResetReceipt{} // of the app that is frozen
	responded := make(chan struct{}, workflows)
	var mu sync.Mutex
	var g sync.WaitGroup
	for i := range callers {
		g.Go(func() {
			for n := i; n < workflows; n += callers {
				out := p.client.reset(ids[n], runs[ids[n]])
				mu.Lock()
				responses[ids[n]] = out
				mu.Unlock()
				responded <- struct{}{}
			}
		})
	}
	for range callers {
		<-responded
	}
	p.signalApp(syscall.SIGSTOP)
	mu.Lock()
	frozen := maps.Clone(responses)
	mu.Unlock()
	if len(frozen) == workflows {
		t.Fatal("the app was frozen after the last reset")
	}
	repeated := map[string]protocol.ResetReceipt{}
	for _, id := range ids {
		repeated[id] = there.reset(id, runs[id])
		if first, ok := frozen[id]; ok && !repeated[id].Retained {
			t.Errorf("reset of %s: the first response was %+v, the repeated one %+v", id, first, repeated[id])
		}
	}
	p.signalApp(syscall.SIGCONT)
	g.Wait()
	for _, id := range ids {
		if responses[id].RunID != repeated[id].RunID {
			t.Errorf("reset of %s: the frozen app reports %+v, the other one %+v", id, responses[id], repeated[id])
		}
		p.wasResetOnce(id, runs[id], repeated[id].RunID)
	}
}

// The packets of the response to a reset are lost, and the connection stays open. The caller gives up and repeats the
// request at another app, which responds with the same run.
func TestAResetIsRepeatedAfterThePacketsOfItsResponseWereLost(t *testing.T) {
	t.Parallel()
	p, there := onTwoApps(t)
	ids, runs := p.waitingRuns(1)
	id, run := ids[0], runs[ids[0]]
	w := openWire(t, &wire{dropped: make(chan []byte, 100)}, []string{strings.TrimPrefix(p.client.base, "http://")})
	silent := p.client
	silent.base, silent.plain = "http://"+w.addr, true
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	ended := make(chan error, 1)
	go func() {
		_, _, err := silent.call(ctx, http.MethodPost, resetPath(id, run), resetBody)
		ended <- err
	}()
	var response []byte
	until(t, "the response is lost", func() bool {
		select {
		case part := <-w.dropped:
			response = append(response, part...)
		default:
		}
		return bytes.Contains(response, []byte(`"run_id":"`)) && bytes.HasSuffix(bytes.TrimSpace(response), []byte("}"))
	})
	giveUp()
	if err := <-ended; err == nil {
		t.Error("the caller has received the response")
	}
	for _, c := range []client{there, p.client} {
		out := c.reset(id, run)
		if !out.Retained || !bytes.Contains(response, []byte(`"run_id":"`+out.RunID+`"`)) {
			t.Errorf("repeated: %+v, the lost response: %s", out, response)
		}
	}
	p.wasResetOnce(id, run, p.client.describe(id).RunID)
}
