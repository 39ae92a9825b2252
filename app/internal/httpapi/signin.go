package httpapi

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// signIn checks the token first: a valid sign-in is not affected by limits or queues of failed sign-ins.
func signIn(a *API, c *call) (response, error) {
	var in signInBody
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	p, err := a.opt.Auth.SignIn(c.W, c.Request, in.Token)
	if protocol.ReasonOf(err) == protocol.ReasonUnauthorized {
		return response{}, a.signIns.fail(c.Ctx, a.opt.Auth.Address(c.Request), c.NS, err)
	}
	if err != nil {
		return response{}, err
	}
	return ok(identityOf(p), nil)
}

// These are limits of failed sign-ins.
const (
	failedSignIn         = 500 * time.Millisecond // how long the response to a wrong token is delayed
	maxSignIn            = 4 << 10                // maximum bytes of the body, since unauthenticated callers send it
	maxFailedPerAddress  = 5                      // maximum number of delayed responses to an address
	maxFailedPerApp      = 50                     // maximum number of delayed responses of the app
	failedReportEvery    = time.Minute            // minimum interval of reports about an address
	maxFailedAddresses   = 1000                   // addresses with separate counts; further addresses share one count
	failedOtherAddresses = "other addresses"
)

// signIns delays the responses to failed sign-ins, and counts the failures of each address for log and audit.
type signIns struct {
	wake chan struct{} // capacity 1: the map has a new address

	mu      sync.Mutex // guards the fields below
	pending int        // number of delayed responses of the app
	failed  map[string]*failedSignIns
}

// failedSignIns counts the failed sign-ins of one address.
type failedSignIns struct {
	pending    int // number of delayed responses to this address
	unreported int
	namespace  string    // namespace of the first unreported failure
	reported   time.Time // time of the last report; zero: none yet
}

func newSignIns() *signIns {
	return &signIns{wake: make(chan struct{}, 1), failed: map[string]*failedSignIns{}}
}

// fail counts a failed sign-in and delays its response. Above the limits it returns a refusal at once.
func (s *signIns) fail(ctx context.Context, address, namespace string, err error) error {
	s.mu.Lock()
	f := s.failed[address]
	if f == nil && len(s.failed) >= maxFailedAddresses {
		address = failedOtherAddresses
		f = s.failed[address]
	}
	if f == nil {
		f = &failedSignIns{}
		s.failed[address] = f
	}
	if f.unreported++; f.unreported == 1 {
		f.namespace = namespace
	}
	if f.reported.IsZero() {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	full := f.pending >= maxFailedPerAddress || s.pending >= maxFailedPerApp
	if !full {
		f.pending++
		s.pending++
	}
	s.mu.Unlock()
	if full {
		return protocol.Refuse(protocol.ReasonThrottled, "too many failed sign-ins; try again in a second")
	}
	delay := time.NewTimer(failedSignIn)
	defer delay.Stop()
	select {
	case <-delay.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	f.pending--
	s.pending--
	s.mu.Unlock()
	return err
}

// signInReport is one line of the log and of the audit.
type signInReport struct {
	address, namespace string
	count              int
}

// due returns the reports that are due, and the time of the next check: never while no address is counted. With all it
// returns every count.
func (s *signIns) due(now time.Time, all bool) (reports []signInReport, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, f := range s.failed {
		age := now.Sub(f.reported)
		switch {
		case f.unreported > 0 && (all || age >= failedReportEvery):
			reports = append(reports, signInReport{address, f.namespace, f.unreported})
			f.unreported, f.reported = 0, now
		case f.unreported == 0 && f.pending == 0 && age >= failedReportEvery:
			delete(s.failed, address)
			continue
		}
		if at := f.reported.Add(failedReportEvery); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	slices.SortFunc(reports, func(a, b signInReport) int { return b.count - a.count })
	return reports, next
}

// ReportSignIns logs and audits failed sign-ins until ctx ends: at most once per minute and address, with their count.
// When ctx ends it reports the remaining counts.
func (a *API) ReportSignIns(ctx context.Context) {
	s := a.signIns
	timer := time.NewTimer(failedReportEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			reports, _ := s.due(time.Now(), true)
			a.writeSignIns(last, reports)
			return
		case <-s.wake:
		case <-timer.C:
		}
		reports, next := s.due(time.Now(), false)
		a.writeSignIns(ctx, reports)
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(max(time.Until(next), time.Second))
		}
	}
}

func (a *API) writeSignIns(ctx context.Context, reports []signInReport) {
	for _, r := range reports {
		a.opt.Log.Warn().Str("address", r.address).Int("count", r.count).Msg("sign-in failed")
		err := a.opt.Process.Audit(ctx, store.Audit{
			Identity: "unknown", Action: "sign_in.failed", Namespace: r.namespace, Target: r.address,
			Detail: fmt.Sprintf("%d failed sign-ins since the last entry of this address", r.count),
		})
		if err != nil {
			a.opt.Log.Error().Err(err).Str("address", r.address).Msg("failed to audit a failed sign-in")
		}
	}
}
