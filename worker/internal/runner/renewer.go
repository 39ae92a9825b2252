package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/internal/clock"
	"github.com/sojourn-run/sojourn/worker/session"
)

// A lease counts from the time when the worker sent the renewal, not from the response. The app starts the lease in
// between, so the lease expires at the worker before it expires at the app.

// leaseRenewer renews the leases of attempts and workflow tasks; one heartbeat renews all leases that are due. If a
// lease could not be renewed in time, it ends the attempt before the app can dispatch the task to another worker.
// Otherwise two workers would run the attempt.
type leaseRenewer struct {
	timing
	requestHeartbeat func() // requests an early heartbeat
	ticks            *clock.Ticks
	origin           time.Time // time from which clock.Ages measures

	mu     sync.Mutex        // guards the fields below, and the leases
	leases map[string]*lease // leases by protocol.TaskKey
	ages   clock.Ages        // ages of the app's responses
	store  time.Time         // latest time of the store's clock in a response
	read   time.Time         // when that response was read
}

// timing is when a lease is renewed: after interval, of its length. It counts as lost a margin before its end.
type timing struct{ length, interval, margin time.Duration }

func newTiming(length, interval time.Duration) timing {
	return timing{length, interval, min(2*time.Second, length/10)}
}

// lease is the lease of one delivery, as far as this worker knows.
type lease struct {
	task    protocol.HeartbeatRequest
	session *protocol.SessionAffinity // session of the attempt; nil: none
	cancel  context.CancelCauseFunc
	timing

	// The fields below are guarded by leaseRenewer.mu.
	renewed   time.Time // when the last renewal was sent; the lease is valid at least until renewed + length
	notBefore time.Time // earliest time of the next renewal after a failed one
	lost      bool
	known     bool // renewed is the exact start of the lease, not a lower bound
	// from this time on, only a renewal shows whether the lease is valid; zero: it is known to be valid
	doubtSince   time.Time
	answered     chan struct{} // closed at the response to a renewal; nil: no goroutine waits
	sessionMoved bool          // another worker or epoch acquired the session before the attempt began
	sessionLease session.Lease // last known lease of the session
}

// batchFraction selects which renewals share a heartbeat with a renewal that is due: renewals that become due within
// interval/batchFraction.
const batchFraction = 2

// keyOf returns the key of the delivery that a renewal is about.
func keyOf(h protocol.HeartbeatRequest) string {
	return protocol.TaskKey(h.Kind, h.TaskID, h.AttemptID, h.Attempt)
}

func newLeaseRenewer(length, buffer time.Duration, beat func()) *leaseRenewer {
	return &leaseRenewer{
		timing:           newTiming(length, AttemptInterval(length, buffer)),
		requestHeartbeat: beat, leases: map[string]*lease{},
		ticks: clock.NewTicks(), origin: time.Now(),
	}
}

// holdActivity keeps renewing the lease of an attempt until release is called.
func (k *leaseRenewer) holdActivity(t *protocol.ActivityTask, received arrival, cancel context.CancelCauseFunc) *lease {
	h := protocol.HeartbeatRequest{
		Kind: protocol.KindActivity, TaskID: t.TaskID, Owner: t.LeaseOwner, AttemptID: t.AttemptID,
	}
	if t.Session != nil {
		h.Epoch = t.Session.Epoch
	}
	l := &lease{task: h, session: t.Session, cancel: cancel, timing: k.timingOf(t)}
	return k.track(l, received, t.LeaseExpiresAt)
}

// timingOf returns the timing of an attempt's lease, which is shorter in a fail-fast session.
func (k *leaseRenewer) timingOf(t *protocol.ActivityTask) timing {
	if t.Session != nil && t.Session.FailFast {
		return newTiming(min(k.length, protocol.FailFastLease), min(k.interval, protocol.FailFastRenewal))
	}
	return k.timing
}

