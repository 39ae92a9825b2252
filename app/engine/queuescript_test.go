package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The scripts apply operators' changes to one queue and print the resulting queue.
func TestQueueScripts(t *testing.T) {
	datadriven.Walk(t, "scripts/queue", func(t *testing.T, path string) {
		var q *Queue
		now := time.Date(2026, 1, 1, 0, 0, 30, 0, time.UTC)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			arg := func(name, other string) string {
				if d.HasArg(name) {
					d.ScanArgs(t, name, &other)
				}
				return other
			}
			num := func(name string) (n int) {
				if d.HasArg(name) {
					d.ScanArgs(t, name, &n)
				}
				return n
			}
			decide := func(in QueueChange) string {
				before, _ := json.Marshal(q)
				next, err := DecideQueue(q, QueueKey{"default", "q"}, in, now)
				if after, _ := json.Marshal(q); string(after) != string(before) {
					return "THE DECISION CHANGED ITS QUEUE\n"
				}
				if err != nil {
					return "refused: " + err.Error() + "\n"
				}
				second, _ := DecideQueue(&next, next.Key(), in, now.Add(time.Hour))
				next.UpdatedAt, second.UpdatedAt = history.Time{}, history.Time{}
				q = &next
				out := q.stands()
				if second.stands() != out {
					out += "the same again: " + second.stands()
				}
				return out
			}
			kind := protocol.TaskKind(arg("kind", "activity"))
			switch build := arg("build", ""); d.Cmd {
			case "drain":
				return decide(DrainBuild{build})
			case "resume":
				return decide(ResumeBuild{build})
			case "promote":
				return decide(PromoteBuild{build})
			case "drain-fleet":
				drain := Drain{FleetTarget: target(arg), Evict: d.HasArg("evict"), By: "op"}
				if n := num("deadline"); n > 0 {
					drain.Deadline = history.At(now.Add(time.Duration(n) * time.Second))
				}
				return decide(DrainFleet{Drain: drain, Here: func(worker string) bool { return worker == arg("here", "") }})
			case "resume-fleet":
				return decide(ResumeFleet{target(arg)})
			case "worker": // prints how drains apply to a worker: ID, group, build and release
				drain := q.DrainOf(&Worker{
					ID: arg("id", ""), Group: arg("group", ""), BuildID: arg("build", ""), Release: arg("release", ""),
				})
				switch {
				case drain == nil:
					return "gets work\n"
				case drain.DeadlinePassed(now):
					return "leaves, by the drain of " + drain.Text() + "\n"
				}
				return "gets nothing, by the drain of " + drain.Text() + "\n"
			case "limit":
				return decide(LimitQueue{map[protocol.TaskKind]Budget{kind: {Leases: num("leases"), PerMinute: num("minute")}}})
			case "handed-out":
				q = q.Count(kind, num("n"), now)
				return ""
			case "room":
				room, throttle, bounded := q.Room(kind, num("leased"), now)
				switch {
				case !bounded:
					return "no bound\n"
				case throttle.Why != nil:
					return fmt.Sprintf("none: %s; looks again in %s\n", throttle.Text(), throttle.Wait)
				}
				return fmt.Sprintf("%d\n", room)
			case "advance":
				by, err := time.ParseDuration(d.CmdArgs[0].Key)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				now = now.Add(by)
				return ""
			case "admit": // may a worker of one build lease a workflow task of a run that is pinned to another build?
				want := TaskRequirements{Kind: protocol.KindWorkflow, Type: "sample", BuildID: arg("pinned", ""), Queue: q}
				v := Admit(want, Lessee{
					Worker: &Worker{
						Namespace: "default", ID: "w", Queues: []string{"q"}, WorkflowTypes: []string{"sample"}, BuildID: build,
					},
					BuildID: build, Counted: true,
				}, now)
				if !v.OK {
					return fmt.Sprintf("no: %s: %s\n", v.Reason, v.Text())
				}
				return "yes\n"
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

func target(arg func(name, other string) string) protocol.FleetTarget {
	return protocol.FleetTarget{
		WorkerID: arg("id", ""), Group: arg("group", ""), BuildID: arg("build", ""), Release: arg("release", ""),
	}
}

func (q *Queue) stands() string {
	var all []string
	for _, d := range q.Drains {
		text := d.Text() + " drains since " + d.At.Format("15:04:05")
		if !d.Deadline.IsZero() {
			text += " until " + d.Deadline.Format("15:04:05")
		}
		if d.Evict {
			text += ", evicted"
		}
		all = append(all, text)
	}
	if p := q.NewRuns(); p != "" {
		all = append(all, "new runs go to "+p)
	}
	for id, b := range q.Builds {
		name := id
		if name == "" {
			name = "the unversioned"
		}
		if q.Drained(id) {
			name += " drains"
		}
		if !b.PromotedAt.IsZero() {
			name += " was promoted at " + b.PromotedAt.Format("15:04:05")
		}
		all = append(all, name)
	}
	for kind, b := range q.Limits {
		all = append(all, fmt.Sprintf("%s: %d at once, %d a minute", kind, b.Leases, b.PerMinute))
	}
	if len(all) == 0 {
		return "nothing was decided\n"
	}
	slices.Sort(all)
	return strings.Join(all, "\n") + "\n"
}
