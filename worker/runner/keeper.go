package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/link"
	"github.com/sojourn-run/sojourn/worker/session"
)

// keeper keeps the leases of attempts alive: one heartbeat renews all that are due. An attempt whose lease could not be renewed in time is ended
// here, before the app gives it to somebody else.
type keeper struct {
	length, interval, margin time.Duration
	beat                     func() // asks for a heartbeat soon

	mu     sync.Mutex        // guards what follows, and the leases in it
	leases map[string]*lease // by attempt id
}

// lease is one attempt's, as far as this side knows.
type lease struct {
	task   *protocol.ActivityTask
	cancel context.CancelCauseFunc

	// The rest is guarded by the keeper's mu.
	renewed   time.Time // when what the lease rests on was sent; it lives to renewed + length at least
	notBefore time.Time // of the next try, after one that failed
	over      bool
}

// together is how close to its time a renewal may be to go with one that is due, so that they share a call: a quarter of the interval.
const together = 4

// request is the renewal of a lease.
func (l *lease) request() protocol.HeartbeatRequest {
	t := l.task
	h := protocol.HeartbeatRequest{Kind: protocol.KindActivity, TaskID: t.TaskID, Owner: t.LeaseOwner, AttemptID: t.AttemptID}
	if t.Session != nil {
		h.Epoch = t.Session.Epoch
	}
	return h
}

func newKeeper(length, buffer time.Duration, beat func()) *keeper {
	return &keeper{
		length: length, interval: AttemptInterval(length, buffer), margin: min(2*time.Second, length/10), beat: beat, leases: map[string]*lease{},
	}
}

// hold keeps the lease of an attempt that was received at that time, until release.
func (k *keeper) hold(t *protocol.ActivityTask, received time.Time, cancel context.CancelCauseFunc) *lease {
	l := &lease{task: t, cancel: cancel, renewed: received}
	k.mu.Lock()
	k.leases[t.AttemptID] = l
	first := len(k.leases) == 1
	k.mu.Unlock()
	if first && k.interval < 10*time.Second {
		k.beat() // the heartbeat's own pace is too slow to notice it in time
	}
	return l
}

func (k *keeper) release(l *lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leases[l.task.AttemptID] == l {
		delete(k.leases, l.task.AttemptID)
	}
}

// until is when the lease ends, as far as is known.
func (k *keeper) until(l *lease) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return l.renewed.Add(k.length)
}

// cancel ends an attempt with a cause.
func (k *keeper) cancel(attempt string, cause error) {
	k.mu.Lock()
	l := k.leases[attempt]
	k.mu.Unlock()
	if l != nil {
		l.cancel(cause)
	}
}

// due are the attempts to renew, and when to ask again. Attempts whose time is over are ended.
func (k *keeper) due(now time.Time) (renew []protocol.HeartbeatRequest, next time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var soon []*lease
	due := false
	for _, l := range k.leases {
		if l.over {
			continue
		}
		end := l.renewed.Add(k.length - k.margin)
		if !now.Before(end) {
			l.over = true
			l.cancel(fmt.Errorf("%w: its lease could not be renewed since %s", ErrLeaseLost, l.renewed.Format(time.RFC3339)))
			continue
		}
		next = earlier(next, end)
		at := l.renewed.Add(k.interval)
		if at.Before(l.notBefore) {
			at = l.notBefore
		}
		due = due || !now.Before(at)
		if now.Before(at.Add(-k.interval / together)) {
			next = earlier(next, at)
		} else {
			soon = append(soon, l)
		}
	}
	for _, l := range soon {
		if due {
			renew = append(renew, l.request())
		} else {
			next = earlier(next, l.renewed.Add(k.interval))
		}
	}
	return renew, next
}

// all are the renewals of every attempt that still has its lease.
func (k *keeper) all() (renew []protocol.HeartbeatRequest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.leases {
		if !l.over {
			renew = append(renew, l.request())
		}
	}
	return renew
}

// renewed takes the app's answers to what due gave for a heartbeat sent at sent.
func (k *keeper) renewed(sent time.Time, asked []protocol.HeartbeatRequest, answers []protocol.HeartbeatAnswer, err error, sessions *session.Sessions) {
	if len(asked) == 0 {
		return
	}
	by := make(map[string]protocol.HeartbeatAnswer, len(answers))
	for _, a := range answers {
		by[a.AttemptID] = a
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range asked {
		l := k.leases[h.AttemptID]
		if l == nil {
			continue
		}
		a, ok := by[h.AttemptID]
		switch {
		case err != nil || !ok || !a.Renewed && a.CanContinue:
			l.notBefore = time.Now().Add(min(time.Second, k.interval/4))
		case !a.Renewed:
			l.over = true
			l.cancel(fmt.Errorf("%w: %s", ErrLeaseLost, why(a)))
		default:
			l.renewed, l.notBefore = sent, time.Time{}
			if s := l.task.Session; s != nil {
				sessions.Touched(s.SessionID, s.Epoch, sent)
			}
			if a.CancelRequested || !a.CanContinue {
				l.cancel(fmt.Errorf("%w: %s", ErrCancelled, why(a)))
			}
		}
	}
}

func why(a protocol.HeartbeatAnswer) string {
	switch {
	case a.RunClosedReason != nil:
		return "run " + *a.RunClosedReason
	case a.Reason != nil:
		return *a.Reason
	case a.CancelRequested:
		return "cancel requested"
	}
	return "the app said so"
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// holdings are the attempts and sessions of a worker, for the link's heartbeat.
type holdings struct{ r *Runner }

var _ link.Holdings = holdings{}

// Holdings is what this worker holds, for the heartbeat that renews it.
func (r *Runner) Holdings() link.Holdings { return holdings{r} }

func (h holdings) Due(now time.Time) ([]protocol.HeartbeatRequest, []protocol.SessionRenewal, time.Time) {
	leases, next := h.r.keeper.due(now)
	sessions, then := h.r.opt.Sessions.Due(now)
	return leases, sessions, earlier(next, then)
}

func (h holdings) Leases() []protocol.HeartbeatRequest { return h.r.keeper.all() }

func (h holdings) Renewed(sent time.Time, leases []protocol.HeartbeatRequest, sessions []protocol.SessionRenewal,
	a protocol.WorkerHeartbeatAnswer, err error) {
	h.r.keeper.renewed(sent, leases, a.Leases, err, h.r.opt.Sessions)
	h.r.opt.Sessions.Renewed(sent, sessions, a.Sessions, err)
}

// Cancel ends an attempt because the app said so. One that does not run here is none of this worker's business.
func (r *Runner) Cancel(n protocol.CancelNotice) { r.keeper.cancel(n.AttemptID, ErrCancelled) }

// ended says whether the cause of an attempt's end means that its outcome counts for nothing.
func ended(cause error) bool { return errors.Is(cause, ErrLeaseLost) }
