package view

import (
	"cmp"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A build consists of an operator's decision, which may precede all workers, and of the workers that registered the
// build, which may all be gone. A cohort combines both, so a drained build without workers is listed, and so is a build
// without a decision.

// Cohort returns the operator's decision about a build ID, without its workers.
func Cohort(q engine.Queue, id string) protocol.BuildCohort {
	d := q.Builds[id]
	c := protocol.BuildCohort{
		BuildID: protocol.OrNil(id), Intent: protocol.IntentActive, DrainedAt: d.DrainedAt, PromotedAt: d.PromotedAt,
		Selected: q.Promoted == id && !d.PromotedAt.IsZero(), Runtimes: []string{}, SDKVersions: []string{},
	}
	if !d.DrainedAt.IsZero() {
		c.Intent = protocol.IntentDraining
	}
	return c
}

// cohorts returns the builds of a queue: first the build of new runs, then the others, most recently seen first.
func (g *queueSnapshot) cohorts(name string) []protocol.BuildCohort {
	var decided engine.Queue
	if q := g.decided[name]; q != nil {
		decided = *q
	}
	all := map[string]*protocol.BuildCohort{}
	of := func(id string) *protocol.BuildCohort {
		if all[id] == nil {
			c := Cohort(decided, id)
			all[id] = &c
		}
		return all[id]
	}
	for id := range decided.Builds {
		of(id)
	}
	for _, w := range g.workers[name] {
		id := ""
		if w.BuildID != nil {
			id = *w.BuildID
		}
		c := of(id)
		c.TotalWorkers++
		switch {
		case w.Status == protocol.WorkerStale:
			c.StaleWorkers++
		// A drained build gets no tasks, whatever the status of its workers.
		case w.Status == protocol.WorkerDraining, c.Intent == protocol.IntentDraining:
			c.DrainingWorkers++
		default:
			c.ActiveWorkers++
		}
		c.Runtimes, c.SDKVersions = with(c.Runtimes, w.Runtime), with(c.SDKVersions, w.SDKVersion)
		if w.LastHeartbeatAt.After(c.LastHeartbeatAt.Time) {
			c.LastHeartbeatAt = w.LastHeartbeatAt
		}
		if c.FirstSeenAt.IsZero() || w.RegisteredAt.Before(c.FirstSeenAt.Time) {
			c.FirstSeenAt = w.RegisteredAt
		}
	}
	list := []protocol.BuildCohort{}
	for _, c := range all {
		c.Rollout = rollout(c)
		list = append(list, *c)
	}
	slices.SortFunc(list, func(x, y protocol.BuildCohort) int {
		if x.Selected != y.Selected {
			if x.Selected {
				return -1
			}
			return 1
		}
		return cmp.Or(y.FirstSeenAt.Compare(x.FirstSeenAt.Time), cmp.Compare(text(y.BuildID), text(x.BuildID)))
	})
	return list
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func with(list []string, name string) []string {
	if name == "" || slices.Contains(list, name) {
		return list
	}
	list = append(list, name)
	slices.Sort(list)
	return list
}

func rollout(c *protocol.BuildCohort) string {
	switch {
	case c.ActiveWorkers > 0 && c.DrainingWorkers > 0:
		return protocol.RolloutMixed
	case c.ActiveWorkers > 0:
		return protocol.RolloutActive
	case c.DrainingWorkers > 0, c.Intent == protocol.IntentDraining:
		// the decision applies with or without live workers of the build
		return protocol.RolloutDraining
	case c.StaleWorkers > 0:
		return protocol.RolloutStale
	}
	return protocol.RolloutNoWorkers
}
