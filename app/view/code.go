package view

import (
	"cmp"
	"slices"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Workers of one release should have the same code for an activity. If the code differs, a task's behavior depends on
// the worker that leases it, and no error shows this; only a comparison of all workers does.

// maxDiffers is the maximum number of code differences that are listed per worker.
const maxDiffers = 100

// codeOf is the scope in which workers should have the same code for an activity type.
type codeOf struct{ namespace, release, activity string }

// differingTypes returns the activity types for which the workers of a release do not all have the same code. Workers
// need to be compared only for these types.
func differingTypes(views []protocol.WorkerView) map[codeOf]bool {
	first, all := map[codeOf]string{}, map[codeOf]bool{}
	for i := range views {
		v := &views[i]
		if !works(v.Status) {
			continue // a draining worker of an older deployment is expected to differ
		}
		for name, version := range v.Versions {
			of := codeOf{v.Namespace, v.Release, name}
			if was, seen := first[of]; !seen {
				first[of] = version
			} else if was != version {
				all[of] = true
			}
		}
	}
	return all
}

// differences adds to the views of workers the activity types for which another worker of the same release with a
// common queue has different code. Which of the two receives a task is random, so operators should see this.
func differences(views []protocol.WorkerView) {
	disputes := differingTypes(views)
	if len(disputes) == 0 {
		return
	}
	for i := range views {
		v := &views[i]
		for name, version := range v.Versions {
			if !works(v.Status) || !disputes[codeOf{v.Namespace, v.Release, name}] {
				continue
			}
			for j := range views {
				o := &views[j]
				if other, both := o.Versions[name]; both && other != version && works(o.Status) &&
					v.Release == o.Release && v.Namespace == o.Namespace && sharesQueue(v.TaskQueues, o.TaskQueues) {
					v.Differs = append(v.Differs, protocol.CodeDifference{ActivityType: name, WorkerID: o.WorkerID, Version: other})
				}
			}
		}
		slices.SortFunc(v.Differs, func(a, b protocol.CodeDifference) int {
			return cmp.Or(cmp.Compare(a.ActivityType, b.ActivityType), cmp.Compare(a.WorkerID, b.WorkerID))
		})
		v.Differs = v.Differs[:min(len(v.Differs), maxDiffers)]
	}
}

func works(s protocol.WorkerStatus) bool { return s == protocol.WorkerActive }

func sharesQueue(a, b []string) bool {
	return slices.ContainsFunc(a, func(q string) bool { return slices.Contains(b, q) })
}
