package engine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The scripts apply commands to one schedule. Every command prints its decision: starts, ends, history entries, and the
// next fire time.
func TestScheduleScripts(t *testing.T) {
	datadriven.Walk(t, "scripts/schedule", func(t *testing.T, path string) {
		var s *Schedule
		now, running, taken := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), false, map[string]bool{}
		runs := map[string]*Run{} // the newest run of a workflow ID, as the command run set it
		key := ScheduleKey{"default", "s"}
		decide := func(in ScheduleInput) string {
			world := ScheduleEnvironment{Running: running, Existing: func(id string) (*Workflow, *Run) {
				if !taken[id] {
					return nil, nil
				}
				return &Workflow{ID: id}, runs[id]
			}}
			before, _ := json.Marshal(s)
			d, err := DecideSchedule(s, key, world, in, now)
			repeated, _ := DecideSchedule(s, key, world, in, now)
			first, _ := json.Marshal(d)
			if second, _ := json.Marshal(repeated); string(second) != string(first) {
				t.Error("deciding twice differs")
			}
			if after, _ := json.Marshal(s); string(after) != string(before) {
				t.Error("the decision changed its input")
			}
			if err != nil {
				return err.Error() + "\n"
			}
			var out strings.Builder
			fmt.Fprintln(&out, d.Outcome, d.Reason)
			if d.End != "" {
				fmt.Fprintln(&out, "end:", d.End)
			}
			for _, start := range d.Starts {
				taken[start.WorkflowID], running = true, true
				fmt.Fprint(&out, "start: ", start.WorkflowID)
				if start.Reuses {
					fmt.Fprint(&out, " again")
				}
				if start.Replaces != "" {
					fmt.Fprint(&out, ", replacing ", start.Replaces)
				}
				fmt.Fprintln(&out)
			}
			for _, e := range d.Events {
				fmt.Fprintln(&out, e.Sequence, e.Type)
			}
			s = d.Next
			if d.Delete {
				s = nil
				return out.String()
			}
			fmt.Fprintf(
				&out, "%s, next %s, due %s, buffered %d\n", s.Status, clock(s.NextFire().Time), clock(s.DueAt().Time),
				len(s.Buffered),
			)
			return out.String()
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			arg := func(name string) (v string) {
				if d.HasArg(name) {
					d.ScanArgs(t, name, &v)
				}
				return v
			}
			request := func() protocol.ScheduleRequest {
				var r protocol.ScheduleRequest
				if err := json.Unmarshal([]byte(d.Input), &r); err != nil {
					d.Fatalf(t, "%v", err)
				}
				return r
			}
			switch d.Cmd {
			case "create":
				return decide(CreateSchedule{request()})
			case "update":
				return decide(UpdateSchedule{request()})
			case "at":
				at, err := time.Parse(time.RFC3339, arg("time"))
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				now = at
				return decide(DueSchedule{})
			case "run": // the newest run of a workflow ID
				runs[arg("id")] = &Run{Head: Head{ID: "old", Status: protocol.RunStatus(arg("status"))}}
				return ""
			case "closed":
				running = false
				return ""
			case "pause":
				return decide(PauseSchedule{Note: arg("note")})
			case "resume":
				return decide(ResumeSchedule{})
			case "trigger":
				return decide(FireSchedule{At: now, Overlap: arg("overlap")})
			case "backfill":
				at, err := time.Parse(time.RFC3339, arg("time"))
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				return decide(FireSchedule{At: at, Backfill: true, Overlap: arg("overlap")})
			case "delete":
				return decide(DeleteSchedule{})
			case "times":
				var spec protocol.ScheduleSpec
				if err := json.Unmarshal([]byte(d.Input), &spec); err != nil {
					d.Fatalf(t, "%v", err)
				}
				c, err := ParseCalendar(spec)
				if err != nil {
					return err.Error() + "\n"
				}
				at, err := time.Parse(time.RFC3339, arg("after"))
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				var out strings.Builder
				for range 4 {
					at = c.Next(at)
					fmt.Fprintln(&out, clock(at))
				}
				return out.String()
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.999Z07:00")
}

func TestJitterStaysWithinItsBoundsAndSpreads(t *testing.T) {
	seen := map[time.Duration]bool{}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 1000 {
		j := jitter(ScheduleKey{"n", "s"}, at.Add(time.Duration(i)*time.Minute), 60)
		if j < 0 || j > time.Minute {
			t.Fatalf("jitter %s of at most a minute", j)
		}
		seen[j/(10*time.Second)] = true
	}
	if len(seen) < 6 {
		t.Errorf("only %d of 6 tenths of a minute were met", len(seen))
	}
}
