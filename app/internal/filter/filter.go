// Package filter parses search queries for runs into conditions of the store. It is pure: the registered attributes of
// a namespace are an argument, and the same text always has the same result.
package filter

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A filter consists of conditions joined by AND and OR, with parentheses; AND has precedence over OR, and NOT negates a
// condition or a filter:
//
//	filter    = all { OR all }
//	all       = one { AND one }
//	one       = NOT one | ( filter ) | condition
//	condition = name ( = | == | != | <> | < | <= | > | >= ) value
//	          | name [NOT] IN ( value { , value } )
//	          | name BETWEEN value AND value
//	          | name STARTS_WITH value
//	          | name IS [NOT] NULL
//	name      = letters, digits and _ . : - after a letter or _, or anything between backquotes
//	value     = 'text' | "text" | number | true | false
//
// A quote inside a text is doubled or follows a backslash. Words may be written in any case.

// maxBytes and maxConditions limit a filter, maxChoice the values of one IN.
const (
	maxBytes      = 4096
	maxConditions = 20
	maxChoice     = 100
)

// Is reports whether a query is a filter, which compares something, and not a text to search in IDs.
func Is(query string) bool {
	if strings.ContainsAny(query, "=<>!") {
		return true
	}
	words := strings.Fields(strings.ToUpper(strings.NewReplacer("(", " ( ", ")", " ) ").Replace(query)))
	for len(words) > 1 && (words[0] == "NOT" || words[0] == "(") {
		words = words[1:]
	}
	return len(words) > 2 && slices.Contains([]string{"IN", "NOT", "BETWEEN", "STARTS_WITH", "IS"}, words[1])
}

// Parse parses a filter. types are the namespace's registered search attributes. Errors contain the position.
func Parse(text string, types map[string]string) ([]store.Condition, error) {
	if len(text) > maxBytes {
		return nil, protocol.Invalid("query", "is longer than %d bytes", maxBytes)
	}
	tokens, err := scan(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens, types: types}
	f, err := p.either(false)
	if err != nil {
		return nil, err
	}
	if t := p.next(); t.kind != endToken {
		return nil, wrongAt(t, "AND or OR is expected, not %s", t)
	}
	return f, nil
}

// wrongAt rejects a filter and names the position of the error, counted in characters from 1.
func wrongAt(t token, format string, args ...any) error {
	e := protocol.Invalid("query", format, args...)
	e.Message += " (at character " + strconv.Itoa(t.at) + ")"
	e.Fields["query"][0] += " (at character " + strconv.Itoa(t.at) + ")"
	return e.With("position", t.at)
}

type parser struct {
	tokens     []token
	types      map[string]string
	conditions int // number of conditions parsed so far
}

func (p *parser) next() token {
	t := p.tokens[0]
	if len(p.tokens) > 1 {
		p.tokens = p.tokens[1:]
	}
	return t
}

func (p *parser) accept(keyword string) bool {
	if p.tokens[0].isKeyword(keyword) {
		p.next()
		return true
	}
	return false
}

var comparisons = map[string]store.Comparison{
	"=": store.In, "==": store.In, "!=": store.NotIn, "<>": store.NotIn,
	"<": store.Less, "<=": store.AtMost, ">": store.More, ">=": store.AtLeast,
}

// either parses parts that are joined by OR. With not the expression is negated: none of the parts may match.
func (p *parser) either(not bool) ([]store.Condition, error) {
	return p.joined("OR", !not, not, p.all)
}

// all parses parts that are joined by AND. With not the expression is negated: at least one part must not match.
func (p *parser) all(not bool) ([]store.Condition, error) {
	return p.joined("AND", not, not, p.negatable)
}

// joined parses parts that are joined by a word; choice means that one part must match, otherwise all must.
func (p *parser) joined(
	keyword string, choice, not bool, part func(bool) ([]store.Condition, error),
) ([]store.Condition, error) {
	var parts [][]store.Condition
	for {
		f, err := part(not)
		if err != nil {
			return nil, err
		}
		parts = append(parts, f)
		if !p.accept(keyword) {
			break
		}
	}
	switch {
	case len(parts) == 1 || !choice:
		return slices.Concat(parts...), nil
	case oneOf(parts):
		c := parts[0][0]
		for _, f := range parts[1:] {
			c.Values = slices.Concat(c.Values, f[0].Values)
		}
		return []store.Condition{c}, nil
	}
	return []store.Condition{{Any: parts}}, nil
}

