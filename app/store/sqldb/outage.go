package sqldb

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
)

// outageRetry is the pause between two writes that check whether the database is available again.
const outageRetry = time.Second

// outage reports once that the database is unavailable, and once that it is available again, however many reads and
// transactions fail in between.
type outage struct {
	suspected  atomic.Bool // watchOutage is running
	onOutage   func(error)
	onRecovery func(time.Duration)
}

// checkOutage receives the error of a read or of a batch, and returns it. One error does not prove an outage, since a
// read also fails when its caller's deadline has passed: an outage begins when a write also fails.
func (s *Store) checkOutage(err error) error {
	o := &s.outage
	if o.onOutage == nil || !errors.Is(err, store.ErrUnavailable) || !o.suspected.CompareAndSwap(false, true) {
		return err
	}
	go s.watchOutage(err)
	return err
}

func (s *Store) watchOutage(err error) {
	o := &s.outage
	began := time.Now()
	for reported := false; ; {
		a := s.probeWrite()
		select {
		case <-a.done:
		case <-s.quit:
			return
		}
		switch {
		case a.err == nil:
			o.suspected.Store(false)
			if reported {
				o.onRecovery(time.Since(began))
			}
			return
		case errors.Is(a.err, store.ErrClosed):
			return
		case !reported:
			reported = true
			o.onOutage(err)
		}
		select {
		case <-time.After(outageRetry):
		case <-s.quit:
			return
		}
	}
}
