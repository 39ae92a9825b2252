package invariants

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// kind is the type of a call in the history of a schedule.
type kind string

const (
	// a process took over the worker's name; recorded once, and part of the history of every session
	register kind = "register"
	// Made the caller the owner: by the first task of an epoch that it receives, or by a session request.
	claim   kind = "claim"
	fetch   kind = "fetch" // received a task of a session that the caller already owned
	renew   kind = "renew"
	release kind = "release"
	closing kind = "close"
	report  kind = "report"  // completed an attempt, or sent its heartbeat
	resume  kind = "resume"  // a new lease under the same epoch, even if the previous lease has expired
	giveUp  kind = "give up" // the holder dropped its state: no app may lease a task to it under this epoch any more
	// a poll that failed because another process of the worker had registered; before it failed, it may have extended a
	// lease
	overtaken kind = "overtaken poll"
	// an operator drained the owner for some time, during which the app may have released the session
	drain kind = "drain"
)

// call is a request of a worker. Times are microseconds of the store's clock: before is read when the call begins.
type call struct {
	kind                         kind
	worker, incarnation, session string
	epoch                        int64 // 0: the request contained no epoch
	task                         string
	app                          int
	before, lease                int64
	fallback                     int64 // 0: the session is hard
	resumes                      bool  // the worker resumes sessions
}

// reply is the response to a call. after is the time of its arrival; at is the time at which the store applied the
// call, if the response has it; until is the end of the lease.
type reply struct {
	ok                      bool
	already                 bool // a close changed nothing: the session was already closed, or its caller had lost it
	reason                  string
	epoch, at, until, after int64
}

// ownership is the state of a session in the model. Its lease ends between low and high. They differ only after a
// report: a report renews the lease if less than two thirds of it are left, and otherwise does not change the row.
type ownership struct {
	owner, incarnation string
	epoch, low, high   int64
	taken              int64 // earliest possible time of the owner's last task or acquisition
	closed             bool
	given              int64     // epoch that may have been released because its owner was drained
	processes          [2]string // the newest process of workers a and b
}

// latest returns the time at which the lease has certainly ended. The model does not see a renewal by a poll whose
// response was discarded because another process of the worker superseded it.
func (s ownership) latest(c call) int64 {
	if c.epoch == 0 || s.owner == "" || s.processes[process(s.owner)] == s.incarnation {
		return s.high
	}
	return s.high + c.lease
}

// held returns the state after the caller became the owner.
func (s ownership) held(c call, incarnation string, r reply) ownership {
	s.owner, s.incarnation, s.epoch, s.low, s.high = c.worker, incarnation, r.epoch, r.until, r.until
	s.taken = max(s.taken, c.before)
	return s
}

// open reports whether others may have been able to acquire the session at a moment: the lease had ended, or, in a soft
// session, its owner had accepted no task for the fallback time or was drained.
func (s ownership) open(c call, at int64) bool {
	return s.owner == "" || at >= s.low || s.given != 0 && s.given == s.epoch || c.fallback > 0 && at >= s.taken+c.fallback
}

// unknown is the process of an owner whose acquisition is not in the history.
const unknown = "?"

func process(worker string) int { return int(worker[0] - 'a') }

// left returns the minimum remaining time of a lease after a step.
func (c call) left() int64 { return 2 * c.lease / 3 }

// promises reports whether the lease expiry in the response can be the stored one: at most a full lease from now, and
// at least the remaining time of a step.
func promises(c call, r reply) bool {
	return r.until <= r.after+c.lease && r.until >= c.before+c.left()
}

