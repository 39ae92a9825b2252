package socketio_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/internal/socketio"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(crowdURL); url != "" {
		runClients(url) // this process is the other end of a test
		return
	}
	goleak.VerifyTestMain(m)
}

// ceiling is the maximum wait of a test for an expected event.
const ceiling = 2 * time.Minute

// serve starts a server that setup configures, and returns its URL. The end of the test stops it with all goroutines.
func serve(t testing.TB, options socketio.Options, setup func(*socketio.Server)) (*socketio.Server, string) {
	t.Helper()
	if options.Failed == nil {
		options.Failed = func(_ *socketio.Socket, err error) { t.Errorf("unexpected failure: %v", err) }
	}
	server := socketio.NewServer(options)
	setup(server)
	mux := http.NewServeMux()
	mux.Handle("/api/socket.io/", server)
	front := httptest.NewServer(mux)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), ceiling)
		defer cancel()
		if err := server.Close(ctx); err != nil {
			t.Errorf("server did not close: %v", err)
		}
		front.Close()
	})
	return server, front.URL
}

// dial joins a namespace. The end of the test closes the client.
func dial(t testing.TB, url, namespace string, auth any, options socketio.DialOptions) *socketio.Client {
	t.Helper()
	client, err := socketio.Dial(context.Background(), url, namespace, auth, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close(nil)
		ctx, cancel := context.WithTimeout(context.Background(), ceiling)
		defer cancel()
		if err := client.Wait(ctx); err != nil {
			t.Errorf("client did not end: %v", err)
		}
	})
	return client
}

// await returns the next value of ch and fails the test if there is none in time.
func await[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(ceiling):
		t.Fatalf("%s did not happen", what)
		panic("unreachable")
	}
}

func wantCause(t testing.TB, s *socketio.Socket, want error) {
	t.Helper()
	await(t, s.Done(), "the end of the socket")
	if !errors.Is(s.Err(), want) {
		t.Errorf("the socket ended with %v, want %v", s.Err(), want)
	}
}

// echo acks its arguments.
func echo(_ context.Context, args []json.RawMessage) ([]any, error) {
	out := make([]any, len(args))
	for i, a := range args {
		out[i] = a
	}
	return out, nil
}

func text(args []json.RawMessage) string {
	raw, err := json.Marshal(args)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}
