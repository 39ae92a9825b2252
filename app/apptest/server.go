package apptest

import (
	"cmp"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/server"
)

// OpenServer opens a control plane without a listener, so that it can run in virtual time, and runs it until the test
// ends or it is closed. It is the control plane of an app with release "test" and without tokens. database is
// sqlite:PATH or postgres://…, empty for a new SQLite file; Open replaces the function that opens it.
func OpenServer(t testing.TB, database string, o server.Options) *server.Server {
	t.Helper()
	if database == "" {
		database = "sqlite:" + filepath.Join(t.TempDir(), "test.db")
	}
	if o.Open == nil {
		o.Open = openFunc(database)
	}
	o.Release = cmp.Or(o.Release, "test")
	o.Shared = o.Shared || !strings.HasPrefix(database, "sqlite:")
	o.NoAuth = o.Token == ""
	o.Log = Log(t)
	p, err := server.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() {
		Close(t, p)
		if err := <-ended; err != nil {
			t.Errorf("the server ended with: %v", err)
		}
	})
	return p
}

// Close ends a server; further calls have no effect.
func Close(t testing.TB, p *server.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}
