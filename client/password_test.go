package client_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A password in the URL of an app occurs in no error of a client, nor of a worker over either transport.
func TestNoErrorShowsThePasswordOfAnAddress(t *testing.T) {
	s := httptest.NewServer(nil) // responds 404 without JSON, which an app never does
	defer s.Close()
	check := func(err error) {
		t.Helper()
		if err == nil {
			t.Error("no error")
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Error(err)
		}
	}
	for _, address := range []string{
		"http://me:hunter2@127.0.0.1:1", strings.Replace(s.URL, "//", "//me:hunter2@", 1), "http://me:hunter2@a b",
		"ftp://me:hunter2@127.0.0.1:1", "http://me:hunter2@127.0.0.1:nan",
	} {
		c, err := client.New(client.Options{URLs: []string{address}})
		if err != nil {
			t.Fatal(err)
		}
		check(c.Call(t.Context(), "GET", "/api/cluster/info", nil, nil))
		_, err = socketio.Dial(t.Context(), address, "/", nil, socketio.DialOptions{ConnectTimeout: time.Second})
		check(err)
		for _, transport := range []string{"http", "socketio"} {
			_, err = link.Over(transport, []string{address}, nil).Dial(t.Context(), protocol.ChannelAuth{}, nil)
			check(err)
		}
	}
}