// oneOf reports whether a choice compares one attribute with several values, which an index supports.
func oneOf(parts [][]store.Condition) bool {
	for _, f := range parts {
		c, first := f[0], parts[0][0]
		if len(f) != 1 || c.Test != store.In || len(c.Any) > 0 || c.Field != first.Field || c.Name != first.Name {
			return false
		}
	}
	return true
}

// negatable parses a condition, or a filter in parentheses; with not, it returns the negation.
func (p *parser) negatable(not bool) ([]store.Condition, error) {
	t := p.tokens[0]
	switch {
	case t.isKeyword("NOT") && len(p.tokens) > 1 &&
		(p.tokens[1].kind == nameToken || p.tokens[1].text == "(" && p.tokens[1].kind == opToken):
		p.next()
		return p.negatable(!not)
	case t.kind == opToken && t.text == "(":
		p.next()
		f, err := p.either(not)
		if err != nil {
			return nil, err
		}
		if end := p.next(); end.kind != opToken || end.text != ")" {
			return nil, wrongAt(end, "AND, OR or ) is expected, not %s", end)
		}
		return f, nil
	}
	if p.conditions++; p.conditions > maxConditions {
		return nil, wrongAt(t, "there are more than %d conditions", maxConditions)
	}
	c, err := p.condition()
	if not {
		c = negated(c)
	}
	if err == nil && c.Field == store.FieldStatus {
		c = byStatus(c)
	}
	if err == nil && widensActivities(c) {
		return []store.Condition{anyActivity(), c}, nil
	}
	return []store.Condition{c}, err
}

// negated returns the condition that matches exactly the runs with a value that c does not match.
func negated(c store.Condition) store.Condition {
	switch c.Test {
	case store.In:
		c.Test = store.NotIn
	case store.NotIn:
		c.Test = store.In
	case store.Present:
		c.Test = store.Absent
	case store.Absent:
		c.Test = store.Present
	default:
		c.Not = !c.Not
	}
	return c
}

func (p *parser) condition() (store.Condition, error) {
	name := p.next()
	if name.kind != nameToken {
		return store.Condition{}, wrongAt(name, "the name of an attribute is expected, not %s", name)
	}
	f := fieldOf(name.text, p.types)
	if f.field == store.FieldStuck {
		return p.stuckCondition()
	}
	c := store.Condition{Field: f.field, Name: f.attribute}
	op := p.next()
	var err error
	switch {
	case op.kind == opToken && comparisons[op.text] != "":
		c.Test = comparisons[op.text]
		c.Values, err = p.value(f, c.Test)
	case op.isKeyword("IN"):
		c.Test = store.In
		c.Values, err = p.valueList(f, c.Test)
	case op.isKeyword("NOT"):
		if !p.accept("IN") {
			return c, wrongAt(p.tokens[0], "IN is expected after NOT")
		}
		c.Test = store.NotIn
		c.Values, err = p.valueList(f, c.Test)
	case op.isKeyword("BETWEEN"):
		c.Test = store.Between
		var low, high []any
		if low, err = p.value(f, c.Test); err != nil {
			return c, err
		}
		if !p.accept("AND") {
			return c, wrongAt(p.tokens[0], "AND is expected between the two values of BETWEEN")
		}
		high, err = p.value(f, c.Test)
		c.Values = slices.Concat(low, high)
	case op.isKeyword("STARTS_WITH"):
		c.Test = store.Prefix
		c.Values, err = p.value(f, c.Test)
	case op.isKeyword("IS"):
		c.Test = store.Present
		if f.activity {
			c = anyActivity()
		}
		if !p.accept("NOT") {
			c = negated(c)
		}
		if !p.accept("NULL") {
			err = wrongAt(p.tokens[0], "NULL is expected after IS")
		}
	default:
		err = wrongAt(op, "an operator is expected after %s, not %s", name, op)
	}
	return c, err
}

