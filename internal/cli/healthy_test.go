package cli_test

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestHealthcheckOfTheImageChecksItsRole(t *testing.T) {
	raw, err := os.ReadFile("../../Dockerfile")
	if err != nil || !strings.Contains(string(raw), `CMD ["/usr/local/lib/sojourn/healthy"]`) ||
		!strings.Contains(string(raw), "COPY deploy/healthy /usr/local/lib/sojourn/healthy\n") {
		t.Fatalf("the image has no such HEALTHCHECK: %v", err)
	}
	answers := func(status int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/healthz" {
				status = http.StatusNotFound
			}
			w.WriteHeader(status)
		}))
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unreachable := l.Addr().String()
	_ = l.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // the check does not use TLS, which the server logs
	t.Cleanup(secure.Close)
	tls := "SOJOURN_ADDR=" + strings.TrimPrefix(secure.URL, "https://")
	good, bad := answers(http.StatusOK), answers(http.StatusServiceUnavailable)
	for _, c := range []struct {
		environment []string
		healthy     bool
	}{
		{[]string{"SOJOURN_ADDR=" + good}, true},
		{[]string{"SOJOURN_ADDR=" + bad}, false},
		{[]string{"SOJOURN_ADDR=" + unreachable}, false},
		{[]string{tls, "SOJOURN_TLS_CERT=app.crt"}, true},
		{[]string{tls}, false},
		{[]string{"SOJOURN_ADDR=" + unreachable, "SOJOURN_CONTAINER_TYPE=WORKER", "SOJOURN_WORKER_ADDR=" + good}, true},
		{[]string{"SOJOURN_ADDR=" + good, "SOJOURN_CONTAINER_TYPE=WORKER", "SOJOURN_WORKER_ADDR=" + bad}, false},
		{[]string{"SOJOURN_ADDR=" + unreachable, "SOJOURN_CONTAINER_TYPE=WORKER"}, true},
	} {
		check := exec.CommandContext(t.Context(), "../../deploy/healthy")
		check.Env = append(os.Environ(), c.environment...)
		if out, err := check.CombinedOutput(); (err == nil) != c.healthy {
			t.Errorf("%q: got %v, want healthy to be %v\n%s", c.environment, err, c.healthy, out)
		}
	}
}
