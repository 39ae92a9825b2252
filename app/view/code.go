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

// disputed are the activity types that not all the workers of a release have the same code of. Where all have it, as
// they should, no two workers are compared.
func disputed(views []protocol.WorkerView) map[codeOf]bool {
	first, all := map[codeOf]string{}, map[codeOf]bool{}
	for i := range views {
		v := &views[i]
		if !works(v.Status) {
			continue // a worker on its way out is of an older deployment as a matter of course
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

// differences notes in the views of workers where two of one release, with a queue in common, have different code of
// an activity type. Which of them gets a task is chance, so people should know.
func differences(views []protocol.WorkerView) {
	disputes := disputed(views)
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
