package postgres_test

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

// calling starts a proxy before the server that changes the version that the server reports.
func calling(t *testing.T, server, is, version string) (addr string) {
	t.Helper()
	return lockRetryInterval(t, func(c net.Conn) {
		defer c.Close()
		to, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer to.Close()
		go func() {
			_, _ = io.Copy(to, c)
			to.Close()
		}()
		buf := make([]byte, 64<<10)
		for {
			n, err := to.Read(buf)
			if _, e := c.Write(bytes.ReplaceAll(buf[:n], []byte(is), []byte(version))); err != nil || e != nil {
				return
			}
		}
	})
}

// A server older than required is refused with its version, without waiting.
func TestAnOlderServerIsRefused(t *testing.T) {
	direct := database(t)
	c, err := pgx.Connect(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	var is string
	if err := c.QueryRow(t.Context(), "SHOW server_version_num").Scan(&is); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	server := u.Host
	open := func(version string) error {
		u.Host = calling(t, server, is, version)
		s, err := postgres.Open(t.Context(), u.String(), sqldb.Options{Waiting: func(error) {}})
		if err == nil {
			err = s.Close()
		}
		return err
	}
	began := time.Now()
	const want = "PostgreSQL 15 or newer is required; the server is 14.19"
	if err := open("140019"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("of 14.19: %v", err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it was waited for %v", took)
	}
	if err := open("150000"); err != nil {
		t.Errorf("of 15.0: %v", err)
	}
}