// holdWorkflowTask keeps renewing the lease of a workflow task until release is called. Workflow code cannot be
// cancelled; use isLost to find out whether the lease was lost. If it is lost, lost is called, which ends a local step
// of the code.
func (k *leaseRenewer) holdWorkflowTask(
	t *protocol.WorkflowTask, received arrival, lost context.CancelCauseFunc,
) *lease {
	h := protocol.HeartbeatRequest{Kind: protocol.KindWorkflow, TaskID: t.TaskID, Owner: t.LeaseOwner, Attempt: t.Attempt}
	return k.track(&lease{task: h, cancel: lost, timing: k.timing}, received, t.LeaseExpiresAt)
}

// track keeps renewing a lease until release is called. The lease expires at end by the store's clock.
func (k *leaseRenewer) track(l *lease, received arrival, end history.Time) *lease {
	l.renewed, l.known = received.leaseStart(end, l.length), received.known
	if s := l.session; s != nil {
		l.sessionLease = session.Lease{Sent: received.made, Store: received.store, End: s.LeaseExpiresAt.Time}
	}
	k.mu.Lock()
	if now := time.Now(); k.judge(l, now) == clock.Confirm {
		l.doubtSince = now
	}
	k.leases[keyOf(l.task)] = l
	first := len(k.leases) == 1
	k.mu.Unlock()
	if first && k.interval < maxRenewal {
		k.requestHeartbeat() // the next regular heartbeat would be too late for this lease
	}
	return l
}

func (k *leaseRenewer) release(l *lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// Keep a newer delivery with the same key.
	if key := keyOf(l.task); k.leases[key] == l {
		delete(k.leases, key)
	}
}

// isLost reports whether the lease was lost.
func (k *leaseRenewer) isLost(l *lease) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return l.lost
}

// until returns when the lease ends, as far as this worker knows.
func (k *leaseRenewer) until(l *lease) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return l.renewed.Add(l.length)
}

// cancel ends an attempt with a cause.
func (k *leaseRenewer) cancel(attempt string, cause error) {
	k.mu.Lock()
	l := k.leases[attempt]
	k.mu.Unlock()
	if l != nil {
		l.cancel(cause)
	}
}

// due returns the leases to renew, and the time of the next renewal. It ends attempts whose lease has expired. With
// anyway, a heartbeat is sent in any case, and due includes attempts whose last renewal failed without waiting for
// their retry.
func (k *leaseRenewer) due(now time.Time, anyway bool) (renew []protocol.HeartbeatRequest, next time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var soon []protocol.HeartbeatRequest
	var first time.Time // earliest time at which a lease is due
	due := false
	for _, l := range k.leases {
		if l.lost {
			continue
		}
		if !l.doubtSince.IsZero() && now.Before(l.doubtSince.Add(l.length)) { // begin waits for the response
			at := later(l.doubtSince, l.notBefore)
			due = due || !now.Before(at) || anyway
			first = earlier(first, at)
			soon = append(soon, l.task)
			continue
		}
		end := l.renewed.Add(l.length - l.margin)
		if !now.Before(end) {
			l.lost = true
			l.wake()
			l.cancel(fmt.Errorf("%w: its lease could not be renewed since %s", ErrLeaseLost, l.renewed.Format(time.RFC3339)))
			continue
		}
		next = earlier(next, end)
		at := l.renewed.Add(l.interval)
		if !anyway {
			at = later(at, l.notBefore)
		}
		due = due || !now.Before(at)
		if now.Before(at.Add(-l.interval / batchFraction)) {
			next = earlier(next, at)
		} else {
			first = earlier(first, at)
			soon = append(soon, l.task)
		}
	}
	if due {
		return soon, next
	}
	return nil, earlier(next, first)
}

// all returns renewals for all attempts whose leases are not lost.
func (k *leaseRenewer) all() (renew []protocol.HeartbeatRequest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.leases {
		if !l.lost {
			renew = append(renew, l.task)
		}
	}
	return renew
}

