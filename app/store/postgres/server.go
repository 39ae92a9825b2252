package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

const (
	// refusedFor is the default of sqldb.Options.RefusedFor. The process ends after it, and a supervisor then restarts
	// it with the current secrets.
	refusedFor = 5 * time.Minute
	// refusedProbe is the pause between two connects while credentials are refused.
	refusedProbe = 15 * time.Second
)

// server connects to one database. It builds the configuration again for each connection, because passwords and
// certificates change while a process runs: the URL may be read from a file, and it names a password file and
// certificates.
type server struct {
	url      func() (string, error)
	refusals refusals
}

// connectError is the error of a connect that may succeed later: the server refused the credentials, or a file of the
// configuration could not be read.
type connectError struct{ error }

func (e connectError) Unwrap() error { return e.error }

// isRefused reports that the server refused the credentials: invalid_password, invalid_authorization_specification.
func isRefused(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && slices.Contains([]string{"28P01", "28000"}, e.Code)
}

// config returns the configuration. change sets the parameters of one kind of connection; nil: none.
func (s *server) config(change func(*pgx.ConnConfig)) (*pgx.ConnConfig, error) {
	url, err := s.url()
	if err != nil {
		return nil, err
	}
	cfg, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	cfg.StatementCacheCapacity = min(cfg.StatementCacheCapacity, db.MaxPrepared)
	if change != nil {
		change(cfg)
	}
	return cfg, nil
}

// connect makes one connection, within connectTimeout.
func (s *server) connect(ctx context.Context, change func(*pgx.ConnConfig)) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	cfg, err := s.config(change)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", connectError{err})
	}
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err = s.connected(err); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return c, nil
}

// connected records the result of a connect.
func (s *server) connected(err error) error {
	s.refusals.record(err)
	if isRefused(err) {
		return connectError{err}
	}
	return err
}

// newPool returns a pool. It returns an error if the configuration cannot be read now.
func (s *server) newPool(change func(*pgx.ConnConfig)) (*sql.DB, error) {
	cfg, err := s.config(change)
	if err != nil {
		return nil, err
	}
	fresh := stdlib.OptionBeforeConnect(func(_ context.Context, cfg *pgx.ConnConfig) error {
		now, err := s.config(change)
		if err != nil {
			return connectError{err}
		}
		*cfg = *now
		return nil
	})
	return sql.OpenDB(recorded{stdlib.GetConnector(*cfg, fresh), s}), nil
}

// recorded is a connector whose results the server records.
type recorded struct {
	driver.Connector
	s *server
}

func (r recorded) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := r.Connector.Connect(ctx)
	return c, r.s.connected(err)
}

// refusals fails the store when the server has refused freshly read credentials for the time limit. From the first
// refusal until the next accepted connection it probes the server, since a process with enough open connections opens
// no new ones.
type refusals struct {
	mu       sync.Mutex
	since    time.Time // time of the first refusal; zero: the last connect was not refused; guarded by mu
	probing  bool      // guarded by mu
	probe    func(context.Context) error
	report   func(error) // called at the first refusal; nil: it is not reported
	fail     func(error) // called once, after limit
	limit    time.Duration
	ctx      context.Context
	stop     context.CancelFunc
	watching sync.WaitGroup
}

// start sets the functions. A refusal before start is not counted, because it fails the start of the process anyway.
func (r *refusals) start(probe func(context.Context) error, report, fail func(error), limit time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probe, r.report, r.fail, r.limit = probe, report, fail, cmp.Or(limit, refusedFor)
	r.ctx, r.stop = context.WithCancel(context.Background())
}

func (r *refusals) close() {
	r.mu.Lock()
	if r.stop != nil {
		r.stop() // under the lock, so that no probe starts afterwards
	}
	r.mu.Unlock()
	r.watching.Wait()
}

// record receives the result of each connect. Only a success or a refusal changes the state.
func (r *refusals) record(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.since = time.Time{}
	case r.ctx == nil || r.ctx.Err() != nil || !isRefused(err):
	default:
		if r.since.IsZero() {
			r.since = time.Now()
			if r.report != nil {
				r.report(err)
			}
		}
		if !r.probing {
			r.probing = true
			r.watching.Go(r.watch)
		}
	}
}

// watch probes until the server accepts the credentials, or has refused them for limit.
func (r *refusals) watch() {
	every := time.NewTicker(min(refusedProbe, r.limit/4))
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-r.ctx.Done():
			return
		}
		err := r.probe(r.ctx) // recorded by connect
		r.mu.Lock()
		since := r.since
		r.probing = !since.IsZero()
		r.mu.Unlock()
		switch {
		case since.IsZero():
			return
		case isRefused(err) && time.Since(since) >= r.limit:
			r.fail(fmt.Errorf(
				"PostgreSQL has rejected the credentials of this process for %v; check the database URL, its password and "+
					"certificates: %w", r.limit, err,
			))
			return
		}
	}
}
