package engine

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Workers declare amounts of resources, such as the memory of a GPU or licences, and a session may need some of them.
// No acquisition makes the sum over the sessions of a worker exceed the declared amounts. The sum includes sessions
// whose state the worker may have suspended and sessions that it prepares. As with the maximum number of sessions, an
// acquisition computes the sum under the lock of the worker's row.

// Amounts are amounts by the name of the resource, in thousandths of its unit.
type Amounts map[string]int64

// Add adds resources n times.
func (a *Amounts) Add(r protocol.Resources, n int) {
	if len(r) == 0 {
		return
	}
	if *a == nil {
		*a = Amounts{}
	}
	for name, q := range r {
		(*a)[name] += int64(n) * q.Thousandths()
	}
}

// Plus returns the sum of both.
func (a Amounts) Plus(b Amounts) Amounts {
	if len(a) == 0 || len(b) == 0 {
		if len(a) == 0 {
			return b
		}
		return a
	}
	sum := maps.Clone(a)
	for name, n := range b {
		sum[name] += n
	}
	return sum
}

// HeldResources are the resources that a session uses at a process of a worker, as a column of its row stores them.
type HeldResources struct {
	Incarnation string             `json:"incarnation,omitempty"`
	Resources   protocol.Resources `json:"resources"`
}

// SuspendedTime is how long the resources of suspended state count: until the worker has dropped the state, with a
// margin for its clock.
const SuspendedTime = protocol.SuspendedState + 10*time.Second

// resourcesAt returns the resources that a session of a definition uses at a worker: needs, and for resources that it
// does not contain the worker's defaults. Memory counts only at workers that declare it.
func (w *Worker) resourcesAt(definition string, needs protocol.Resources) protocol.Resources {
	for _, name := range []string{definition, protocol.EverySession} {
		more := w.SessionResources[name]
		if len(more) == 0 || name == "" {
			continue
		}
		more = maps.Clone(more)
		maps.Copy(more, needs)
		needs = more
	}
	_, limited := w.Resources[protocol.ResourceMemory]
	if _, is := needs[protocol.ResourceMemory]; is && !limited {
		needs = maps.Clone(needs)
		delete(needs, protocol.ResourceMemory)
	}
	return needs
}

// resourcesAt returns the resources that the session would use at a worker.
func (s *Session) resourcesAt(w *Worker) protocol.Resources {
	return w.resourcesAt(s.Definition, s.Resources)
}

// UsedBy returns the resources that the session uses at a worker: as its owner, with suspended state, or as the worker
// that prepares it.
func (s *Session) UsedBy(w *Worker, now time.Time) protocol.Resources {
	if p := s.Preparing(now); p != nil && p.Worker == w.ID {
		return p.Resources
	}
	if s.Owner == w.ID && (s.Held(now) || s.Incarnation == w.Incarnation && s.suspendedUntil().After(now)) {
		return s.Used
	}
	return nil
}

// suspendedUntil returns until when the resources of state count that the last owner may have suspended.
func (s *Session) suspendedUntil() history.Time {
	if len(s.Used) == 0 || s.Owner == "" {
		return history.Time{}
	}
	return plus(s.LeaseUntil, SuspendedTime)
}

// use records which resources the session uses at its new owner.
func (s *Session) use(w *Worker, resources protocol.Resources) {
	s.Used = resources
	s.Suspends = len(resources) > 0 && w.ResumesSessions && w.Incarnation != "" && s.Origin != OriginWorker
}

// freeResources frees the resources of a session that has no owner, and whose last owner has no suspended state. Every
// decision on a session calls it.
func (s *Session) freeResources() {
	lost := s.Status != protocol.SessionActive && (!s.Suspends || s.GivenUp == ReasonEvictedIdle)
	if s.Owner == "" || s.Terminal || lost {
		s.Used, s.Suspends = nil, false
	}
}

// Shortage is a resource of which a worker has too little for a session.
type Shortage struct {
	Name              string
	Need, Free, Total protocol.Quantity
	Never             bool // the worker has too little even without any session
}

