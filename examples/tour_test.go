package examples_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
)

func TestTourOfWorkflows(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	work(t, a, nil)
	c := caller{t, a.URL()}
	for i, leg := range []struct {
		name string
		args []any
		want string
	}{
		{"greeting", []any{"world"}, `"hello world, goodbye world"`},
		{"options", nil, `"well done"`},
		{"failure", []any{70}, `"charged"`},
		{"failure", []any{130}, `"declined, 30 missing"`},
		{"join", []any{[]string{"Ann", "Bob"}}, `"hi Ann, hi Bob"`},
		{"deadline", nil, `"gave up"`},
		{"recall", nil, `"saved half of it"`},
		{"branches", nil, `6`},
		{"counter", []any{1, 4}, `4`},
		{"change", nil, `"good morning friend"`},
		{"versions", nil, `2`},
		{"facts", nil, `"tour.facts, run 1, true"`},
		{"session", nil, `true`},
		{"family", nil, `"hello child, goodbye child; hi Bob"`},
		{"nursery", nil, `"nobody came"`},
		{"guardian", []any{"ward"}, `"hello child, goodbye child"`},
		{"countdown", nil, `"lift-off"`},
		{"relay", []any{"Eve"}, `"hello Eve, goodbye Eve"`},
		{"labels", []any{"Ada"}, `null`},
		{"quote", []any{"book"}, `1440`},
	} {
		id := fmt.Sprint(leg.name, "-", i)
		c.start("tour."+leg.name, id, leg.args...)
		var got json.RawMessage
		if c.result(id, &got); string(got) != leg.want {
			t.Errorf("%s: got %s, want %s", leg.name, got, leg.want)
		}
	}
	c.start("tour.dice", "dice")
	var eyes int
	if c.result("dice", &eyes); eyes < 1 || eyes > 6 {
		t.Errorf("dice: got %d", eyes)
	}
}

func TestTourOfSignalsAndCancellation(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	c := caller{t, a.URL()}
	c.start("tour.inbox", "inbox")
	c.signal("inbox", "mail", "one")
	c.signal("inbox", "mail", "two")
	work(t, a, nil)
	waiting := func(r run) bool { return strings.Contains(r.Waits, "waits for") || strings.Contains(r.Waits, "timer") }

	c.start("tour.approval", "approval")
	c.until("approval", waiting)
	c.signal("approval", "approve", "Ann")
	var by string
	if c.result("approval", &by); by != "approved by Ann" {
		t.Errorf("approval: got %q", by)
	}

	var mail []string
	if c.result("inbox", &mail); !slices.Equal(mail, []string{"one", "two"}) {
		t.Errorf("inbox: got %q", mail)
	}
	c.start("tour.inbox", "told")
	c.start("tour.tell", "tell", "told", "hello")
	if c.result("told", &mail); !slices.Equal(mail, []string{"hello"}) {
		t.Errorf("told: got %q", mail)
	}

	c.start("tour.cleanup", "cleanup")
	c.until("cleanup", waiting)
	c.must("POST", "workflows/cleanup/request-cancellation", map[string]any{}, &struct{}{})
	var text string
	if c.result("cleanup", &text); text != "cleaned up" {
		t.Errorf("cleanup: got %q", text)
	}
}

func TestTourOfUpdatesAndQueries(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	work(t, a, nil)
	c := caller{t, a.URL()}
	c.start("tour.basket", "basket", 2)
	update := func(name string, arg any) (answer struct {
		Status  string          `json:"update_status"`
		Result  json.RawMessage `json:"result"`
		Message string          `json:"failure_message"`
	}, err error,
	) {
		t.Helper()
		err = c.call(
			"POST", "workflows/basket/update/"+name, map[string]any{"input": []any{arg}, "wait_for": "completed"}, &answer,
		)
		return answer, err
	}
	items := func() string {
		t.Helper()
		var answer struct {
			Result json.RawMessage `json:"result"`
		}
		c.must("POST", "workflows/basket/query/items", map[string]any{}, &answer)
		return string(answer.Result)
	}
	for i, item := range []string{"milk", "bread"} {
		if got, err := update("add", item); err != nil || string(got.Result) != fmt.Sprint(i+1) {
			t.Errorf("add %s: got %+v, %v", item, got, err)
		}
	}
	if _, err := update("add", "eggs"); err == nil || !strings.Contains(err.Error(), "the basket holds no more") {
		t.Errorf("a full basket: got %v", err)
	}
	if got := items(); got != `["milk","bread"]` {
		t.Errorf("items: got %s", got)
	}
	if _, err := update("pay", 151); err == nil || !strings.Contains(err.Error(), "card_declined") {
		t.Errorf("pay too much: got %v", err)
	}
	if got, err := update("pay", 7); err != nil || got.Status != "completed" {
		t.Errorf("pay: got %+v, %v", got, err)
	}
	var bought []string
	if c.result("basket", &bought); !slices.Equal(bought, []string{"milk", "bread"}) {
		t.Errorf("bought: got %q", bought)
	}
	if got := items(); got != `["milk","bread"]` {
		t.Errorf("items of a closed run: got %s", got)
	}
}
