package retry

import (
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
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
		retry  bool
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
			delay, retry := c.policy.Next(c.used, c.typ, c.final)
			if delay != c.delay || retry != c.retry {
				t.Errorf("got %v %v, want %v %v", delay, retry, c.delay, c.retry)
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
		{
			&Policy{MaxAttempts: new(1), BackoffSeconds: []int{0, MaxBackoffSeconds}, NonRetryableErrorTypes: []string{"E"}},
			"p", "",
		},
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
		{
			`{"max_attempts":null,"backoff_seconds":null}`,
			`{"max_attempts":null,"backoff_seconds":[],"non_retryable_error_types":[]}`,
		},
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

// The tags, from which the API description is generated, and the constants that Validate uses must be the same numbers.
func TestThePolicyIsDescribedAsItIsApplied(t *testing.T) {
	for member, want := range map[string][2]string{
		"MaxAttempts":            {"minimum", "1"},
		"BackoffSeconds":         {"maxItems", strconv.Itoa(MaxBackoffEntries)},
		"NonRetryableErrorTypes": {"maxItems", strconv.Itoa(MaxErrorTypes)},
	} {
		f, ok := reflect.TypeFor[Policy]().FieldByName(member)
		if got := f.Tag.Get(want[0]); !ok || got != want[1] {
			t.Errorf("%s is described with %s %q, want %s", member, want[0], got, want[1])
		}
	}
}