// shortage returns a resource of which the worker has too little for resources of which it already counts had, by
// preference one of which it always has too little; ok is false if it has enough of all. used is the sum at the worker.
func (w *Worker) shortage(needs, had protocol.Resources, used Amounts) (short Shortage, ok bool) {
	if len(needs) == 0 {
		return Shortage{}, false
	}
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		need, total := needs[name], w.Resources[name]
		more := need.Thousandths() - had[name].Thousandths()
		never := need.Thousandths() > total.Thousandths()
		if more <= 0 || !never && used[name]+more <= total.Thousandths() {
			continue
		}
		if !ok || never {
			free := max(0, total.Thousandths()-used[name])
			short = Shortage{Name: name, Need: need, Free: total.OfThousandths(free), Total: total, Never: never}
			ok = true
		}
		if never {
			break
		}
	}
	return short, ok
}

// refusedFor returns the refusal of a worker that has too little of a resource.
func (e explain) refusedFor(s *Session, w *Worker, short Shortage) Verdict {
	reason, why := protocol.ReasonSessionLimit, protocol.WaitSessionResources
	if short.Never {
		reason, why = protocol.ReasonSessionRequirements, protocol.WaitSessionTooLarge
	}
	if !e {
		return Verdict{Reason: reason}
	}
	return e.refused(reason, why, protocol.Wait{
		Session: s.ID, Worker: w.ID, Resources: protocol.Resources{short.Name: short.Need},
		WorkerResources: []protocol.WorkerResource{{
			Worker: w.ID, Name: short.Name, Free: short.Free, Total: short.Total,
		}},
	})
}

// NeedsResources reports whether a command has session options with resources of workers.
func NeedsResources(c *protocol.Command) bool {
	return c.WorkerSession != nil && len(c.WorkerSession.Resources) > 0
}

// tooLarge returns how much the live workers of a queue have of a resource, if none of them could hold the session even
// without other sessions. It returns "" if one could, and if no live worker serves the queue: workers may be starting.
func (st *step) tooLarge(s *Session, queue string) string {
	if len(s.Resources) == 0 {
		return ""
	}
	var short []protocol.Wait
	for _, w := range st.workers {
		if !w.Serves(queue) {
			continue
		}
		lacks, is := w.shortage(s.resourcesAt(w), nil, nil)
		if !is {
			return ""
		}
		short = append(short, *explain(true).refusedFor(s, w, lacks).Wait)
	}
	if len(short) == 0 {
		return ""
	}
	wait := short[0]
	if n := addRooms(&wait, short); n > 1 {
		wait.Workers = n
	}
	return wait.Room()
}

// ShareAfter returns the share of the resources that stays free at a worker if it acquires the session, of the resource
// with the smallest share: between 0 and 1, and 1 if the session needs none.
func (s *Session) ShareAfter(l *Lessee) float64 {
	share := 1.0
	for name, q := range s.resourcesAt(l.Worker) {
		total := float64(l.Worker.Resources[name].Thousandths())
		if total > 0 {
			share = min(share, (total-float64(l.Used[name]+q.Thousandths()))/total)
		}
	}
	return share
}

// AmountsAt returns the amounts that the session would use at a worker.
func (s *Session) AmountsAt(w *Worker) (a Amounts) {
	a.Add(s.resourcesAt(w), 1)
	return a
}

// FitsAt reports whether a worker has the resources for the session, of which its other sessions use some.
func (s *Session) FitsAt(w *Worker, used Amounts) bool {
	_, short := w.shortage(s.resourcesAt(w), nil, used)
	return !short
}

// Lacking returns the amounts that must become free at a worker, of which its sessions use some, before it can acquire
// the session; nil if it has enough, or never has.
func (s *Session) Lacking(w *Worker, used Amounts) (lacking Amounts) {
	for name, q := range s.resourcesAt(w) {
		total := w.Resources[name].Thousandths()
		if q.Thousandths() > total {
			return nil
		}
		if more := used[name] + q.Thousandths() - total; more > 0 {
			if lacking == nil {
				lacking = Amounts{}
			}
			lacking[name] = more
		}
	}
	return lacking
}

