package engine

import (
	"testing"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestUsageOfARun(t *testing.T) {
	open := Head{ID: "r", Status: protocol.RunRunning, Number: 1, Bytes: 100}
	held, closed, next := open, open, open
	held.Held, closed.Status, closed.Bytes, next.Number = protocol.QuotaOpenRuns, protocol.RunCompleted, 150, 2
	for _, c := range []struct {
		name          string
		before, after Head
		want          Usage
	}{
		{"a start", Head{}, open, Usage{OpenRuns: 1, StoredBytes: 100, Starts: 1}},
		{"a step", open, open, Usage{}},
		{"an end", open, closed, Usage{OpenRuns: -1, StoredBytes: 50}},
		{"a run that continues another", Head{}, next, Usage{OpenRuns: 1, StoredBytes: 100}},
		{"a child that is held", Head{}, held, Usage{OpenRuns: 1, HeldRuns: 1, StoredBytes: 100}},
		{"its release", held, open, Usage{HeldRuns: -1, Starts: 1}},
		{"its end while it is held", held, closed, Usage{OpenRuns: -1, HeldRuns: -1, StoredBytes: 50}},
		{"an import", Head{}, closed, Usage{StoredBytes: 150}},
	} {
		if got := RunChanged(RunUsage(&c.before), &c.after, c.before.ID == ""); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestWhichQuotaLeavesNoRoom(t *testing.T) {
	limits := QuotaLimits{OpenRuns: 10, StartsPerSecond: 5, StoredBytes: 1000, Schedules: 2}
	for _, c := range []struct {
		name       string
		s          QuotaStanding
		run, child protocol.Quota
	}{
		{"room", QuotaStanding{limits, Usage{OpenRuns: 9}, 0, 5}, "", ""},
		{"open runs", QuotaStanding{limits, Usage{OpenRuns: 10}, 0, 5}, protocol.QuotaOpenRuns, protocol.QuotaOpenRuns},
		{"held children go first", QuotaStanding{limits, Usage{OpenRuns: 10, HeldRuns: 2}, 0, 5}, protocol.QuotaOpenRuns, ""},
		{"starts", QuotaStanding{limits, Usage{}, 5, 0}, protocol.QuotaStarts, protocol.QuotaStarts},
		{
			"bytes",
			QuotaStanding{limits, Usage{StoredBytes: 1000}, 0, 5},
			protocol.QuotaStoredBytes, protocol.QuotaStoredBytes,
		},
	} {
		name := func(x *QuotaExceeded) protocol.Quota {
			if x == nil {
				return ""
			}
			return x.Quota
		}
		if run, child := name(c.s.NewRun(0, 0)), name(c.s.NewChild(0)); run != c.run || child != c.child {
			t.Errorf("%s: a run %q, a child %q; want %q, %q", c.name, run, child, c.run, c.child)
		}
	}
	room := QuotaStanding{limits, Usage{OpenRuns: 8}, 0, 5}
	if room.NewRun(1, 0) != nil || room.NewRun(2, 0) == nil || room.NewBytes() != nil || room.NewSchedule() != nil {
		t.Error("earlier starts of the same step do not count")
	}
	if full := (QuotaStanding{limits, Usage{OpenRuns: 10}, 0, 1}); full.NewRun(0, 0) == nil || full.NewRun(0, 1) != nil {
		t.Error("a run that the step ends still counts as open")
	} else if x := full.NewRun(1, 2); x == nil || x.Quota != protocol.QuotaStarts {
		t.Errorf("a second start of a step that ends two runs exceeds %+v; want the quota of starts", x)
	}
}

// A firing that terminates the previous run needs no additional open run. If a quota skips a firing, the previous run
// is not terminated.
func TestAFiringAboveAQuota(t *testing.T) {
	for _, c := range []struct {
		overlap  string
		running  bool
		room     int64
		started  bool
		end, why string
	}{
		{protocol.OverlapSkip, false, 1, true, "", ""},
		{protocol.OverlapSkip, false, 0, false, "", "quota_open_runs"},
		{protocol.OverlapSkip, true, 0, false, "", "overlap_policy_skip"},
		{protocol.OverlapAllowAll, true, 0, false, "", "quota_open_runs"},
		{protocol.OverlapTerminate, true, 0, true, "terminate", ""},
		{protocol.OverlapTerminate, true, -1, false, "", "quota_open_runs"},
		{protocol.OverlapCancel, true, -1, false, "", "quota_open_runs"},
		{protocol.OverlapBufferOne, true, 0, false, "", ""},
	} {
		s := &Schedule{Namespace: "n", ID: "s", Status: ScheduleActive, Version: 1, Overlap: c.overlap, Latest: "before"}
		d, err := DecideSchedule(s, s.Key(), ScheduleEnvironment{
			Running: c.running,
			Full: func(others, ended int64) protocol.Quota {
				if others-ended < c.room {
					return ""
				}
				return protocol.QuotaOpenRuns
			},
		}, FireSchedule{At: noon}, noon)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Starts) == 1 != c.started || d.End != c.end || d.Reason != c.why {
			t.Errorf("%s, running %t, room %d: %d starts, end %q, reason %q",
				c.overlap, c.running, c.room, len(d.Starts), d.End, d.Reason)
		}
	}
}