// stuckCondition parses the rest of a condition on Stuck: = or !=, and true or false.
func (p *parser) stuckCondition() (store.Condition, error) {
	c := store.Condition{Field: store.FieldStuck, Test: store.Present}
	op := p.next()
	if test := comparisons[op.text]; op.kind != opToken || test != store.In && test != store.NotIn {
		return c, wrongAt(op, "= or != is expected after Stuck, not %s", op)
	}
	t := p.next()
	if t.kind != boolToken {
		return c, wrongAt(t, "Stuck is true or false, not %s", t)
	}
	if strings.EqualFold(t.text, "true") != (comparisons[op.text] == store.In) {
		c = negated(c)
	}
	return c, nil
}

// valueList parses the list of values of an IN.
func (p *parser) valueList(f field, test store.Comparison) ([]any, error) {
	if t := p.next(); t.text != "(" || t.kind != opToken {
		return nil, wrongAt(t, "( is expected after IN, not %s", t)
	}
	var list []any
	for {
		v, err := p.value(f, test)
		if err != nil {
			return nil, err
		}
		list = append(list, v...)
		t := p.next()
		switch {
		case t.kind == opToken && t.text == ")":
			return list, nil
		case t.kind != opToken || t.text != ",":
			return nil, wrongAt(t, ", or ) is expected, not %s", t)
		case len(list) >= maxChoice:
			return nil, wrongAt(t, "IN takes at most %d values", maxChoice)
		}
	}
}

// value parses a value for a field; a status word may stand for several statuses.
func (p *parser) value(f field, test store.Comparison) ([]any, error) {
	t := p.next()
	switch t.kind {
	case textToken, numberToken, boolToken:
		return f.value(t, test)
	case nameToken:
		return nil, wrongAt(t, "a value is expected, not %s; texts stand in quotes", t)
	}
	return nil, wrongAt(t, "a value is expected, not %s", t)
}

// field is the meaning of a name.
type field struct {
	field     store.RunField
	attribute string // name of the search attribute, if it is one
	typ       string // type, as registered or built in; empty: by its value
	shown     string
	activity  bool // the type of an activity run
}

// activityType is the name for the types of activity runs, which WorkflowType does not match. A registered attribute
// with this name takes precedence.
const activityType = "ActivityType"

// stuckName is the name of the condition that a run is stuck. A registered attribute with this name takes precedence.
const stuckName = "Stuck"

// anyActivity returns the condition that matches exactly the activity runs.
func anyActivity() store.Condition {
	return store.Condition{
		Field: store.FieldType, Test: store.Prefix, Values: []any{store.TypeColumn(history.KindActivity, "")},
	}
}

// OfActivities returns the condition that matches all activity runs, or all other runs.
func OfActivities(are bool) store.Condition {
	if are {
		return anyActivity()
	}
	return negated(anyActivity())
}

// widensActivities reports whether a condition on the types of activity runs also matches runs of workflows, which have
// no such type.
func widensActivities(c store.Condition) bool {
	if c.Field != store.FieldType || len(c.Values) == 0 {
		return false
	}
	any := anyActivity().Values[0].(string)
	value, ok := c.Values[0].(string)
	if !ok || !strings.HasPrefix(value, any) {
		return false
	}
	return c.Test != store.In && !(c.Test == store.Prefix && (!c.Not || value == any))
}

var systemFields = map[string]store.RunField{
	"WorkflowType": store.FieldType, "WorkflowId": store.FieldWorkflow, "RunId": store.FieldRun,
	"Status":    store.FieldStatus,
	"StartTime": store.FieldStarted, "CloseTime": store.FieldClosed, "TaskQueue": store.FieldQueue,
	"BuildId":     store.FieldBuild,
	"BusinessKey": store.FieldBusinessKey,
}

// fieldOf resolves a name: an attribute that the namespace registered, a system attribute in any case, or an
// unregistered attribute.
func fieldOf(name string, types map[string]string) field {
	if f, ok := systemFields[name]; ok {
		return field{f, "", engine.SystemAttributes[name], name, false}
	}
	if typ, ok := types[name]; ok {
		return field{store.FieldAttribute, name, typ, name, false}
	}
	for system, f := range systemFields {
		if strings.EqualFold(system, name) {
			return field{f, "", engine.SystemAttributes[system], system, false}
		}
	}
	if strings.EqualFold(name, stuckName) {
		return field{store.FieldStuck, "", "", stuckName, false}
	}
	if strings.EqualFold(name, activityType) {
		return field{store.FieldType, "", engine.SystemAttributes["WorkflowType"], activityType, true}
	}
	return field{store.FieldAttribute, name, "", name, false}
}