// renewed processes the app's responses to renewals. The worker sent them at sent, and the app responded at made by the
// store's clock, if known.
func (k *leaseRenewer) renewed(
	sent, store time.Time, requests []protocol.HeartbeatRequest, answers []protocol.HeartbeatResponse, err error,
	sessions *session.Sessions,
) {
	if len(requests) == 0 {
		return
	}
	by := make(map[string]protocol.HeartbeatResponse, len(answers))
	for _, a := range answers {
		kind := protocol.KindActivity
		if a.AttemptID == "" {
			kind = protocol.KindWorkflow
		}
		by[protocol.TaskKey(kind, a.TaskID, a.AttemptID, a.Attempt)] = a
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range requests {
		key := keyOf(h)
		l := k.leases[key]
		if l == nil {
			continue
		}
		a, ok := by[key]
		switch {
		case err != nil || !ok || !a.Renewed && a.CanContinue:
			// The app did not respond for this lease, or its store is unavailable. The lease expires according to its
			// last renewal. The retry comes soon, since there may be time for several retries.
			l.notBefore = time.Now().Add(min(time.Second, l.interval/4))
		case !a.Renewed:
			l.lost = true
			l.wake()
			l.cancel(fmt.Errorf("%w: %s", ErrLeaseLost, reasonOf(a)))
		default:
			l.renewed, l.notBefore = sent, time.Time{}
			l.confirmed(a)
			if s := l.session; s != nil {
				l.sessionLease = session.Lease{Sent: sent}
				if row := a.Session; row != nil {
					l.sessionLease.Store, l.sessionLease.End = store, row.LeaseExpiresAt.Time
				}
				sessions.Touched(s.SessionID, s.Epoch, l.sessionLease)
			}
			if a.CancelRequested || !a.CanContinue {
				l.cancel(fmt.Errorf("%w: %s", ErrCancelled, reasonOf(a)))
			}
		}
	}
}

func reasonOf(a protocol.HeartbeatResponse) string {
	switch {
	case a.RunClosedReason != nil:
		return "run " + *a.RunClosedReason
	case a.Reason != nil:
		return *a.Reason
	case a.CancelRequested:
		return "cancel requested"
	}
	return "stopped by the app"
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// holdings implements link.Holdings: it lists the leases of attempts and sessions, which the link's heartbeat renews.
type holdings struct{ r *Runner }

var _ link.Holdings = holdings{}

// Holdings returns the leases and sessions that heartbeats renew.
func (r *Runner) Holdings() link.Holdings { return holdings{r} }

func (h holdings) Due(now time.Time) ([]protocol.HeartbeatRequest, []protocol.SessionRenewal, time.Time) {
	sessions, nextSession := h.r.opt.Sessions.Due(now)
	leases, next := h.r.leases.due(now, len(sessions) > 0)
	return leases, sessions, earlier(next, nextSession)
}

func (h holdings) Leases() []protocol.HeartbeatRequest { return h.r.leases.all() }

func (h holdings) Renewed(sent time.Time, leases []protocol.HeartbeatRequest, sessions []protocol.SessionRenewal,
	a protocol.WorkerHeartbeatResponse, err error,
) {
	if err == nil {
		h.r.leases.recordResponse(sent, a.StoreTime.Time)
	}
	h.r.leases.renewed(sent, a.StoreTime.Time, leases, a.Leases, err, h.r.opt.Sessions)
	h.r.opt.Sessions.Renewed(sent, a.StoreTime.Time, sessions, a.Sessions, err)
}

// Cancel ends an attempt at the request of the app. It ignores notices about attempts that do not run here.
func (r *Runner) Cancel(n protocol.CancelNotice) { r.leases.cancel(n.AttemptID, ErrCancelled) }

// rejectsOutcome reports whether the app would reject the outcome of an attempt that ended with this cause.
func rejectsOutcome(cause error) bool { return errors.Is(cause, ErrLeaseLost) }
