package worker_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// page collects the log lines of processes.
type page struct {
	mu   sync.Mutex // guards the fields below
	text bytes.Buffer
}

func (p *page) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(line)
}

func (p *page) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// Arguments, results and tokens appear in no log at any level: neither in successful runs, nor if an activity fails
// with details, nor in nondeterminism errors, which compare the arguments of code and history.
func TestPayloadsAndTokensAreNeverLogged(t *testing.T) {
	const token, payload, wrong = "sjn_bootstrap_secretsecretsecretsecret", "a word of the user's", "sjn_wrong_secretsecret"
	var logs page
	log := zerolog.New(&logs).Level(zerolog.TraceLevel)
	a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) { o.NoAuth, o.Token, o.Log = false, token, log }})
	var changed atomic.Bool
	var carrier link.Carrier = &link.Socket{URLs: []string{a.URL()}}
	for i, name := range []string{"socket", "http"} {
		start(t, a, carrier, func(o *worker.Options) {
			o.WorkerID, o.Token, o.Queues, o.StickyCache = name, token, []string{name}, 1
			o.Logger = slogbridge.Slog(log)
			o.Registry.Workflow("wf", func(ctx workflow.Context, word string) (string, error) {
				if changed.Load() {
					word += ", changed"
					return workflow.Execute[string](ctx, "other", word)
				}
				text, err := workflow.Execute[string](ctx, "say", word)
				if err != nil || text == "" {
					return text, err
				}
				err = workflow.ExecuteActivity(ctx, "fails", word).Get(ctx, nil)
				_ = workflow.Signal(ctx, "go").Receive(ctx, &text)
				return text, err
			})
			o.Registry.Activity("say", func(_ context.Context, word string) (string, error) { return word, nil })
			o.Registry.Activity("other", func(_ context.Context, word string) (string, error) { return word, nil })
			o.Registry.Activity("fails", func(_ context.Context, word string) error {
				return activity.NewError("refused", "it will not", activity.NonRetryable, activity.Details(word))
			})
		})
		begin := func() protocol.Target {
			run, err := a.Broker().Start(t.Context(), protocol.StartRequest{
				WorkflowType: "wf", TaskQueue: name, Input: []byte(`["` + payload + `"]`),
			})
			if err != nil {
				t.Fatal(err)
			}
			return protocol.Target{WorkflowID: run.WorkflowID, RunID: run.RunID}
		}
		signal := func(to protocol.Target) {
			if _, err := a.Broker().Signal(t.Context(), protocol.SignalRequest{
				Target: to, SignalName: "go", Input: []byte(`["` + payload + `"]`),
			}); err != nil {
				t.Fatal(err)
			}
		}
		waits := func(to protocol.Target, reason protocol.WaitReason) {
			for late := time.Now().Add(ceiling); ; time.Sleep(5 * time.Millisecond) {
				v, err := a.View().Describe(t.Context(), to)
				if err != nil || time.Now().After(late) {
					t.Fatal(err, v.WaitReason)
				}
				if v.Wait != nil && v.Wait.Reason == reason {
					return
				}
			}
		}
		stale := begin()
		waits(stale, protocol.WaitSignal)
		run := begin() // the cache has room for one run, so it evicts stale
		waits(run, protocol.WaitSignal)
		signal(run)
		end(t, a, run.RunID)
		changed.Store(true)
		signal(stale)
		waits(stale, protocol.WaitQuarantined)
		changed.Store(false)

		for _, bearer := range []string{token, wrong} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.URL()+"/api/workflows", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+bearer)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
		if i == 0 {
			carrier = &link.HTTP{URLs: []string{a.URL()}}
		}
	}
	all := logs.String()
	if n := strings.Count(all, "non-deterministic workflow code"); n < 2 || strings.Count(all, "refused") < 2 {
		t.Errorf("the log does not contain the failure:\n%s", all)
	}
	secrets := []string{payload, token, wrong}
	for i := range 3 { // as a part of an encoded value, wherever in it that begins
		whole := payload[i:]
		secrets = append(secrets, base64.StdEncoding.EncodeToString([]byte(whole[:len(whole)/3*3])))
	}
	for _, never := range secrets {
		if strings.Contains(all, never) {
			for line := range strings.Lines(all) {
				if strings.Contains(line, never) {
					t.Errorf("%q is logged: %s", never, line)
				}
			}
		}
	}
}
