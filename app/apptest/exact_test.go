package apptest_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// exactly are whole numbers that a double cannot hold.
const exactly = `{"id":9007199254740993,"less":-1234567890123456789}`

// Integers with more digits than a double can represent, such as IDs of payment systems, are stored, found and shown
// exactly by every route.
func TestWholeNumbersStayExact(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		c := caller{t, apptest.Start(t, apptest.Options{Database: database}), ""}
		w := register(c, "w", "")
		run := c.want(201, "POST", "/api/workflows", `{"workflow_id":"x","workflow_type":"flow","task_queue":"`+handQueue+
			`","input":[`+exactly+`],
			"memo":`+exactly+`,"search_attributes":`+exactly+`}`).text("run_id")
		w.decide(w.poll("workflow"), `{"type":"open_signal_wait","signal_name":"go"}`,
			`{"type":"upsert_memo","entries":`+envelope(t, `{"more":9007199254740995}`)+`}`,
			`{"type":"upsert_search_attributes","attributes":{"more":9007199254740995}}`)
		c.want(202, "POST", "/api/workflows/x/signal/go", `{"input":[9007199254740997]}`)
		c.want(202, "POST", "/api/workflows/x/update/set", `{"input":[9007199254740999]}`)
		asked := c.later("POST", "/api/workflows/x/query/state", `{"input":[-1234567890123456789]}`)
		task := w.poll("query")
		if at, _ := task["query_arguments"].(map[string]any); at["blob"] == nil ||
			!strings.Contains(envelope(t, `[-1234567890123456789]`), at["blob"].(string)) {
			t.Errorf("the query's arguments: %v", task["query_arguments"])
		}
		w.answer(task, exactly)
		if s := <-asked; s.status != 200 || !strings.Contains(s.raw, `"result":`+exactly) {
			t.Errorf("the query's answer: %d %s", s.status, s.raw)
		}
		view := c.want(200, "GET", "/api/workflows/x", "").raw
		labels := `"id":9007199254740993,"less":-1234567890123456789,"more":9007199254740995`
		if strings.Count(view, labels) < 2 || !strings.Contains(view, `"input":[`+exactly) {
			t.Errorf("the run's input, memo or attributes: %s", view)
		}
		past := c.want(200, "GET", "/api/workflows/x/runs/"+run+"/history?decoded=true", "").raw
		for _, want := range []string{
			`[{"id":9007199254740993,"less":-1234567890123456789}]`, `[9007199254740997]`, `[9007199254740999]`,
		} {
			if !strings.Contains(past, want) {
				t.Errorf("the history has no %s: %s", want, past)
			}
		}
		for id, want := range map[string]int{"9007199254740992": 0, "9007199254740993": 1} {
			if found := c.found("id="+id, 10); len(found) != want {
				t.Errorf("id=%s finds %v", id, found)
			}
		}
	})
}

// Numbers that the codec cannot encode are refused with the path of the member.
func TestNumbersBeyondTheCodecAreRefusedByTheirPlace(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	c := caller{t, a, ""}
	c.start("x")
	const head = `{"workflow_id":"y","workflow_type":"flow","task_queue":"` + handQueue + `",`
	for _, r := range []struct{ path, body, field, reason string }{
		{"", head + `"input":[1,{"amounts":[2,1e400]}]}`, "input.1.amounts.1", "non_finite_float"},
		{"", head + `"input":[9223372036854775808]}`, "input.0", "integer_overflow"},
		{"", head + `"memo":{"a":1,"b":{"c":[1e400]}}}`, "memo.b.c.0", "non_finite_float"},
		{"", head + `"search_attributes":{"Amount":-1e400}}`, "search_attributes.Amount", "non_finite_float"},
		{"/x/signal/go", `{"input":[1e400]}`, "input.0", "non_finite_float"},
		{"/x/update/set", `{"input":[1e400]}`, "input.0", "non_finite_float"},
	} {
		unchanged(t, a, r.body, func() {
			s := c.want(422, "POST", "/api/workflows"+r.path, r.body)
			if fields, _ := s.body["errors"].(map[string]any); fields[r.field] == nil || s.text("payload_reason") != r.reason {
				t.Errorf("POST %s %s: %s", r.path, r.body, s.raw)
			}
		})
	}
}
