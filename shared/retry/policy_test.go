package retry

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestNextFollowsThePolicy(t *testing.T) {
	three := &Policy{MaxAttempts: new(3), BackoffSeconds: []int{1, 5}, NonRetryableErrorTypes: []string{"BadInput"}}
	endless := &Policy{BackoffSeconds: []int{1, 5}}
	for _, c := range []struct {
		name   string
		policy *Policy
		used   int
		typ    string
		final  bool
		delay  time.Duration
		again  bool
	}{
		{"no policy is one attempt", nil, 1, "E", false, 0, false},
		{"first failure waits the first entry", three, 1, "E", false, time.Second, true},
		{"second failure waits the second", three, 2, "E", false, 5 * time.Second, true},
		{"attempts are used up", three, 3, "E", false, 0, false},
		{"more than used up", three, 4, "E", false, 0, false},
		{"listed type", three, 1, "BadInput", false, 0, false},
		{"types compare exactly", three, 1, "badinput", false, time.Second, true},
		{"the failure says so itself", three, 1, "E", true, 0, false},
		{"the last entry repeats", endless, 400, "E", false, 5 * time.Second, true},
		{"nothing used yet", endless, 0, "", false, time.Second, true},
		{"no list is no delay", &Policy{MaxAttempts: new(2)}, 1, "E", false, 0, true},
		{"zero value is unlimited and immediate", &Policy{}, 9, "", false, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			delay, again := c.policy.Next(c.used, c.typ, c.final)
			if delay != c.delay || again != c.again {
				t.Errorf("got %v %v, want %v %v", delay, again, c.delay, c.again)
			}
		})
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for _, c := range []struct {
		policy *Policy
		path   string
		field  string
	}{
		{nil, "", ""},
		{&Policy{}, "", ""},
		{&Policy{MaxAttempts: new(1), BackoffSeconds: []int{0, MaxBackoffSeconds}, NonRetryableErrorTypes: []string{"E"}}, "p", ""},
		{&Policy{MaxAttempts: new(0)}, "retry_policy", "retry_policy.max_attempts"},
		{&Policy{MaxAttempts: new(-2)}, "", "max_attempts"},
		{&Policy{BackoffSeconds: []int{1, -1}}, "commands[2].retry_policy", "commands[2].retry_policy.backoff_seconds[1]"},
		{&Policy{BackoffSeconds: []int{MaxBackoffSeconds + 1}}, "", "backoff_seconds[0]"},
		{&Policy{BackoffSeconds: make([]int, MaxBackoffEntries+1)}, "", "backoff_seconds"},
		{&Policy{NonRetryableErrorTypes: []string{"E", ""}}, "", "non_retryable_error_types[1]"},
		{&Policy{NonRetryableErrorTypes: make([]string, MaxErrorTypes+1)}, "", "non_retryable_error_types"},
	} {
		err := c.policy.Validate(c.path)
		fe, _ := errors.AsType[*FieldError](err)
		switch {
		case c.field == "" && err != nil:
			t.Errorf("%+v: %v", c.policy, err)
		case c.field != "" && (fe == nil || fe.Field != c.field || !strings.HasPrefix(fe.Error(), c.field+" must")):
			t.Errorf("got %v, want an error about %s", err, c.field)
		}
	}
}

func TestPolicyOnTheWire(t *testing.T) {
	for _, c := range []struct{ in, out string }{
		{`{}`, `{"max_attempts":null,"backoff_seconds":[],"non_retryable_error_types":[]}`},
		{
			`{"max_attempts":3,"backoff_seconds":[1,5],"non_retryable_error_types":["E"],"later":1}`,
			`{"max_attempts":3,"backoff_seconds":[1,5],"non_retryable_error_types":["E"]}`,
		},
		{`{"max_attempts":null,"backoff_seconds":null}`, `{"max_attempts":null,"backoff_seconds":[],"non_retryable_error_types":[]}`},
	} {
		var p Policy
		if err := json.Unmarshal([]byte(c.in), &p); err != nil {
			t.Fatal(err)
		}
		for _, v := range []any{p, &p} {
			if got, err := json.Marshal(v); err != nil || string(got) != c.out {
				t.Errorf("%s: got %s, %v, want %s", c.in, got, err, c.out)
			}
		}
	}
	var fraction Policy
	if err := json.Unmarshal([]byte(`{"backoff_seconds":[1.5]}`), &fraction); err == nil {
		t.Error("fractional seconds are accepted")
	}
}

