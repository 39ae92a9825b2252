package postgres_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

// refuses is a TLS server with a test certificate for 127.0.0.1 that refuses each password.
func refuses(t *testing.T) (port, authority string) {
	t.Helper()
	https := httptest.NewTLSServer(nil)
	t.Cleanup(https.Close)
	authority = filepath.Join(t.TempDir(), "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: https.Certificate().Raw}
	if err := os.WriteFile(authority, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := lockRetryInterval(t, func(c net.Conn) {
		defer c.Close()
		first, err := pgproto3.NewBackend(c, c).ReceiveStartupMessage()
		if _, ask := first.(*pgproto3.SSLRequest); err != nil || !ask {
			return
		}
		if _, err := c.Write([]byte("S")); err != nil {
			return
		}
		secure := tls.Server(c, &tls.Config{Certificates: https.TLS.Certificates})
		back := pgproto3.NewBackend(secure, secure)
		if _, err := back.ReceiveStartupMessage(); err != nil {
			return
		}
		back.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: "password authentication failed"})
		_ = back.Flush()
	})
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port, authority
}

// An error that waiting cannot resolve ends the start at once, with the reason.
func TestAnUntrustedCertificateAWrongHostAndAWrongPasswordEndTheStart(t *testing.T) {
	port, authority := refuses(t)
	for name, c := range map[string]struct{ host, more, want string }{
		"an untrusted certificate":     {"127.0.0.1", "", "certificate signed by unknown authority"},
		"a certificate of other hosts": {"localhost", "&sslrootcert=" + authority, "certificate is valid for"},
		"a wrong password":             {"127.0.0.1", "&sslrootcert=" + authority, "password authentication failed"},
	} {
		t.Run(name, func(t *testing.T) {
			waited := 0
			url := "postgres://sojourn:wrong@" + c.host + ":" + port + "/x?sslmode=verify-full" + c.more
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			s, err := postgres.Open(ctx, url, sqldb.Options{Waiting: func(error) { waited++ }})
			if err == nil {
				_ = s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || waited != 0 {
				t.Errorf("got %v after %d waits, want %q at once", err, waited, c.want)
			}
		})
	}
}

func TestCodesThatEndAConnectionAreRetried(t *testing.T) {
	for code, want := range map[string]db.Class{
		"57P01": db.Lost, "57P02": db.Lost, "57P03": db.Lost, "57P05": db.Lost, "25P03": db.Lost, "25P04": db.Lost,
		"08006": db.Lost, "40001": db.Retryable, "57014": db.Guilty, "28P01": db.Guilty, "23505": db.Guilty,
	} {
		if got := postgres.Classify(&pgconn.PgError{Code: code}); got != want {
			t.Errorf("%s: got %v, want %v", code, got, want)
		}
	}
}

// A server may end idle sessions of a database by default, but not sessions of an app.
func TestAnIdleConnectionOfAnAppHasNoTimeout(t *testing.T) {
	c, err := postgres.Committer(t.Context(), database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	var got any
	show := &db.Stmt{SQL: "SELECT count(*) FROM pg_settings WHERE name = 'idle_session_timeout' AND setting = '0'" +
		" AND source = 'client'"}
	calls := []*db.Call{{Stmt: show, Row: func(v []any) error { got = v[0]; return nil }}}
	if err := c.Send(t.Context(), calls); err != nil {
		t.Fatal(err)
	}
	if got != int64(1) {
		t.Error("idle_session_timeout was not set to 0 by the connection")
	}
}
