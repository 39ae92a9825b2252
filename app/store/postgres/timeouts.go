package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// An app that pauses, loses its network or dies during a transaction must not block other apps through its locks. Each
// connection sets time-outs on the server. These do not cover a statement that was only partly received; such a
// transaction is terminated by the app that meets its lock (see unblock).

// committer is the application_name of the connections that write.
const committer = "sojourn committer"

// lockTimeout limits the wait for locks that do not support NOWAIT, in milliseconds.
const lockTimeout = "500"

// connectionTimeouts holds the parameters of every connection, which the database's URL may override. Transaction
// time-outs are in milliseconds, network time-outs in seconds.
var connectionTimeouts = map[string]string{
	"idle_in_transaction_session_timeout": "2000",
	"idle_session_timeout":                "0", // an idle connection of the pool is no fault
	"tcp_user_timeout":                    "10000",
	"tcp_keepalives_idle":                 "5",
	"tcp_keepalives_interval":             "2",
	"tcp_keepalives_count":                "3",
}

// errPooler is returned when the connection goes through a connection pooler. A pooler rejects or drops the time-outs
// that each connection sets, so a paused app would hold its locks forever. It also breaks features that need a
// dedicated session: LISTEN and prepared statements.
var errPooler = errors.New("connect to PostgreSQL directly: a connection pooler such as PgBouncer is not supported")

// isPooler reports whether a connection was rejected for its startup parameters, as by PgBouncer.
func isPooler(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "08P01" && strings.Contains(e.Message, "startup parameter")
}

// checkDirect connects and checks that no pooler is in between: the process ID in the connection's start must be that
// of the server process that runs the statements.
func checkDirect(ctx context.Context, db *sql.DB) (err error) {
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var serves int64
	if err := c.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&serves); err != nil {
		return err
	}
	return c.Raw(func(raw any) error {
		if is, ok := raw.(*stdlib.Conn); ok && int64(is.Conn().PgConn().PID()) != serves {
			return errPooler
		}
		return nil
	})
}

// parseURL reads a postgres:// URL and adds the time-outs of both sides for an unresponsive peer.
func parseURL(url string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	for name, value := range connectionTimeouts {
		if _, set := cfg.RuntimeParams[name]; !set {
			cfg.RuntimeParams[name] = value
		}
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	dialer := &net.Dialer{
		Timeout: cfg.ConnectTimeout, Control: userTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
	}
	cfg.DialFunc = dialer.DialContext
	return cfg, nil
}

// unblock terminates the transactions of committers whose apps have been unresponsive for two seconds, that is, sent no
// statement or read no response. An app calls it after a lock has blocked it for a while. Transactions in which the
// server executes a statement, or waits for a lock, are not terminated.
func unblock(ctx context.Context, db *sql.DB) error {
	const query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1" +
		" AND pid <> pg_backend_pid() AND xact_start < clock_timestamp() - interval '2 seconds' AND wait_event_type = 'Client'" +
		" AND greatest(query_start, state_change) < clock_timestamp() - interval '2 seconds'"
	if _, err := db.ExecContext(ctx, query, committer); err != nil {
		return fmt.Errorf("terminate idle transactions of paused apps: %w", err)
	}
	return nil
}

// waitingLogInterval is the interval of the log line that the app waits for a server.
const waitingLogInterval = 10 * time.Second

// nameWait limits the wait for a host name that the DNS does not resolve: containers start in any order, and a name may
// appear with its container.
const nameWait = time.Minute

// certificateUntrusted reports that the server's certificate is not trusted, or is for another host.
func certificateUntrusted(err error) bool {
	var verify *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &verify) || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}

// unknownHost reports that the DNS does not know the server's name.
func unknownHost(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}

// awaitServer waits until the server accepts connections, when it cannot be reached or is starting: an app and its
// database may be started in any order. Waiting does not help against a wrong password, an untrusted certificate or a
// database that does not exist: await returns that error at once, and the error of an unknown host name after nameWait.
func awaitServer(ctx context.Context, server *sql.DB, report func(error)) error {
	var reported time.Time
	began := time.Now()
	for wait := noticeInterval; ; wait = min(2*wait, time.Second) {
		err := checkDirect(ctx, server)
		if isPooler(err) {
			return fmt.Errorf("%w: %w", errPooler, err) // waiting does not resolve this error
		}
		if err == nil || report == nil || ctx.Err() != nil || classify(err) != db.Lost || certificateUntrusted(err) {
			return err
		}
		if unknownHost(err) && time.Since(began) >= nameWait {
			return err
		}
		if time.Since(reported) > waitingLogInterval {
			reported = time.Now()
			report(err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
