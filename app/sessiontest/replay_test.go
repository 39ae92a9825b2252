package sessiontest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/internal/config"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// onSession is a workflow of one activity in a session, and another one after a signal.
func onSession(session string) func(workflow.Context) (string, error) {
	return func(ctx workflow.Context) (string, error) {
		if _, err := in(ctx, session, "input", 10); err != nil {
			return "", err
		}
		if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
			return "", err
		}
		return in(ctx, session, "after", 10)
	}
}

// Sessions in histories, and code that does not match its history.
func TestReplay(t *testing.T) {
	for _, c := range []struct{ name, session string }{{"IS-R1", "sess-1"}, {"IS-R2", ""}} {
		bubble(t, c.name, func(h *harness) {
			h.flow("wf", onSession(c.session))
			h.start("A")
			run := h.begin("wf")
			h.done("input")
			d := h.events(run)[1].Data.(*history.ActivityScheduled)
			h.equal("activity and session", d.ActivityType+" "+d.SessionID, "work "+c.session)
			var item string
			var millis int
			if err := payload.DecodeArgs(payload.Payload{Blob: d.Arguments}, &item, &millis); err != nil || item != "input" ||
				millis != 10 {
				h.t.Errorf("input: %q, %d, %v", item, millis, err)
			}
			raw, err := history.EncodeData(d)
			if err != nil || strings.Contains(string(raw), "session") != (c.session != "") {
				h.t.Errorf("event: %s, %v", raw, err)
			}
		})
	}

	bubble(t, "IS-R3", func(h *harness) {
		h.flow("wf", onSession("s"))
		a := h.start("A")
		run := h.begin("wf")
		h.done("input")
		h.wait(100 * ms)
		a.stop()
		h.start("B") // replays from the beginning
		h.signal(run, "go")
		h.equal("result", output[string](h, run), "B")
		h.equal("runs", len(h.did("input")), 1)
	})

	for _, c := range []struct{ was, is string }{{"s", "t"}, {"", "t"}, {"s", ""}} {
		bubble(t, fmt.Sprintf("IS-R4/%q is now %q", c.was, c.is), func(h *harness) {
			h.flow("wf", onSession(c.was))
			a := h.start("A")
			run := h.begin("wf")
			h.done("input")
			h.wait(100 * ms)
			a.stop()
			h.setup = h.setup[:1]
			h.flow("wf", onSession(c.is))
			h.start("B")
			h.signal(run, "go")
			why := ""
			h.until("the run is held", time.Second, func() bool {
				v, err := h.Describe(h.t.Context(), protocol.Target{RunID: run})
				if err != nil {
					h.t.Fatal(err)
				}
				if v.Quarantined != nil {
					why = *v.Quarantined
				}
				return why != ""
			})
			for _, id := range []string{c.was, c.is} {
				text := fmt.Sprintf("in session %q", id)
				if id == "" {
					text = "without a session"
				}
				if !strings.Contains(why, text) {
					h.t.Errorf("%q does not say %q", why, text)
				}
			}
			h.equal("activities scheduled", count(h.types(run), "ActivityScheduled"), 1)
		})
	}
}

// The forms in which sessions are stored and transmitted, and their settings.
func TestUnits(t *testing.T) {
	encode := func(t *testing.T, v any) string {
		t.Helper()
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	t.Run("IS-U1", func(t *testing.T) {
		raw, err := history.EncodeData(&history.ActivityScheduled{Sequence: 1, ActivityType: "x", SessionID: "s 1"})
		if err != nil {
			t.Fatal(err)
		}
		d, err := history.DecodeData("ActivityScheduled", raw)
		if got, ok := d.(*history.ActivityScheduled); !ok || got.SessionID != "s 1" || got.ActivityType != "x" {
			t.Errorf("got %+v, %v", d, err)
		}
	})
	t.Run("IS-U2", func(t *testing.T) {
		raw, err := history.EncodeData(&history.ActivityScheduled{Sequence: 1, ActivityType: "x"})
		if err != nil || strings.Contains(string(raw), "session") {
			t.Errorf("got %s, %v", raw, err)
		}
	})
	t.Run("IS-U3", func(t *testing.T) {
		d, err := history.DecodeData("ActivityScheduled", []byte(`{"sequence":1,"activity_type":"x"}`))
		if got, ok := d.(*history.ActivityScheduled); !ok || got.SessionID != "" || got.Session != nil {
			t.Errorf("got %+v, %v", d, err)
		}
	})
	t.Run("IS-U4", func(t *testing.T) {
		for _, id := range []string{"s", ""} {
			stored := engine.Activity{Type: "x", SessionID: id}
			var back engine.Activity
			if err := json.Unmarshal([]byte(encode(t, stored)), &back); err != nil || back.SessionID != id {
				t.Errorf("stored: %+v, %v", back, err)
			}
			sent := protocol.ActivityTask{TaskID: "t"}
			if id != "" {
				sent.Session = &protocol.SessionAffinity{SessionID: id, Epoch: 7}
			}
			text := encode(t, sent)
			var got protocol.ActivityTask
			if err := json.Unmarshal([]byte(text), &got); err != nil || (got.Session != nil) != (id != "") ||
				strings.Contains(text, "session") != (id != "") {
				t.Errorf("sent: %s, %v", text, err)
			}
			if id != "" && (got.Session.SessionID != id || got.Session.Epoch != 7) {
				t.Errorf("sent: %+v", got.Session)
			}
		}
		var old engine.Activity
		if err := json.Unmarshal([]byte(`{"type":"x","queue":"default","state":"ready"}`), &old); err != nil ||
			old.SessionID != "" || old.State != engine.Ready {
			t.Errorf("old: %+v, %v", old, err)
		}
	})
	t.Run("IS-U5", func(t *testing.T) {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		config.Register(flags, config.Worker)
		c, _, _, err := config.Load(flags, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintln(
			c.SessionLease, c.SessionBuffer, c.SessionIdle, c.SessionCleanup, c.WorkerMaxSessions, c.WorkerID == "",
		)
		if want := fmt.Sprintln(30*sec, 5*sec, 5*time.Minute, 5*time.Minute, "auto", true); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		bubble(t, "without settings of the worker", func(h *harness) { // the worker uses the defaults of the app
			h.flow("one", one)
			h.start("A", byDefault)
			output[string](h, h.begin("one", "s", "item", 10))
			v, err := h.View.Worker(h.t.Context(), "", "A")
			if err != nil {
				h.t.Fatal(err)
			}
			h.equal("sessions held at most", v.MaxSessions, 1000)
			s, _ := h.row("s")
			h.between("the lease ends", s.LeaseUntil.Sub(h.began), 30*sec, 31*sec)
			h.equal("idle", time.Duration(s.Idle)*time.Microsecond, 5*time.Minute)
			h.wait(31 * sec) // the lease was renewed before its last 5 s
			s, _ = h.row("s")
			h.between("the lease ends", s.LeaseUntil.Sub(h.began), 50*sec, 62*sec)
			h.equal("owner", s.Owner, "A")
			h.wait(5*time.Minute + 31*sec)
			h.equal("owner of an idle one", h.owner("s"), "")
		})
	})
}
