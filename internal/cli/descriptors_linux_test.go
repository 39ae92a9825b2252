package cli_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// An app with at most 256 file descriptors receives 600 connections that send nothing, and 300 that stay open after one
// request. Probes on new connections are answered, a connected worker completes runs, and afterwards new connections
// are served.
func TestProbesAreServedWhenDescriptorsAreUsedUp(t *testing.T) {
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			database := apptest.SQLite(t)
			if kind == "postgres" {
				database = apptest.Postgres(t)
			}
			probesAreServed(t, database)
		})
	}
}

func probesAreServed(t *testing.T, database string) {
	const limit, reserve = 256, 64
	dir, addr := t.TempDir(), address(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e := env{"SOJOURN_TOKEN": bootstrap, "SOJOURN_ISOLATION": "none"}
	a := launchAs(t, "/bin/sh", dir, e, "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, limit), self, "app",
		"--addr="+addr, "--database-url="+database)
	c := client{t: t, base: "http://" + addr, token: bootstrap}
	c.up()
	written, word := filepath.Join(dir, "ledger"), filepath.Join(dir, "word")
	launch(t, t.TempDir(), e.with(env{"SOJOURN_APP_URL": c.base, ledgerPath: written, holdPath: word}), "worker")
	run := c.start("during", "stay").RunID
	counted := func() (n int) {
		for _, l := range ledger(t, written) {
			if l.What == "count" || l.What == "hold" {
				n++
			}
		}
		return n
	}
	until(t, "the run waits in its second step", func() bool { return counted() == 2 })

	probes := 0
	probe := func(path string) {
		t.Helper()
		status, closes := once(t, addr, path, "")
		if probes++; status != http.StatusOK {
			t.Fatalf("%s after %d probes: %d (%t)", path, probes, status, closes)
		}
	}
	open := func() int {
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	most := 0
	flood := func(n int, first string) (all []net.Conn) {
		t.Helper()
		for i := range n {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, conn)
			_, _ = fmt.Fprint(conn, first)
			if i%20 == 0 {
				probe("/up")
				probe("/readyz")
				most = max(most, open())
			}
		}
		return all
	}
	silent := flood(600, "")
	asked := flood(300, "GET /api/health HTTP/1.1\r\nHost: x\r\n\r\n")
	partial := flood(300, "GET /up HTTP/1.1\r\n")
	// All descriptors are in use: these connections are authenticated and have held requests.
	var held []net.Conn
	refuses := func() bool {
		held = append(held, flood(20, "GET /api/sojourn/workflows/during/result?wait_seconds=60 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+
			bootstrap+"\r\n\r\n")...)
		for path, want := range map[string]int{
			"/api/cluster/info": http.StatusTooManyRequests, "/api/worker/settings": http.StatusServiceUnavailable,
			"/": http.StatusServiceUnavailable, "/api/socket.io/?EIO=4&transport=polling": http.StatusServiceUnavailable,
		} {
			status, closes := once(t, addr, path, bootstrap)
			if status == http.StatusOK || status == http.StatusNotFound {
				return false
			}
			if status != 0 && (status != want || !closes) {
				t.Errorf("%s in the reserve: %d, closed %t", path, status, closes)
			}
		}
		return true
	}
	full := false
	for range 100 {
		if full = refuses(); full {
			break
		}
	}
	if !full {
		t.Error("routes other than probes are served in the reserve")
	}
	for range 10 {
		probe("/healthz")
		probe("/api/ready")
	}
	if err := os.WriteFile(word, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "the worker that was connected before does the third step", func() bool { return counted() == 4 })
	probe("/up")
	for _, conn := range append(append(append(silent, asked...), partial...), held...) {
		_ = conn.Close()
	}
	if most > limit-8 {
		t.Errorf("%d descriptors were open of %d", most, limit)
	}
	until(t, "descriptors are free again", func() bool { return open() < limit-reserve })
	for range 5 {
		if status, closes := once(t, addr, "/api/cluster/info", bootstrap); status != http.StatusOK || closes {
			t.Errorf("afterwards: %d, closed %t", status, closes)
		}
	}
	c.completed("during", run)
	c.completed("after", c.start("after", "one", "x").RunID)
	t.Logf("%d probes answered, at most %d descriptors open", probes, most)
	if n := a.err.count(`file descriptors exhausted up to the reserve`); n != 1 {
		t.Errorf("%d warnings, want 1 in a minute", n)
	}
}

// once makes a request on a new connection. A status of 0 means that the app closed the connection; closes reports
// whether the response closes the connection.
func once(t *testing.T, addr, path, token string) (status int, closes bool) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	head := "GET " + path + " HTTP/1.1\r\nHost: x\r\n"
	if token != "" {
		head += "Authorization: Bearer " + token + "\r\n"
	}
	if _, err := fmt.Fprint(conn, head+"\r\n"); err != nil {
		return 0, false
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, false
	}
	defer response.Body.Close()
	return response.StatusCode, response.Close
}