// law reports whether the response of a call is possible in the state s, and returns the state after it.
func law(s ownership, c call, r reply) (bool, ownership) {
	holds := s.owner == c.worker && (c.epoch == 0 || c.epoch == s.epoch)
	mine := s.owner == c.worker && (s.incarnation == c.incarnation || s.incarnation == unknown)
	if c.kind == claim && c.task != "" && mine && s.epoch == r.epoch {
		c.kind = fetch // the session was acquired by a verb, or by a task that was returned undelivered
	}
	// A request without an epoch refers to the worker's current epoch, which a poll may have acquired whose task was
	// returned undelivered.
	unseen := c.epoch == 0 && r.ok && !s.closed &&
		(s.open(c, r.after) || s.owner == c.worker && s.processes[process(c.worker)] != s.incarnation)
	switch {
	case r.ok && (c.kind == claim || c.kind == fetch || c.kind == renew || c.kind == resume) && !promises(c, r):
		return false, s
	case c.kind == register:
		s.processes[process(c.worker)] = c.incarnation
		return true, s
	case c.kind == drain:
		if s.owner == c.worker {
			s.given = s.epoch
		}
		return true, s
	case c.kind == claim:
		free := s.open(c, r.after) || s.owner == c.worker && s.incarnation != c.incarnation
		if s.closed || !free || r.epoch <= s.epoch || s.processes[process(c.worker)] != c.incarnation {
			return false, s
		}
		return true, s.held(c, c.incarnation, r)
	case c.kind == fetch && s.epoch != r.epoch:
		// A poll that timed out acquired the session: its task was returned undelivered, and the worker still holds the
		// session. An epoch is at least the store's time of its acquisition.
		free := s.open(c, r.epoch) || s.owner == c.worker && s.incarnation != c.incarnation
		if s.closed || !free || r.epoch <= s.epoch || s.processes[process(c.worker)] != c.incarnation {
			return false, s
		}
		return true, s.held(c, c.incarnation, r)
	case c.kind == fetch:
		// A task of a session with an expired lease resumes the session at the process that held it last.
		over := max(r.at, c.before) >= s.high
		if s.closed || !mine || s.epoch != r.epoch || over && !c.resumes {
			return false, s
		}
		s.incarnation, s.low, s.high = c.incarnation, max(s.low, r.until), max(s.high, r.until)
		if c.task != "" { // a request for a session that the worker already holds leases no waiting task
			s.taken = max(s.taken, c.before)
		}
		return true, s
	case c.kind == report:
		if s.closed || s.owner != c.worker || s.epoch != c.epoch || c.before >= s.high {
			return true, s // the lease of the attempt is valid, so the report counts and does not change the session
		}
		s.high = max(s.high, r.after+c.lease)
		if r.after < s.low {
			s.low = max(s.low, c.before+c.left())
		}
		return true, s
	case c.kind == overtaken:
		if !s.closed && mine {
			s.high = max(s.high, r.after+c.lease)
		}
		return true, s
	case c.kind == giveUp: // an app refuses only if the worker does not hold the session under this epoch
		if !s.closed && holds {
			s.owner, s.incarnation = "", ""
		}
		return true, s
	case c.kind == resume && !r.ok: // refused because of the maximum, a drain or the release gate
		return true, s
	case c.kind == resume:
		if s.closed || !mine || s.epoch != c.epoch || r.epoch != c.epoch {
			return false, s
		}
		s.incarnation, s.low, s.high = c.incarnation, max(s.low, r.until), max(s.high, r.until)
		return true, s
	case !r.ok:
		// may have acquired it by a poll whose task was returned
		successor := s.owner != "" && s.processes[process(s.owner)] != s.incarnation
		return s.closed || !holds || successor || s.open(c, r.after), s
	case c.kind == renew && r.epoch != s.epoch && unseen:
		if r.epoch <= s.epoch {
			return false, s
		}
		return true, s.held(c, unknown, r)
	case c.kind == renew:
		if s.closed || !holds || r.at >= s.latest(c) {
			return false, s
		}
		s.low, s.high = max(s.low, r.until), max(s.high, r.until)
		return true, s
	case c.kind == release:
		if s.closed || (!holds || c.before >= s.latest(c)) && !unseen {
			return false, s
		}
		s.owner, s.incarnation = "", ""
		return true, s
	case c.kind == closing && r.already:
		// A close that released the session may be repeated until a worker acquires the session.
		return s.closed || holds && s.open(c, r.after) || unseen || s.owner == "", s
	case c.kind == closing:
		if s.closed || (!holds || c.before >= s.latest(c)) && !unseen {
			return false, s
		}
		s.closed = true
		return true, s
	}
	return false, s
}

var model = porcupine.Model{
	Init: func() any { return ownership{} },
	Step: func(state, input, output any) (bool, any) {
		ok, next := law(state.(ownership), input.(call), output.(reply))
		return ok, next
	},
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		var sessions []string
		for _, o := range history {
			if s := o.Input.(call).session; s != "" && !slices.Contains(sessions, s) {
				sessions = append(sessions, s)
			}
		}
		slices.Sort(sessions)
		parts := make([][]porcupine.Operation, len(sessions))
		for i, s := range sessions {
			for _, o := range history {
				if c := o.Input.(call); c.session == s || c.kind == register {
					parts[i] = append(parts[i], o)
				}
			}
		}
		return parts
	},
	DescribeOperation: func(input, output any) string {
		c, r := input.(call), output.(reply)
		text := fmt.Sprintf("%s %s/%s %s", c.kind, c.worker, c.incarnation, c.session)
		if c.epoch != 0 {
			text += fmt.Sprintf(" @%d", c.epoch)
		}
		if !r.ok {
			return text + " → " + r.reason
		}
		if r.already {
			text += " → already"
		}
		if r.epoch != 0 {
			text += fmt.Sprintf(" → @%d", r.epoch)
		}
		if r.until != 0 {
			text += fmt.Sprintf(" until %d", r.until)
		}
		return text + fmt.Sprintf(" [%d…%d] app %d", c.before, r.after, c.app)
	},
	DescribeState: func(state any) string {
		s := state.(ownership)
		return fmt.Sprintf("%s/%s @%d until %d…%d taken %d closed=%t, processes %s", s.owner, s.incarnation, s.epoch,
			s.low, s.high, s.taken, s.closed,
			strings.Join(s.processes[:], " "))
	},
}