// value converts a token to the values that the store compares with.
func (f field) value(t token, test store.Comparison) ([]any, error) {
	if test == store.Prefix && (t.kind != textToken || f.field == store.FieldStarted || f.field == store.FieldClosed ||
		f.typ != "" &&
			!slices.Contains([]string{engine.AttributeKeyword, engine.AttributeText, engine.AttributeKeywordList}, f.typ)) {
		return nil, wrongAt(t, "STARTS_WITH is for texts")
	}
	switch f.field {
	case store.FieldStatus:
		return statusValues(t, test)
	case store.FieldStarted, store.FieldClosed:
		at, ok := engine.AttributeTimeOf(t.text)
		if t.kind != textToken || !ok {
			return nil, wrongAt(t, "%s is a time: a date or an RFC 3339 time in quotes is expected, not %s", f.shown, t)
		}
		return []any{at.UnixMicro()}, nil
	case store.FieldAttribute:
		return f.key(t, test)
	}
	if t.kind != textToken {
		return nil, wrongAt(t, "%s is a text: a value in quotes is expected, not %s", f.shown, t)
	}
	if f.activity {
		return []any{store.TypeColumn(history.KindActivity, t.text)}, nil
	}
	return []any{t.text}, nil
}

// key returns the key of a value of a search attribute. The value must have the registered type.
func (f field) key(t token, test store.Comparison) ([]any, error) {
	at, isTime := engine.AttributeTimeOf(t.text)
	switch {
	case t.kind == textToken && (f.typ == engine.AttributeTime || f.typ == "" && isTime && test != store.Prefix):
		if !isTime {
			return nil, wrongAt(t, "%s is registered as %s; %s is not a value of this type", f.shown, f.typ, t)
		}
		return []any{engine.TimeKey(at)}, nil
	case t.kind == textToken &&
		(f.typ == "" || f.typ == engine.AttributeKeyword || f.typ == engine.AttributeText ||
			f.typ == engine.AttributeKeywordList):
		return []any{engine.TextKey(t.text)}, nil
	case t.kind == numberToken && (f.typ == "" || f.typ == engine.AttributeInt || f.typ == engine.AttributeDouble):
		k, ok := engine.NumberKey(json.Number(t.text))
		if !ok {
			return nil, wrongAt(t, "%s is out of range", t)
		}
		return []any{k}, nil
	case t.kind == boolToken && (f.typ == "" || f.typ == engine.AttributeBool):
		return []any{engine.BoolKey(strings.EqualFold(t.text, "true"))}, nil
	}
	return nil, wrongAt(t, "%s is registered as %s; %s is not a value of this type", f.shown, f.typ, t)
}

func statusValues(t token, test store.Comparison) ([]any, error) {
	if test != store.In && test != store.NotIn {
		return nil, wrongAt(t, "Status has no order: use =, != or IN")
	}
	these := statusesFor(strings.ToLower(t.text), shownAs)
	if these == nil || t.kind != textToken {
		return nil, wrongAt(t, "Status is one of %s, not %s", words(), t)
	}
	var list []any
	for _, s := range these {
		list = append(list, string(s))
	}
	return list, nil
}

// byStatus converts a NOT IN condition on statuses to an IN condition: there are few statuses, and each has an index.
func byStatus(c store.Condition) store.Condition {
	if c.Test != store.NotIn {
		return c
	}
	rest := store.Condition{Field: c.Field, Test: store.In}
	for _, s := range protocol.RunStatuses {
		if !slices.Contains(c.Values, any(string(s))) {
			rest.Values = append(rest.Values, string(s))
		}
	}
	if len(rest.Values) == 0 {
		rest.Values = []any{""} // matches no run
	}
	return rest
}

// Attributes returns the search attributes in conditions, each once, in order of appearance.
func Attributes(where []store.Condition) (names []string) {
	for _, c := range where {
		if c.Field == store.FieldAttribute && len(c.Any) == 0 && !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
		for _, of := range c.Any {
			for _, name := range Attributes(of) {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}
