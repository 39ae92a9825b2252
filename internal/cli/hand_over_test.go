package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func registerHandOver(r *worker.Registry) {
	r.Session("handover.model", activity.SessionDefinition{SetUp: setUpSlowly, HandOver: activity.HandOverPrepare})
	r.Workflow("handover.one", oneInModel)
}

// setUpSlowly waits for a file of the test if a successor runs it.
func setUpSlowly(ctx context.Context) (*string, error) {
	me := activity.Info(ctx).WorkerID
	for activity.SessionEpoch(ctx) == 0 && ctx.Err() == nil {
		if _, err := os.Stat(wordFor(os.Getenv(holdPath), "set-up", me)); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return &me, ctx.Err()
}

// oneInModel is oneStep in a session with a definition.
func oneInModel(ctx workflow.Context, session string) (string, error) {
	in := workflow.InSession(ctx, session, workflow.SessionDefinition{Name: "handover.model"})
	return workflow.Execute[string](in, workItem, "item", true)
}

// While an operator drains a worker, its session without a definition is released, and another worker prepares the
// other one. "workers drain --wait", of the worker or of its build, and "sessions describe" show each step of it.
func TestOperatorsSeeAHandOver(t *testing.T) {
	t.Parallel()
	onDatabases(t, "drain", func(p *plant) {
		p.worker = p.worker.with(env{
			"SOJOURN_ATTEMPT_LEASE": "20s", "SOJOURN_SESSION_LEASE": "20s", "SOJOURN_SESSION_BUFFER": "5s",
		})
		p.begin("a", env{"SOJOURN_BUILD_ID": "old"})
		idle := p.client.start("idle", "killed.one.word", "idle").RunID
		p.client.completed("idle", idle)
		run := p.client.start("model", "handover.one", "model").RunID
		p.noted("item", 1)
		p.begin("b", nil)
		if s := p.session("model"); s.Successor != nil {
			p.t.Errorf("a successor before the drain: %+v", s.Successor)
		}
		access := env{"SOJOURN_TOKEN": p.client.token, "SOJOURN_APP_URL": p.client.base}
		lines := launch(p.t, p.dir, access, "workers", "drain", "a", "--wait")
		lines.line(lines.out, `^session model: preparing at b, 1 running$`)
		lines.line(lines.out, `^session idle: released by a$`)
		objects := launch(p.t, p.dir, access, "workers", "drain", "--build", "old", "--wait", "--json")
		objects.line(objects.out, `"state":"preparing"`)
		s := p.session("model")
		if s.LeaseOwner == nil || *s.LeaseOwner != "a" || s.Successor == nil || s.Successor.WorkerID != "b" ||
			s.Successor.StartedAt.IsZero() || !s.Successor.PreparedAt.IsZero() || s.Successor.LeaseExpiresAt.IsZero() {
			p.t.Errorf("while b prepares: %+v", s.Successor)
		}
		p.shows("successor          b, preparing since 2", "preparing (set-up by successor)")

		p.let("set-up", "b")
		lines.line(lines.out, `^session model: prepared at b, waits for 1 running$`)
		objects.line(objects.out, `"state":"prepared"`)
		if s := p.session("model"); s.Successor == nil || s.Successor.PreparedAt.IsZero() {
			p.t.Errorf("after the set-up of b: %+v", s.Successor)
		}
		p.shows("successor          b, prepared since 2", "waits for 1 running activities", "prepared (set-up by successor ended")

		p.let("item", "a")
		for _, waiting := range []*process{lines, objects} {
			if code := waiting.exit(); code != 0 {
				p.t.Errorf("%s ends with %d", waiting.name, code)
			}
		}
		lines.line(lines.out, `^session model: handed over to b$`)
		lines.line(lines.out, `^worker a: drained, 1 of 1 workers drained$`)
		var states []string
		all, _ := objects.out.all()
		for _, l := range all {
			var v struct {
				Session   string `json:"session_id"`
				Worker    string `json:"worker_id"`
				State     string `json:"state"`
				Successor string `json:"successor"`
			}
			if err := json.Unmarshal([]byte(l), &v); err != nil || v.Session != "" && v.Worker != "a" {
				p.t.Errorf("line %q: %v", l, err)
			}
			if v.Session != "" {
				states = append(states, v.Session+" "+v.State+" "+v.Successor)
			}
		}
		if want := []string{"model preparing b", "model prepared b", "model handed_over b"}; !slices.Equal(states, want) {
			p.t.Errorf("the lines are %q, want %q", states, want)
		}
		p.client.completed("model", run)
		if s := p.session("model"); s.Successor != nil || s.LeaseOwner == nil || *s.LeaseOwner != "b" {
			p.t.Errorf("after the hand-over: %+v", s)
		}
	})
}

// shows checks the output of "sessions describe model".
func (p *plant) shows(texts ...string) {
	p.t.Helper()
	out := p.sojourn("sessions", "describe", "model")
	for _, text := range texts {
		if !strings.Contains(out, text) {
			p.t.Errorf("no %q in\n%s", text, out)
		}
	}
}
