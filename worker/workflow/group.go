package workflow

import (
	"fmt"
	"slices"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// commands returns the commands that no event confirms, with their parallel groups. Commands beyond the maximum of one
// completion are sent with the next completion.
func (m *machine) commands() ([]protocol.Command, error) {
	open, answers := m.queue[m.head:], m.updateCommands()
	for len(open) > 0 && open[0].stored {
		open = open[1:]
	}
	if len(open) == 0 {
		return answers, nil
	}
	if most := protocol.MaxCommands - len(answers); len(open) > most {
		open = open[:most]
		if !slices.ContainsFunc(open, func(p issued) bool { return m.steps[p.seq] != nil }) {
			m.fault = fmt.Errorf("the code issued %d commands at once, and none of the first %d can wake it: wait for a result in between",
				m.Unconfirmed(), most)
			return nil, m.fault
		}
	}
	if open = m.withinPendingLimit(open); len(open) == 0 {
		return answers, nil
	}
	m.groupCommands(open)
	out := slices.Grow(answers, len(open))
	for i := range open {
		open[i].sent = true
		c := *open[i].command
		if c.Type == protocol.ContinueAsNew {
			c.Buffers, c.Unreceived = true, m.unreceived()
			if rest := m.omitted; rest.First <= rest.Last {
				c.UnreceivedRange = &rest
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// groupCommands assigns parallel groups to the commands of one batch: the steps for which a branch waits in Join.
func (m *machine) groupCommands(open []issued) {
	at := make(map[int64]*protocol.Command, len(open))
	for _, p := range open {
		p.command.Parallel = history.Parallel{}
		if p.seq > 0 {
			at[p.seq] = p.command
		}
	}
	if !m.finished && len(m.conditions) == 0 { // a condition of Until may check any of the futures
		for _, co := range m.live {
			if co.wait != nil && co.wait.join {
				group(co.wait, at)
			}
		}
	}
}

// group assigns one parallel group to the steps of this batch for which only one Join waits, so that only the last of
// them wakes the run. All other steps wake the run separately. The members of a group must have consecutive sequence
// numbers, because the first member and the size identify the group.
func group(join *waiter, at map[int64]*protocol.Command) {
	var members []int64
	kinds := [branchStep]int{}
	for _, f := range join.items {
		if f.done || f.seq == 0 || at[f.seq] == nil {
			continue
		}
		// the ends of attached children and awakeables belong to no group
		if len(f.waiters) != 1 || f.kind == attachStep || f.kind == awakeableStep {
			return
		}
		members = append(members, f.seq)
		kinds[f.kind]++
	}
	slices.Sort(members)
	size := len(members)
	if size < 2 || members[size-1]-members[0] != int64(size-1) {
		return
	}
	prefix, kind := "parallel-calls", "mixed"
	switch size {
	case kinds[activityStep]:
		prefix, kind = "parallel-activities", "activity"
	case kinds[timerStep]:
		prefix, kind = "parallel-timers", "timer"
	case kinds[childStep]:
		prefix, kind = "parallel-children", "child"
	}
	id := fmt.Sprintf("%s:%d:%d", prefix, members[0], size)
	for i, seq := range members {
		p := history.Parallel{GroupID: id, GroupKind: kind, GroupBase: members[0], GroupSize: size, GroupIndex: &i}
		p.GroupPath = pathOf(&p)
		at[seq].Parallel = p
	}
}

// pathOf returns the JSON of a list with only this group, in the format of encoding/json. It avoids encoding/json: for
// a group of a thousand steps, that would be half of the memory that the workflow allocates.
func pathOf(p *history.Parallel) []byte {
	return fmt.Appendf(
		nil, `[{"parallel_group_id":"%s","parallel_group_kind":"%s","parallel_group_base_sequence":%d,"parallel_group_size":%d,`+
			`"parallel_group_index":%d}]`, p.GroupID, p.GroupKind, p.GroupBase, p.GroupSize, *p.GroupIndex,
	)
}
