package postgres_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/sojourn-run/sojourn/app/internal/storetest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// parses starts a proxy before a server and returns its address. It counts the statements that clients ask the server
// to parse (Parse messages; BEGIN and COMMIT are simple queries).
func parses(t *testing.T, server string, n *atomic.Int64) (addr string) {
	t.Helper()
	return lockRetryInterval(t, func(c net.Conn) {
		defer c.Close()
		back, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer back.Close()
		front := pgproto3.NewBackend(c, c)
		start, err := front.ReceiveStartupMessage()
		if err != nil {
			return
		}
		to := pgproto3.NewFrontend(back, back)
		to.Send(start.(*pgproto3.StartupMessage))
		if to.Flush() != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, back)
		}()
		for {
			m, err := front.Receive()
			if err != nil {
				return
			}
			if _, ok := m.(*pgproto3.Parse); ok {
				n.Add(1)
			}
			to.Send(m)
			if to.Flush() != nil {
				return
			}
		}
	})
}

// The reads of the store, including listings, ask the server to parse each statement once per connection: 1,000 rounds
// of reads parse none that the first rounds did not parse.
func TestReadsParseNoStatementTwice(t *testing.T) {
	u, err := url.Parse(database(t))
	if err != nil {
		t.Fatal(err)
	}
	var parsed atomic.Int64
	u.Host = parses(t, u.Host, &parsed)
	w := storetest.Suite{Shared: true, Open: func(
		t testing.TB, _ string, o storetest.Options,
	) store.Store {
		t.Helper()
		s, err := postgres.Open(t.Context(), u.String(), sqldb.Options{App: o.App, Dispatch: o.Dispatch})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}}.New(t)
	w.Worker("a")
	timer := protocol.Command{Type: protocol.StartTimer, Delay: new(int64(100))}
	runs := []string{w.Begun("one", storetest.Activity("x", "s")), w.Begun("two", timer)}
	round := func(i int) {
		t.Helper()
		run := runs[i%2]
		err := w.S.View(t.Context(), func(r store.Reader) error {
			_, errRun := r.Run(t.Context(), run)
			_, errHead := r.Step(t.Context(), run, 0)
			_, errEvents := r.Events(t.Context(), run, int64(i%3), 10, 1+i%100, 1<<20)
			_, errLast := r.LastEvent(t.Context(), run)
			_, errList := r.Runs(t.Context(), store.RunQuery{Namespace: storetest.Namespace, Limit: 50})
			q := store.RunQuery{Namespace: storetest.Namespace, Type: fmt.Sprint("t", i), Limit: 50}
			_, errType := r.Runs(t.Context(), q)
			_, errSessions := r.Sessions(t.Context(), store.SessionQuery{Namespace: storetest.Namespace, Limit: 50})
			return errors.Join(errRun, errHead, errEvents, errLast, errList, errType, errSessions)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 { // on each idle connection of the pool
		round(i)
	}
	first, reads := parsed.Load(), w.S.Stats().Reads
	for i := range 1000 {
		round(i)
	}
	reads = w.S.Stats().Reads - reads
	if n := parsed.Load() - first; n != 0 || first == 0 || reads < 7000 {
		t.Errorf("%d reads parsed %d statements, after %d in the first rounds", reads, n, first)
	}
}
