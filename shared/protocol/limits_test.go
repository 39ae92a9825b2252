package protocol

import (
	"errors"
	"strings"
	"testing"
)

type limited struct {
	embedded
	Name     string   `json:"name" minLength:"1" maxLength:"3"`
	Note     *string  `json:"note,omitempty" maxLength:"3"`
	Policy   string   `json:"policy,omitempty" enum:"fail,keep"`
	Seconds  int64    `json:"seconds,omitempty" minimum:"2" maximum:"4"`
	Runs     *int     `json:"runs,omitempty" minimum:"1"`
	Queues   []string `json:"queues,omitempty" maxItems:"2" each:"3"`
	Unlisted string   `json:"-" maxLength:"1"`
}

type embedded struct {
	Reason string `json:"reason,omitempty" maxLength:"3"`
}

func TestARequestIsCheckedAgainstTheLimitsInItsTags(t *testing.T) {
	zero, text := 0, func(s string) *string { return &s }
	for _, c := range []struct {
		what   string
		change func(*limited)
		field  string // empty: it is within all limits
	}{
		{"within all", func(*limited) {}, ""},
		{"no name", func(l *limited) { l.Name = "" }, "name"},
		{"a long name", func(l *limited) { l.Name = "four" }, "name"},
		{"bytes are counted, not characters", func(l *limited) { l.Name = "üü" }, "name"},
		{"a note that was left empty", func(l *limited) { l.Note = text("") }, ""},
		{"a long note", func(l *limited) { l.Note = text("four") }, "note"},
		{"a policy there is", func(l *limited) { l.Policy = "keep" }, ""},
		{"a policy there is not", func(l *limited) { l.Policy = "keep,fail" }, "policy"},
		{"the least", func(l *limited) { l.Seconds = 2 }, ""},
		{"the most", func(l *limited) { l.Seconds = 4 }, ""},
		{"less", func(l *limited) { l.Seconds = 1 }, "seconds"},
		{"more", func(l *limited) { l.Seconds = 5 }, "seconds"},
		{"below nothing", func(l *limited) { l.Seconds = -1 }, "seconds"},
		{"zero that was said", func(l *limited) { l.Runs = &zero }, "runs"},
		{"as many as may be", func(l *limited) { l.Queues = []string{"a", "b"} }, ""},
		{"too many", func(l *limited) { l.Queues = []string{"a", "b", "c"} }, "queues"},
		{"an empty one", func(l *limited) { l.Queues = []string{"a", ""} }, "queues.1"},
		{"a long one", func(l *limited) { l.Queues = []string{"four"} }, "queues.0"},
		{"in what is embedded", func(l *limited) { l.Reason = "four" }, "reason"},
		{"what no request says", func(l *limited) { l.Unlisted = "four" }, ""},
	} {
		in := limited{Name: "one"}
		c.change(&in)
		for _, err := range []error{CheckLimits(in), CheckLimits(&in)} {
			var refusal *Error
			switch {
			case c.field == "" && err != nil:
				t.Errorf("%s: refused: %v", c.what, err)
			case c.field != "" && (!errors.As(err, &refusal) || refusal.Fields[c.field] == nil):
				t.Errorf("%s: %v, wanted a refusal of %s", c.what, err, c.field)
			}
		}
	}
}

// The first check of a type parses its tags. Later checks of valid requests allocate no memory.
func TestLimitsAreReadOnce(t *testing.T) {
	in := PollRequest{WorkerID: "w", PollID: strings.Repeat("p", 20), Max: 10}
	if err := CheckLimits(&in); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { _ = CheckLimits(&in) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// CheckCommand checks the members that a command reads against their tags, and reports the path of the invalid member.
func TestCommandsAreCheckedByTheirTags(t *testing.T) {
	at := func(member string) string { return "commands.3." + member }
	for _, c := range []struct {
		what    string
		command Command
		refused string // path and error; empty: valid
	}{
		{"all it needs", Command{Type: CancelTimer, Target: 1}, ""},
		{"nothing of what it needs", Command{Type: CancelTimer}, "target: is needed"},
		{"less than the least", Command{Type: CancelTimer, Target: -1}, "target: must be at least 1"},
		{"one of those of which one is needed", Command{Type: FailUpdate, UpdateID: "u", ExceptionClass: "E"}, ""},
		{"none of those", Command{Type: FailUpdate, UpdateID: "u", Exception: []byte{}}, "message: is needed"},
		{
			"a time that was said to be 0",
			Command{Type: ScheduleActivity, ActivityType: "a", Heartbeat: -1},
			"heartbeat_timeout: must be between 1 and 315360000",
		},
		{"what it does not read", Command{Type: CompleteWorkflow, Heartbeat: -1, Queue: strings.Repeat("q", 256)}, ""},
		{
			"a queue it reads",
			Command{Type: ContinueAsNew, Queue: strings.Repeat("q", 256)},
			"queue: is longer than 255 bytes",
		},
		{
			"a delay that no clock can add",
			Command{Type: StartTimer, Delay: new(int64), DelayMicros: 1 << 62},
			"delay_micros: must be between 0 and 315360000000000",
		},
	} {
		got, want := "", c.refused
		if err := CheckCommand(&c.command, at); err != nil {
			got = err.Error()
		}
		if want != "" {
			want = "validation_failed: commands.3." + want
		}
		if got != want {
			t.Errorf("%s: %q, want %q", c.what, got, want)
		}
	}
	for _, o := range []SessionOptions{{}, {TTL: NoTTL}, {Lease: 1, TTL: 1}} {
		if err := CheckLimits(o); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if err := CheckLimits(SessionOptions{TTL: wrongTTL}); err == nil {
		t.Error("a session that lives for no time was taken")
	}
	c := Command{Type: ScheduleActivity, ActivityType: "a", Queue: "q", StartToClose: 5}
	if n := testing.AllocsPerRun(100, func() { _ = CheckCommand(&c, at) }); n > 0 {
		t.Errorf("%v allocations for a command within its limits", n)
	}
}
