package engine

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/sojourn-run/sojourn/shared/history"
)

// The engine decides equally whether runs inherit signals as copies or by an inbox, for code of every runtime and with
// any number of ranges: the same signals count as handled, and the events are the same.
func TestInheritingByAnInboxEqualsInheritingCopies(t *testing.T) {
	inheritWithoutCopies(t, 0, maxInboxRanges)
	inherited, again := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		copies, inbox := newStage(), newStage()
		ranges := rapid.SampledFrom([]int{1, 2, 256}).Draw(rt, "ranges")
		both := func(d *datadriven.TestData) {
			maxCopied = 1 << 30
			want := copies.play(t, d)
			maxCopied, maxInboxRanges = 0, ranges
			before := inbox.run
			got := inbox.play(t, d)
			if got != want || inbox.run.show() != copies.run.show() {
				rt.Fatalf("%s %s: with copies\n%s%s\nby an inbox\n%s%s", d.Cmd, d.Input, want, copies.run.show(), got, inbox.run.show())
			}
			for i, e := range inbox.history {
				if c := copies.history[i]; !reflect.DeepEqual(e, c) {
					rt.Fatalf("event %d: with a copy %+v, by an inbox %+v", e.Seq, c, e)
				}
			}
			if b := inbox.run.Inbox; b != nil && inbox.run != before {
				inherited++
				if b.Ranges[0][0] > 1 || len(b.Ranges) > 1 {
					again++
				}
			}
			inbox.check(t)
		}
		both(&datadriven.TestData{Cmd: "start"})
		runtime := rapid.SampledFrom([]string{"go", "python", "rust"}).Draw(rt, "runtime")
		for range rapid.IntRange(10, 80).Draw(rt, "steps") {
			d := &datadriven.TestData{Pos: "inbox"}
			arg := func(k string, v string) { d.CmdArgs = append(d.CmdArgs, datadriven.CmdArg{Key: k, Vals: []string{v}}) }
			switch d.Cmd = rapid.SampledFrom([]string{"signal", "signal", "update", "do", "do"}).Draw(rt, "what"); d.Cmd {
			case "signal":
				name := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, "name")
				arg("name", name)
				arg("value", fmt.Sprint(name, len(copies.history)))
			case "do":
				if task := copies.run.Task; task == nil || task.State != Ready {
					continue
				}
				both(&datadriven.TestData{Cmd: "lease", Pos: "inbox"})
				if rapid.Bool().Draw(rt, "meanwhile") {
					name := datadriven.CmdArg{Key: "name", Vals: []string{"y"}}
					both(&datadriven.TestData{Cmd: "signal", Pos: "inbox", CmdArgs: []datadriven.CmdArg{name}})
				}
				arg("runtime", runtime)
				arg("declares", rapid.SampledFrom([]string{"", "x", "x+z"}).Draw(rt, "declares"))
				d.Input = signalCommands(rt, copies, runtime)
			}
			both(d)
		}
	})
	if inherited == 0 || again == 0 {
		t.Errorf("%d runs inherited signals by an inbox, %d of them only some of its signals", inherited, again)
	}
}

// signalCommands draws random commands of a workflow task that concern signals.
func signalCommands(rt *rapid.T, s *stage, runtime string) string {
	lines := rapid.SliceOfN(rapid.SampledFrom([]string{
		"open_signal_wait signal_name=x", "open_signal_wait signal_name=y", "schedule_activity activity_type=a",
		"open_condition_wait condition_key=k",
	}), 0, 2).Draw(rt, "commands")
	if runtime == "go" {
		for i := range lines {
			if strings.HasPrefix(lines[i], "open_signal") {
				lines[i] += " buffers_signals=true"
			}
		}
	}
	if len(lines) > 0 && !rapid.Bool().Draw(rt, "continues") {
		return strings.Join(lines, "\n")
	}
	if runtime != "go" || s.run.Task == nil {
		return strings.Join(append(lines, "continue_as_new"), "\n")
	}
	var left []string // the code has received the first signals of each name
	received := map[string]int{}
	for _, name := range []string{"x", "y", "z"} {
		received[name] = rapid.IntRange(0, 3).Draw(rt, "received")
	}
	for _, e := range s.history {
		d, ok := e.Data.(*history.SignalReceived)
		if !ok || e.Seq > s.run.Task.Shown {
			continue
		}
		if received[d.SignalName]--; received[d.SignalName] < 0 {
			left = append(left, fmt.Sprint(e.Seq))
		}
	}
	last := "continue_as_new buffers_signals=true"
	if len(left) > 0 {
		last += " unreceived_signals=[" + strings.Join(left, ",") + "]"
	}
	return strings.Join(append(lines, last), "\n")
}

// The size of a run's record of inherited signals does not depend on their number, and neither does what a run adds to
// the inbox: each signal is added once.
func TestARunRecordsInheritedSignalsIndependentlyOfTheirNumber(t *testing.T) {
	added := 0
	size := func(backlog int) (ranges int) {
		run := &Run{Head: Head{ID: "first"}}
		var own []Signal
		for i := range backlog {
			own = append(own, Signal{Name: "s", ID: fmt.Sprint(i), Value: "v"})
		}
		added = 0
		for range 10 { // each run handles one signal
			st := &step{Run: run}
			next := Start{}
			var events []Range
			if run.Inbox != nil {
				events = []Range{{run.Inbox.First() + 1, run.Inbox.Last()}}
				run.inbox.Sizes = map[int64]InboxSize{}
				for _, n := range Boundaries(run.Inbox.Numbers(events)) {
					run.inbox.Sizes[n] = InboxSize{n - 1, n}
				}
			}
			if err := st.inherit(&next, events, own); err != nil {
				t.Fatal(err)
			}
			added += len(next.Inherits.Added)
			run, own = &Run{Head: Head{ID: "next", Inbox: next.Inbox}}, nil
		}
		return len(run.Inbox.Ranges) + len(run.Inbox.Unread)
	}
	for _, backlog := range []int{100, 4000} {
		if n := size(backlog); n != 2 || added != backlog {
			t.Errorf("backlog of %d: %d ranges, %d signals added", backlog, n, added)
		}
	}
}

func TestRangesOfAnInbox(t *testing.T) {
	b := &Inbox{Ranges: []Range{{5, 7}, {10, 10}, {20, 24}}}
	if b.First() != 2 || b.Last() != 10 || b.Lowest() != 5 {
		t.Errorf("events %d to %d, from number %d", b.First(), b.Last(), b.Lowest())
	}
	got := fmt.Sprint(b.Numbers([]Range{{3, 5}, {7, 8}}), Boundaries([]Range{{1, 3}, {6, 7}}))
	if want := "[[6 7] [10 10] [21 22]] [1 3 6 7]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	inherited, own := b.InheritedOf([]int64{2, 3, 9, 10, 11, 14})
	if fmt.Sprint(inherited, own) != "[[2 3] [9 10]] [11 14]" {
		t.Errorf("inherited %v, own %v", inherited, own)
	}
	got = fmt.Sprint(
		firstElements(b.Ranges, 2), firstElements(b.Ranges, 4), firstElements(b.Ranges, 99), removeFrom(b.Ranges, 6),
	)
	if got != "[[5 6]] [[5 7] [10 10]] [[5 7] [10 10] [20 24]] [[5 5] [7 7] [10 10] [20 24]]" {
		t.Errorf("got %s", got)
	}
	if !slices.Equal(b.Ranges, []Range{{5, 7}, {10, 10}, {20, 24}}) {
		t.Errorf("the inbox changed: %v", b.Ranges)
	}
}
