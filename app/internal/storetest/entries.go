package storetest

import (
	"encoding/json"
	"regexp"
	"slices"
	"testing"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// indexesOfBefore lists the indexes that existed before the listing of runs was sped up. The newer indexes must not
// make the start or the end of a run much more expensive.
var indexesOfBefore = []string{
	"events_session", "items_due", "questions_waiting", "run_attributes_value", "runs_business_key", "runs_closed",
	"runs_due", "runs_owner", "runs_queue", "runs_start", "runs_status", "runs_type", "runs_workflow",
	"schedule_events_schedule", "schedules_due", "session_events_at", "session_events_session", "sessions_due",
	"sessions_open", "sessions_owner", "sessions_workflow", "tasks_due", "tasks_owner", "tasks_route", "tasks_session",
}

// wholeBefore are the indexes that had an entry for each row, and now have entries for some rows only.
var wholeBefore = []string{"run_attributes_value"}

var indexDefinition = regexp.MustCompile(
	`^CREATE INDEX (\w+) ON (?:public\.)?(\w+)(?: USING btree)? \(.*?\)(?: WHERE (.*))?$`,
)

// IndexEntries checks how many more index entries a run has than with the indexes of the older schema
// (indexesOfBefore): at most two when it starts, whatever its attributes, and no further ones when it closes.
// definitions returns the database's definitions of its indexes, except primary keys.
func IndexEntries(t *testing.T, s Suite, definitions func() []string, number func(query string) int) {
	w := s.New(t)
	type index struct{ name, count string }
	var young []index
	for _, text := range definitions() {
		m := indexDefinition.FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no definition of an index: %s", text)
		}
		count := "SELECT count(*) FROM " + m[2]
		switch narrowed := slices.Contains(wholeBefore, m[1]) && m[3] != ""; {
		case narrowed: // the index had an entry in the older schema and has none now
			young = append(young, index{m[1], "SELECT -count(*) FROM " + m[2] + " WHERE NOT (" + m[3] + ")"})
		case slices.Contains(indexesOfBefore, m[1]):
		case m[3] != "":
			young = append(young, index{m[1], count + " WHERE " + m[3]})
		default:
			young = append(young, index{m[1], count})
		}
	}
	if len(young) < 4 {
		t.Fatalf("only %d indexes are younger: %v", len(young), young)
	}
	entries := func() (n int, in []string) {
		for _, i := range young {
			if k := number(i.count); k != 0 {
				n, in = n+k, append(in, i.name)
			}
		}
		return n, in
	}
	for _, c := range []struct {
		name, build, attributes string
		started, closed         int
	}{
		{"alone", "", "", 1, 0},
		{"key", "", `{"Who":"x","N":7,"Ok":true}`, 1, 0},
		{"build", "b1", "", 2, 1},
		{"time", "", `{"Who":"x","At":"2026-01-02T03:04:05Z"}`, 1, 0},
		{"all", "b1", `{"Who":"x","From":"2026-01-02","To":"2026-01-03"}`, 2, 1},
	} {
		before, _ := entries()
		in := start(w, c.name)
		in.BuildID, in.Request.SearchAttributes = c.build, json.RawMessage(c.attributes)
		w.StartAs(in)
		if after, of := entries(); after-before != c.started {
			t.Errorf("%s: the start wrote %d entries in %v, want %d", c.name, after-before, of, c.started)
		}
		worker := w.Worker("w"+c.build, func(x *engine.Worker) { x.BuildID = c.build })
		w.Decide(w.One(protocol.KindWorkflow, worker), protocol.Command{Type: protocol.CompleteWorkflow})
		if after, of := entries(); after-before != c.closed {
			t.Errorf("%s: once closed it has %d entries in %v, want %d", c.name, after-before, of, c.closed)
		}
	}
}
