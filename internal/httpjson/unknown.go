package httpjson

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/sojourn-run/sojourn/internal/rawjson"
	"github.com/sojourn-run/sojourn/internal/suggest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// maxUnknown limits the unknown members that a response names; the others are only counted.
const maxUnknown = 20

// Unknown lists the members and query parameters of a request that the route does not know.
type Unknown struct {
	Count   int
	Members []UnknownMember // the first maxUnknown unknown members
}

// UnknownMember is a member of a body, or a parameter of a query, that the route does not know.
type UnknownMember struct {
	Path string // for example action.input
	Near string // nearest known name, as a suggestion; empty: no similar name
	What string // "member" or "query parameter"
}

// Add appends the members of other.
func (u *Unknown) Add(other Unknown) {
	u.Count += other.Count
	u.Members = append(u.Members, other.Members[:min(len(other.Members), maxUnknown-len(u.Members))]...)
}

// Warnings returns the unknown members as warnings for the response.
func (u Unknown) Warnings() []protocol.Warning {
	list := make([]protocol.Warning, len(u.Members))
	for i, m := range u.Members {
		list[i] = protocol.Warning{
			Code: protocol.WarnUnknownMember, Subject: m.Path,
			Message: "the " + m.What + " " + m.Path + " is unknown and was ignored" + suggest.Ending(m.Near),
		}
	}
	return list
}

// Refusal returns the error for a route that rejects unknown members; nil if there are none.
func (u Unknown) Refusal() error {
	if u.Count == 0 {
		return nil
	}
	e := &protocol.Error{Reason: protocol.ReasonValidation, Fields: map[string][]string{}}
	for _, m := range u.Members {
		e.Fields[m.Path] = []string{"is unknown" + suggest.Ending(m.Near)}
	}
	first := u.Members[0]
	e.Message = first.Path + ": the " + first.What + " is unknown" + suggest.Ending(first.Near)
	return e
}

// step is an element of the path to a value: the position of a quoted name in the text, or an index of a list.
type step struct {
	from, to int // position of the name; to is 0 for an index
	index    int
}

// element returns the text of a step in a path.
func (s *inspector) element(at step) string {
	if at.to == 0 {
		return strconv.Itoa(at.index)
	}
	return shown(string(rawjson.Name(s.text[at.from:at.to])))
}

// shown returns a name as responses show it: valid UTF-8, truncated to the length of the longest known name.
func shown(name string) string {
	if len(name) > protocol.MaxName {
		name = name[:protocol.MaxName] + "…"
	}
	return strings.ToValidUTF8(name, "")
}

// recordUnknown records an unknown member of the current object; known has the members of its type.
func (s *inspector) recordUnknown(at step, known map[string]reflect.Type) {
	if s.unknown.Count++; len(s.unknown.Members) == maxUnknown {
		return
	}
	name := s.element(at)
	path := make([]string, 0, len(s.at)+1)
	for _, above := range s.at {
		path = append(path, s.element(above))
	}
	s.unknown.Members = append(s.unknown.Members, UnknownMember{
		Path: strings.Join(append(path, name), "."), What: "member",
		Near: suggest.Name(strings.ToLower(name), slices.Sorted(maps.Keys(known))),
	})
}

// UnknownParameters returns the parameters of a query that are neither members of the struct known nor in the list
// also. known may be nil.
func UnknownParameters(query map[string][]string, known any, also ...string) (u Unknown) {
	var members map[string]reflect.Type
	if known != nil {
		members = typesOf(reflect.TypeOf(known))
	}
	var unknown []string
	for name := range query {
		if members[name] == nil && !slices.Contains(also, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 { // the usual case
		return u
	}
	slices.Sort(unknown)
	names := slices.AppendSeq(slices.Clone(also), maps.Keys(members))
	slices.Sort(names)
	for _, name := range unknown {
		if u.Count++; len(u.Members) == maxUnknown {
			continue
		}
		u.Members = append(u.Members, UnknownMember{
			Path: shown(name), What: "query parameter", Near: suggest.Name(name, names),
		})
	}
	return u
}
