package cli_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// The backlog of signals of a workflow whose runs receive one each, and the signals that are sent meanwhile.
const (
	inheritBacklog = 120
	inheritLater   = 30
	inheritAll     = inheritBacklog + inheritLater
)

func registerInherit(r *worker.Registry) { r.Workflow("inherit.items", inheritItems) }

// inheritItems receives one item per run and returns the items in the order in which the runs received them. Its first
// run waits for the signal that was sent last.
func inheritItems(ctx workflow.Context, got []int) ([]int, error) {
	if len(got) == 0 {
		if err := workflow.Signal(ctx, "begin").Receive(ctx); err != nil {
			return nil, err
		}
	}
	n, err := workflow.ReceiveSignal[int](ctx, "item")
	if err != nil {
		return nil, err
	}
	if got = append(got, n); len(got) == inheritAll {
		return got, nil
	}
	if err := workflow.Sleep(ctx, 20*time.Millisecond); err != nil {
		return nil, err
	}
	return nil, workflow.ContinueAsNew(ctx, got)
}

// The runs of a chain inherit the signals that the runs before did not receive. Workers and apps are killed meanwhile,
// and more signals arrive: each acknowledged signal is received once, in order, and the history of each run contains
// all that it inherited.
func TestInheritedSignalsSurviveKills(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.app["SOJOURN_TOKEN"] = "sjn_bootstrap_of_this_test_and_long_enough"
			f.worker["SOJOURN_TOKEN"], f.client.token = f.app["SOJOURN_TOKEN"], f.app["SOJOURN_TOKEN"]
			if kind == "postgres" {
				f.app["SOJOURN_DATABASE_URL"] = apptest.Postgres(t)
			}
			f.app["SOJOURN_ATTEMPT_LEASE"] = "3s"
			p := &plant{fleet: f, node: map[string]*process{}}
			apps := []*process{launch(t, f.dir, f.app, "app")}
			f.client.up()
			urls, at := f.client.base, []string{""}
			if kind == "postgres" {
				second := address(t)
				app, base := p.another("second", second)
				apps, at, urls = append(apps, app), append(at, second), urls+","+base
			}
			links := []string{"socket", "http"}
			for i, link := range links {
				p.begin(fmt.Sprint("w", i), env{"SOJOURN_LINK": link, "SOJOURN_APP_URL": urls})
			}
			const id = "inherits"
			p.client.start(id, "inherit.items", []int{})
			signal := func(name string, n int) {
				t.Helper()
				until(t, "the app accepts the signal", func() bool {
					status, _, err := p.client.call(t.Context(), http.MethodPost, "/api/workflows/"+id+"/signal/"+name,
						map[string]any{"input": []any{n}, "request_id": fmt.Sprint(name, n)})
					return err == nil && status < 300
				})
			}
			for n := range inheritBacklog {
				signal("item", n)
			}
			signal("begin", 0)
			for n := range inheritLater {
				signal("item", inheritBacklog+n)
				if n%5 != 4 {
					continue
				}
				switch round := n / 5; {
				case round%2 == 0:
					w := round / 2 % len(links)
					p.node[fmt.Sprint("w", w)].kill()
					p.begin(fmt.Sprint("w", w), env{"SOJOURN_LINK": links[w], "SOJOURN_APP_URL": urls})
				default:
					i := round / 2 % len(apps)
					apps[i].kill()
					if at[i] == "" {
						apps[i] = launch(t, f.dir, f.app, "app")
						f.client.up()
					} else {
						apps[i], _ = p.another("second", at[i])
					}
				}
			}
			var out protocol.RunView
			until(t, "the last run completes", func() bool {
				out = p.client.describe(id)
				return out.Status == "completed"
			})
			checkInherited(t, p.client, id, int(out.RunCount))
		})
	}
}

// checkInherited compares the signals in the history of each run of a chain with the items that the runs before it
// received.
func checkInherited(t *testing.T, c client, id string, runs int) {
	t.Helper()
	var page struct {
		Runs []protocol.RunView `json:"runs"`
	}
	c.must(http.MethodGet, "/api/workflows/"+id+"/runs?page_size=1000", nil, &page)
	if runs != inheritAll || len(page.Runs) != runs {
		t.Fatalf("%d runs, %d are listed, want %d", runs, len(page.Runs), inheritAll)
	}
	slices.SortFunc(page.Runs, func(a, b protocol.RunView) int { return cmp.Compare(a.RunNumber, b.RunNumber) })
	for i, run := range page.Runs {
		if i%10 != 0 && i != runs-1 {
			continue
		}
		next := i // the first item that no earlier run received
		all := c.history(id, run.RunID, nil)
		for _, e := range all {
			s, ok := e.Data.(*history.SignalReceived)
			if !ok || s.SignalName != "item" {
				continue
			}
			var n int
			if err := payload.DecodeArgs(payload.Payload{Blob: s.Value}, &n); err != nil || n != next {
				t.Fatalf("run %d: signal %d, %v; want %d", i+1, n, err, next)
			}
			next++
		}
		if i == runs-1 {
			var got []int
			out := all[len(all)-1].Data.(*history.WorkflowCompleted).Output
			if err := payload.Decode(payload.Payload{Blob: out}, &got); err != nil || next != inheritAll {
				t.Fatalf("the last run: %v, %d items", err, next)
			}
			for n := range inheritAll {
				if got[n] != n {
					t.Fatalf("received %v", got)
				}
			}
		}
	}
}
