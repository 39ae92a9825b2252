package connlimit_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/internal/connlimit"
)

// The limit compared with a plain list.
func TestTheOldestOfTheAddressWithTheMostIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(300) {
			random := rand.New(rand.NewPCG(seed, 0))
			type entry struct {
				place   *connlimit.Place
				address string
				closed  bool
				left    bool
			}
			limit := connlimit.Limit{Max: 1 + random.IntN(8)}
			var all []*entry
			address := func() string { return fmt.Sprint(random.IntN(5)) }
			for range 60 {
				switch random.IntN(4) {
				case 0:
					if len(all) > 0 {
						e := all[random.IntN(len(all))]
						e.place.Leave()
						e.left = true
					}
				default:
					e := &entry{address: address()}
					e.place = limit.Add(e.address, func() { e.closed = true })
					all = append(all, e)
				}
				synctest.Wait()
				counts, oldest, used := map[string]int{}, map[string]int{}, 0
				for i, e := range all {
					if e.left {
						continue
					}
					if _, ok := oldest[e.address]; !ok {
						oldest[e.address] = i
					}
					counts[e.address]++
					used++
				}
				if used > limit.Max {
					most := ""
					for a, n := range counts {
						if most == "" || n > counts[most] || n == counts[most] && oldest[a] < oldest[most] {
							most = a
						}
					}
					all[oldest[most]].left = true
					used--
					if !all[oldest[most]].closed {
						t.Fatalf("the oldest of %s was not closed: %v", most, counts)
					}
				}
				if got, _ := limit.Count(); got != used {
					t.Fatalf("%d places in use, want %d", got, used)
				}
			}
			for _, e := range all {
				if e.closed && !e.left {
					t.Fatal("one was closed that need not be")
				}
			}
		}
	})
}

// A connection has a place from its acceptance until it authenticates or ends.
func TestAConnectionHasAPlaceUntilItAuthenticates(t *testing.T) {
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limit := connlimit.Limit{Max: 3}
	seen := make(chan time.Time, 10)
	server := http.Server{
		ReadHeaderTimeout: time.Minute, ConnContext: connlimit.Context,
		Handler: connlimit.Requests(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen <- connlimit.Accepted(r.Context())
			if r.URL.Path == "/authenticated" {
				connlimit.From(r.Context()).Leave()
			}
		}), func(r *http.Request) string { return r.Header.Get("X-Address") }),
	}
	go func() { _ = server.Serve(limit.Listen(inner)) }()
	defer func() { _ = server.Close() }()
	dial := func() net.Conn {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(c net.Conn, path, address string) time.Time {
		t.Helper()
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nX-Address: %s\r\n\r\n", path, address); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
		return <-seen
	}
	worker := dial()
	if ask(worker, "/authenticated", "a").IsZero() {
		t.Error("the first request of a connection does not know when it was accepted")
	}
	if !ask(worker, "/", "a").IsZero() {
		t.Error("a later request counts from when the connection was accepted")
	}
	lone, first, second := dial(), dial(), dial()
	ask(lone, "/", "b")
	ask(first, "/", "c")
	ask(second, "/", "c")
	fourth := dial() // one too many: the older of the two from one address is closed
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the oldest connection of the address with the most: %v, want its end", err)
	}
	for _, c := range []net.Conn{worker, lone, second, fourth} {
		ask(c, "/", "d")
	}
	if used, cut := limit.Count(); used != 3 || cut != 1 {
		t.Errorf("%d places in use, %d closed for others; want 3 and 1", used, cut)
	}
}
