package protocol

import (
	"cmp"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"
)

// CheckRequest rejects the body of a request that the app would reject by the limits in the tags of its members and by
// the rules for how members go together. Clients call it before they send. It checks requests that have a Check method,
// other structs with their nested structs, and the texts of maps; it accepts anything else.
func CheckRequest(in any) error {
	if c, ok := in.(interface{ Check() error }); ok {
		return c.Check()
	}
	v := reflect.Indirect(reflect.ValueOf(in))
	switch v.Kind() {
	case reflect.Struct:
		return checkNested(v, unnested)
	case reflect.Map:
		for _, k := range v.MapKeys() {
			text := reflect.Indirect(v.MapIndex(k))
			if text.Kind() != reflect.String {
				continue
			}
			if reason := badText(text.String()); reason != "" {
				return Invalid(k.String(), "%s", reason)
			}
		}
	}
	return nil
}

// checkNested is CheckLimitsAt for a struct and for the structs of this package in its members.
func checkNested(v reflect.Value, at func(member string) string) error {
	if err := checkLimits(v, at); err != nil {
		return err
	}
	for _, f := range nestedOf(v.Type()) {
		member := reflect.Indirect(v.FieldByIndex(f.index))
		if !member.IsValid() {
			continue
		}
		err := checkNested(member, func(inner string) string { return at(f.name + "." + inner) })
		if err != nil {
			return err
		}
	}
	return nil
}

// nestedMember is a member of a request that is a struct of this package, or a pointer to one.
type nestedMember struct {
	name  string
	index []int
}

var nestedMembers sync.Map // the nested members of a type of requests, once it was checked

func nestedOf(t reflect.Type) []nestedMember {
	if known, ok := nestedMembers.Load(t); ok {
		return known.([]nestedMember)
	}
	var found []nestedMember
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		of := f.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if !f.Anonymous && f.IsExported() && name != "" && name != "-" && of.Kind() == reflect.Struct &&
			of.PkgPath() == reflect.TypeFor[StartRequest]().PkgPath() {
			found = append(found, nestedMember{name, f.Index})
		}
	}
	nestedMembers.Store(t, found)
	return found
}

// Check rejects a start request that is invalid regardless of stored data. An empty workflow ID is valid.
func (r StartRequest) Check() error {
	if r.WorkflowID != "" {
		if err := CheckWorkflowID(r.WorkflowID, "workflow_id"); err != nil {
			return err
		}
	}
	if err := CheckLimits(r); err != nil {
		return err
	}
	if err := checkIDPolicies(r.DuplicatePolicy, r.ConflictPolicy); err != nil {
		return err
	}
	return CheckFairness(r.FairnessKey, "fairness_key")
}

// Check rejects a request to start an activity that is invalid regardless of stored data. An empty workflow ID is
// valid.
func (r ActivityRequest) Check() error {
	c := r.Command("")
	if err := CheckCommand(&c, unnested); err != nil {
		return err
	}
	return r.Start().Check()
}

// Check rejects a signal with a member outside its limits. An empty name is valid: the path of the route has it.
func (r SignalRequest) Check() error {
	r.SignalName = cmp.Or(r.SignalName, inPath)
	return CheckLimits(r)
}

// Check rejects a query with a member outside its limits. An empty name is valid: the path of the route has it.
func (r QueryRequest) Check() error {
	r.QueryName = cmp.Or(r.QueryName, inPath)
	return CheckLimits(r)
}

// Check rejects an update with a member outside its limits. An empty name is valid: the path of the route has it.
func (r UpdateRequest) Check() error {
	r.UpdateName = cmp.Or(r.UpdateName, inPath)
	return CheckLimits(r)
}

// inPath is a placeholder for a name that is in the path of the request and missing in its body, so that the check of
// the body passes.
const inPath = "-"

var inScheduleID = regexp.MustCompile(`^[a-zA-Z0-9._:-]+$`)

// CheckScheduleID rejects a text that cannot be the ID of a schedule, or of its runs. field is the path of the member.
func CheckScheduleID(field, id string) error {
	if len(id) <= 100 && inScheduleID.MatchString(id) {
		return nil
	}
	if err := CheckNewID(field, id); err != nil {
		return err
	}
	if at := strings.IndexFunc(id, func(r rune) bool { return !inScheduleID.MatchString(string(r)) }); at >= 0 {
		r, _ := utf8.DecodeRuneInString(id[at:])
		return Invalid(
			field, "contains %q at character %d; use letters, digits and . _ : -", r, utf8.RuneCountInString(id[:at])+1,
		)
	}
	return Invalid(field, "must be 1 to 100 of letters, digits and . _ : -")
}

// Check rejects a schedule with a member outside its limits or an invalid ID. An empty ID is valid.
func (r ScheduleRequest) Check() error {
	if err := checkNested(reflect.ValueOf(r), unnested); err != nil {
		return err
	}
	if r.ID != "" {
		if err := CheckScheduleID("schedule_id", r.ID); err != nil {
			return err
		}
	}
	if r.Action != nil && r.Action.WorkflowID != "" {
		return CheckScheduleID("action.workflow_id", r.Action.WorkflowID)
	}
	return nil
}

// Check rejects a namespace with an invalid name or a member outside its limits. An empty name is valid: the path of an
// update has it.
func (r NamespaceRequest) Check() error {
	if r.Name != "" {
		if err := CheckNamespace("name", r.Name); err != nil {
			return err
		}
	}
	return checkNested(reflect.ValueOf(r), unnested)
}

// CheckPath rejects the path of a request, with its query, if it has a name or value that no app accepts: names of the
// path have 1 to MaxName bytes, and all texts are valid UTF-8 without NUL characters.
func CheckPath(path string) error {
	path, query, _ := strings.Cut(path, "?")
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		name, err := url.PathUnescape(segment)
		if err != nil {
			continue // the app's error names the invalid escape
		}
		reason := badText(name)
		switch {
		case reason != "":
		case name == "" || len(name) > MaxName:
			reason = fmt.Sprintf("must be 1 to %d bytes", MaxName)
		case name == "." || name == "..":
			reason = "must not be . or .."
		default:
			continue
		}
		return Invalid("path", "name %.40q %s", name, reason)
	}
	if query == "" {
		return nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil // the app's error names the invalid query
	}
	for name, list := range values {
		for _, value := range list {
			if reason := badText(value); reason != "" {
				return Invalid(name, "%s", reason)
			}
		}
	}
	return nil
}

// CheckTarget rejects a workflow ID or run ID that no run can have.
func CheckTarget(t Target) error {
	if t.WorkflowID == "" || len(t.WorkflowID) > MaxWorkflowID {
		return Invalid("workflow_id", "must be 1 to %d bytes", MaxWorkflowID)
	}
	for _, id := range []struct{ member, text string }{{"workflow_id", t.WorkflowID}, {"run_id", t.RunID}} {
		if reason := badText(id.text); reason != "" {
			return Invalid(id.member, "%s", reason)
		}
	}
	return nil
}
