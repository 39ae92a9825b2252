package engine

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Code may start several steps together and wait for all of them. Replayers match the members of such a group by the
// group's first command number and their index in it, so a group that is recorded wrongly cannot be replayed. The
// engine refuses such a group before it is recorded.

// group identifies a parallel group by the number of its first command and its size.
type group struct {
	ID   string `json:"parallel_group_id"`
	Base int64  `json:"parallel_group_base_sequence"`
	Size int    `json:"parallel_group_size"`
}

// checkGroup checks the innermost parallel group of a command. Replayers match members by base and index; a recorded
// mistake would make the run unreplayable, since a history cannot be repaired.
func checkGroup(c protocol.Command, seq int64, at func(string) string) error {
	switch {
	case c.GroupID == "" && c.GroupIndex == nil:
		return nil
	case c.GroupID == "" || c.GroupIndex == nil || c.GroupBase < 1 || c.GroupSize < 1:
		return protocol.Invalid(at("parallel_group_id"), "a parallel group needs id, base, size and index")
	case c.GroupBase+int64(*c.GroupIndex) != seq:
		return protocol.Invalid(
			at("parallel_group_index"), "base %d + index %d is not this command's sequence %d", c.GroupBase, *c.GroupIndex, seq,
		)
	}
	return nil
}

// checkGroups refuses a group that begins in this completion without all its members. Code issues a group in one task,
// and a replayer would take any command with the number of a missing member for that member. Repeated members of a
// group that began earlier count, too.
func (s *Run) checkGroups(commands []protocol.Command) error {
	type memberCount struct {
		first, members int
		fresh          bool
	}
	var groups map[group]*memberCount
	count := func(g group, i int, fresh bool) {
		t := groups[g]
		if t == nil {
			if groups == nil {
				groups = map[group]*memberCount{}
			}
			t = &memberCount{first: i}
			groups[g] = t
		}
		t.members++
		t.fresh = t.fresh || fresh
	}
	for i, c := range commands {
		if c.GroupID == "" {
			continue
		}
		own, fresh := group{c.GroupID, c.GroupBase, c.GroupSize}, !s.isRepeatedMember(c)
		count(own, i, fresh)
		// Most commands are in only one group, so their path need not be decoded.
		if bytes.Count(c.GroupPath, []byte(`"parallel_group_id"`)) < 2 {
			continue
		}
		var path []group
		if json.Unmarshal(c.GroupPath, &path) != nil {
			continue // the path is stored as received; this engine does not read it
		}
		for _, outer := range path {
			if outer.ID != own.ID && outer.Base > 0 && outer.Size > 0 {
				count(outer, i, fresh)
			}
		}
	}
	short := -1 // the first command of the first incomplete group; -1: none
	var of group
	for g, t := range groups {
		if t.fresh && t.members != g.Size && (short < 0 || t.first < short || t.first == short && g.ID < of.ID) {
			short, of = t.first, g
		}
	}
	if short < 0 {
		return nil
	}
	return protocol.Invalid(fmt.Sprintf(
		"commands.%d.parallel_group_size", short,
	), "group %s has %d members, of which %d are in this completion",
		of.ID, of.Size, groups[of].members)
}
