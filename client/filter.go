package client

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Filter selects runs. It is a text such as "WorkflowType = 'order' AND Amount > 100", in the language that
// docs/guide/runs.md describes, or is built from conditions:
//
//	client.Where("WorkflowType").Is("order").And(client.Where("Amount").Above(100))
//
// The empty filter selects all runs. A filter has at most 4096 bytes and 20 conditions.
type Filter string

// Attribute is the name of a property of runs in a condition of a [Filter].
type Attribute string

// Where begins a condition on a search attribute, or on a property such as WorkflowType, WorkflowId, Status, TaskQueue
// or StartTime.
func Where(name string) Attribute { return Attribute(name) }

// Is selects runs with this value. Values of conditions are texts, numbers, booleans and times, and values of other
// types that encoding/json encodes as one of these: a search attribute of such a type has the same value.
func (a Attribute) Is(value any) Filter { return a.compare("=", value) }

// IsNot selects runs with another value.
func (a Attribute) IsNot(value any) Filter { return a.compare("!=", value) }

// Above selects runs with a greater value.
func (a Attribute) Above(value any) Filter { return a.compare(">", value) }

// AtLeast selects runs with this or a greater value.
func (a Attribute) AtLeast(value any) Filter { return a.compare(">=", value) }

// Below selects runs with a smaller value.
func (a Attribute) Below(value any) Filter { return a.compare("<", value) }

// AtMost selects runs with this or a smaller value.
func (a Attribute) AtMost(value any) Filter { return a.compare("<=", value) }

// StartsWith selects runs whose text begins with a prefix.
func (a Attribute) StartsWith(prefix string) Filter { return a.compare("STARTS_WITH", prefix) }

// In selects runs with one of these values, at most 100.
func (a Attribute) In(values ...any) Filter {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = literal(v)
	}
	return Filter(a.name() + " IN (" + strings.Join(texts, ", ") + ")")
}

// Missing selects runs without a value.
func (a Attribute) Missing() Filter { return Filter(a.name() + " IS NULL") }

// And selects runs that both filters select.
func (f Filter) And(other Filter) Filter { return f.join("AND", other) }

// Or selects runs that at least one of the filters selects.
func (f Filter) Or(other Filter) Filter { return f.join("OR", other) }

// Not selects runs that the filter does not select. Not of the empty filter is the empty filter.
func (f Filter) Not() Filter {
	if f == "" {
		return f
	}
	return "NOT (" + f + ")"
}

func (f Filter) join(word string, other Filter) Filter {
	switch {
	case f == "":
		return other
	case other == "":
		return f
	}
	return Filter("(" + string(f) + ") " + word + " (" + string(other) + ")")
}

func (a Attribute) compare(operator string, value any) Filter {
	return Filter(a.name() + " " + operator + " " + literal(value))
}

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.:-]*$`)

// name returns the name as a filter has it.
func (a Attribute) name() string {
	if plainName.MatchString(string(a)) {
		return string(a)
	}
	return "`" + strings.ReplaceAll(strings.ReplaceAll(string(a), `\`, `\\`), "`", "``") + "`"
}

// literal returns a value as a filter has it.
func literal(v any) string {
	text, isText := v.(string)
	if at, isTime := v.(time.Time); isTime {
		text, isText = at.UTC().Format(time.RFC3339Nano), true
	}
	if !isText {
		raw, err := json.Marshal(v)
		var value any
		if err == nil {
			err = json.Unmarshal(raw, &value)
		}
		switch value := value.(type) {
		case bool, float64:
			return string(raw) // all digits of the number
		case string:
			text, isText = value, true
		}
		if err != nil || !isText {
			text = fmt.Sprint(v)
		}
	}
	return "'" + strings.ReplaceAll(strings.ReplaceAll(text, `\`, `\\`), "'", "''") + "'"
}
