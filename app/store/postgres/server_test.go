package postgres_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sojourn-run/sojourn/app/store/postgres"
)

// The store becomes unusable, which ends the process, when the server has refused the credentials for five minutes. It
// stays usable if the server accepts them before, or cannot be reached.
func TestCredentialsThatAreRefusedForFiveMinutesEndTheProcess(t *testing.T) {
	wrong, denied := error(&pgconn.PgError{Code: "28P01"}), error(&pgconn.PgError{Code: "28000"})
	unreachable := errors.New("connection refused")
	for name, c := range map[string]struct {
		result func(since time.Duration) error
		ends   bool
	}{
		"refused all the time":    {func(time.Duration) error { return wrong }, true},
		"not permitted to log in": {func(time.Duration) error { return denied }, true},
		"accepted after four minutes": {func(d time.Duration) error {
			if d < 4*time.Minute {
				return wrong
			}
			return nil
		}, false},
		"unreachable after one minute": {func(d time.Duration) error {
			if d < time.Minute {
				return wrong
			}
			return unreachable
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				reports, ended := 0, time.Duration(0)
				r := postgres.Refusals{}
				r.Start(func(context.Context) error { return c.result(time.Since(began)) },
					func(error) { reports++ }, func(error) { ended = time.Since(began) })
				defer r.Close()
				r.Record(unreachable) // not a refusal of the credentials
				r.Record(c.result(0))
				r.Record(c.result(0))
				time.Sleep(6 * time.Minute)
				if reports != 1 {
					t.Errorf("%d reports, want 1", reports)
				}
				if c.ends && (ended < 5*time.Minute || ended > 5*time.Minute+30*time.Second) || !c.ends && ended != 0 {
					t.Errorf("ended after %v, want an end: %v", ended, c.ends)
				}
			})
		})
	}
}