func TestAbsentLimitIsOneAttemptInACommand(t *testing.T) {
	endless := &Policy{BackoffSeconds: []int{1}}
	if got := *endless.Recorded().MaxAttempts; got != 1 {
		t.Errorf("recorded: got %d", got)
	}
	if got := *endless.ForCommand().Recorded().MaxAttempts; got != Unlimited {
		t.Errorf("sent and recorded: got %d", got)
	}
	if endless.MaxAttempts != nil {
		t.Error("the policy itself was changed")
	}
	if got := *(&Policy{MaxAttempts: new(4)}).ForCommand().Recorded().MaxAttempts; got != 4 {
		t.Errorf("limit: got %d", got)
	}
	var none *Policy
	if none.Recorded() != nil || none.ForCommand() != nil {
		t.Error("no policy became one")
	}
}

func TestExponentialBecomesAList(t *testing.T) {
	for _, c := range []struct {
		name string
		in   Exponential
		want []int
	}{
		{"one entry less than attempts", Exponential{MaxAttempts: 5}, []int{1, 2, 4, 8}},
		{"one attempt has no delay", Exponential{MaxAttempts: 1}, []int{}},
		{"fractions are rounded up", Exponential{Initial: 1500 * time.Millisecond, Coefficient: 1.5, MaxAttempts: 4}, []int{2, 3, 4}},
		{"growth stops at the interval", Exponential{MaxInterval: 5 * time.Second, MaxAttempts: 6}, []int{1, 2, 4, 5, 5}},
		{"unlimited ends with what repeats", Exponential{MaxInterval: 5 * time.Second}, []int{1, 2, 4, 5}},
		{"unlimited without growth", Exponential{Initial: 3 * time.Second, Coefficient: 1}, []int{3}},
		{"default interval is a hundredfold", Exponential{Coefficient: 10}, []int{1, 10, 100}},
		{"more attempts than entries", Exponential{MaxInterval: 2 * time.Second, MaxAttempts: 5000}, []int{1, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := c.in.Policy()
			if err != nil || !reflect.DeepEqual(p.BackoffSeconds, c.want) {
				t.Fatalf("got %+v, %v, want %v", p, err, c.want)
			}
			if unlimited := c.in.MaxAttempts == 0; unlimited != (p.MaxAttempts == nil) {
				t.Errorf("max attempts: got %v", p.MaxAttempts)
			}
		})
	}
	for _, c := range []struct {
		in    Exponential
		field string
	}{
		{Exponential{Initial: -1}, "initial"},
		{Exponential{Initial: math.MaxInt64}, "initial"},
		{Exponential{Coefficient: 0.5}, "coefficient"},
		{Exponential{Coefficient: math.NaN()}, "coefficient"},
		{Exponential{Coefficient: math.Inf(1)}, "coefficient"},
		{Exponential{Initial: time.Minute, MaxInterval: time.Second}, "max_interval"},
		{Exponential{MaxAttempts: -1}, "max_attempts"},
		{Exponential{NonRetryableErrorTypes: []string{""}}, "non_retryable_error_types[0]"},
	} {
		_, err := c.in.Policy()
		if fe, _ := errors.AsType[*FieldError](err); fe == nil || fe.Field != c.field {
			t.Errorf("%+v: got %v, want an error about %s", c.in, err, c.field)
		}
	}
}

func TestExponentialDelaysNeverShrinkNorPassTheInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		initial := rapid.Int64Range(1, int64(time.Hour)).Draw(t, "initial")
		e := Exponential{
			Initial:     time.Duration(initial),
			Coefficient: rapid.Float64Range(1, 1e6).Draw(t, "coefficient"),
			MaxInterval: time.Duration(rapid.Int64Range(initial, int64(1000*time.Hour)).Draw(t, "max")),
			MaxAttempts: rapid.IntRange(0, 50).Draw(t, "attempts"),
		}
		p, err := e.Policy()
		if err != nil {
			t.Fatal(err)
		}
		var last time.Duration
		for used := 1; used < 60; used++ {
			delay, again := p.Next(used, "E", false)
			if again != (e.MaxAttempts == 0 || used < e.MaxAttempts) {
				t.Fatalf("after %d attempts: again is %v", used, again)
			}
			if again && (delay < last || delay >= e.MaxInterval+time.Second) {
				t.Fatalf("after %d attempts: %v follows %v, interval %v", used, delay, last, e.MaxInterval)
			}
			last = delay
		}
	})
}
