package postgres_test

import (
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

// pooler listens as a PgBouncer in front of the server. It rejects a connection's startup parameters or, if ignores is
// set, drops them; and it reports its own process ID.
func pooler(t *testing.T, server string, ignores bool) (addr string) {
	t.Helper()
	return lockRetryInterval(t, func(c net.Conn) { pool(c, server, ignores) })
}

// lockRetryInterval listens until the test ends, and serves each connection.
func lockRetryInterval(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String()
}

func pool(c net.Conn, server string, ignores bool) {
	defer c.Close()
	front := pgproto3.NewBackend(c, c)
	first, err := front.ReceiveStartupMessage()
	start, ok := first.(*pgproto3.StartupMessage)
	if err != nil || !ok {
		return
	}
	for name := range start.Parameters {
		switch {
		case name == "user" || name == "database":
		case ignores:
			delete(start.Parameters, name)
		default:
			front.Send(&pgproto3.ErrorResponse{
				Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: " + name,
			})
			_ = front.Flush()
			return
		}
	}
	to, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer to.Close()
	back := pgproto3.NewFrontend(to, to)
	back.Send(start)
	if back.Flush() != nil {
		return
	}
	for ready := false; !ready; {
		m, err := back.Receive()
		if err != nil {
			return
		}
		if k, is := m.(*pgproto3.BackendKeyData); is {
			k.ProcessID = 1 << 30
		}
		_, ready = m.(*pgproto3.ReadyForQuery)
		front.Send(m)
		if front.Flush() != nil {
			return
		}
	}
	go func() {
		_, _ = io.Copy(to, c)
		to.Close()
	}()
	_, _ = io.Copy(c, to)
}

// A connection pooler drops startup parameters and sessions. The store reports the pooler at once, whether it rejects
// the parameters or drops them.
func TestAPoolerIsNamedAndNotWaitedFor(t *testing.T) {
	for name, ignores := range map[string]bool{"refuses": false, "drops": true} {
		t.Run(name, func(t *testing.T) {
			u, err := url.Parse(database(t))
			if err != nil {
				t.Fatal(err)
			}
			u.Host = pooler(t, u.Host, ignores)
			done := make(chan error, 1)
			go func() {
				s, err := postgres.Open(t.Context(), u.String(), sqldb.Options{Waiting: func(error) {}})
				if err == nil {
					err = s.Close()
				}
				done <- err
			}()
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), "PgBouncer") {
					t.Errorf("through a pooler: %v", err)
				}
			case <-time.After(time.Minute):
				t.Error("it is waited for")
			}
		})
	}
}