// Uses reports whether the session uses some of these resources.
func (s *Session) Uses(of Amounts) bool {
	for name := range of {
		if s.Used[name].Thousandths() > 0 {
			return true
		}
	}
	return false
}

// Covers reports whether a has at least the amounts of b.
func (a Amounts) Covers(b Amounts) bool {
	for name, n := range b {
		if a[name] < n {
			return false
		}
	}
	return true
}

// Evens reports whether the move of the session from its owner to another worker reduces a difference of over 20 %. The
// difference is that of the resource of which the owner uses the largest share, if the session uses it and both workers
// declare it, and otherwise that of the numbers of sessions.
func (s *Session) Evens(owner, to *Lessee) bool {
	most, largest := "", 0.0
	for name, total := range owner.Worker.Resources {
		n := float64(total.Thousandths())
		if to.Worker.Resources[name].Thousandths() == 0 || n == 0 {
			continue
		}
		if share := float64(owner.Used[name]) / n; share > largest || share == largest && share > 0 && name < most {
			most, largest = name, share
		}
	}
	if most == "" {
		return Imbalanced(owner.Sessions, to.Sessions)
	}
	leaves := float64(s.Used[most].Thousandths()) / float64(owner.Worker.Resources[most].Thousandths())
	total := float64(to.Worker.Resources[most].Thousandths())
	arrives := float64(s.resourcesAt(to.Worker)[most].Thousandths()) / total
	there := float64(to.Used[most]) / total
	return leaves > 0 && largest > 1.2*there && largest-leaves >= there+arrives
}

// RoomierFor reports whether worker a has more room for the session than worker b: the larger share of the resources
// that the session needs stays free, or else it holds fewer sessions.
func (s *Session) RoomierFor(a, b *Lessee) bool {
	x, y := s.ShareAfter(a), s.ShareAfter(b)
	if x != y {
		return x > y
	}
	return a.Sessions < b.Sessions
}

// SameResources reports whether two registrations of a worker have the same resources.
func (w *Worker) SameResources(o *Worker) bool {
	return w.Resources.Equal(o.Resources) &&
		maps.EqualFunc(w.SessionResources, o.SessionResources, protocol.Resources.Equal)
}

// ChoosesWorker reports whether it matters which of several workers acquires the session, because it needs resources of
// workers.
func (s *Session) ChoosesWorker() bool { return len(s.Resources) > 0 || s.Definition != "" }

// resourcePrefix is the prefix of requirements in routing keys that are resources of sessions.
const resourcePrefix = "session_resource:"

// ResourceRequirements returns the session's resources in the form of requirements, for its routing key.
func (s *Session) ResourceRequirements() (list []string) {
	for name, q := range s.Resources {
		list = append(list, resourcePrefix+name+"="+strconv.FormatInt(q.Thousandths(), 10))
	}
	return list
}

// FitsSessionOf reports whether a worker has enough resources for one more session with the requirements of a routing
// key. A claim does not read tasks in sessions for which the worker has no room, since they could be any number and
// would hide others.
func (w *Worker) FitsSessionOf(requirements []string, used Amounts) bool {
	definition, needs := "", protocol.Resources(nil)
	for _, r := range requirements {
		if name, is := strings.CutPrefix(r, protocol.DefinitionCapability("")); is {
			definition = name
		}
		text, is := strings.CutPrefix(r, resourcePrefix)
		if !is {
			continue
		}
		name, amount, _ := strings.Cut(text, "=")
		n, err := strconv.ParseInt(amount, 10, 64)
		if err != nil {
			continue
		}
		if needs == nil {
			needs = protocol.Resources{}
		}
		needs[name] = protocol.Quantity{}.OfThousandths(n)
	}
	_, short := w.shortage(w.resourcesAt(definition, needs), nil, used)
	return !short
}
