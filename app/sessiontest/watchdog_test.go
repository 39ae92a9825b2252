package sessiontest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/link/linktest"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

// hangingCarrier is a carrier whose polls never return while hangs is set, as if a system call was stuck.
type hangingCarrier struct {
	link.Carrier
	hangs *atomic.Bool
	hang  chan struct{}
}

func (d hangingCarrier) Dial(
	ctx context.Context, hello protocol.ChannelAuth, notices protocol.WorkerNotices,
) (link.Conn, error) {
	conn, err := d.Carrier.Dial(ctx, hello, notices)
	if err != nil {
		return nil, err
	}
	return linktest.Between(conn, func(ctx context.Context, verb string, in any, call linktest.Call) (any, error) {
		if verb == "Poll" && d.hangs.Load() {
			<-d.hang
		}
		return call(ctx, in)
	}), nil
}

// A worker whose poll loop hangs is connected, registered and sends heartbeats, but does nothing. Only its supervisor
// can end it, by the probe at /healthz. A worker that is idle or busy for the same time stays healthy.
func TestAWorkerThatStoppedPollingFailsItsLivenessProbe(t *testing.T) {
	bubble(t, "by default", func(h *harness) {
		d := hangingCarrier{hangs: new(atomic.Bool), hang: make(chan struct{})}
		w := h.start("w", func(o *worker.Options) {
			*o = workeropt.Wrap(*o, func(c link.Carrier) link.Carrier {
				d.Carrier = c
				return &d
			})
		})
		probes := w.Probes()
		health := func() (int, string) {
			r := httptest.NewRecorder()
			probes.ServeHTTP(r, httptest.NewRequestWithContext(h.t.Context(), http.MethodGet, "/healthz", nil))
			return r.Code, r.Body.String()
		}
		wants := func(when string, status int, words string) {
			h.t.Helper()
			if got, body := health(); got != status || !strings.Contains(body, words) {
				h.t.Errorf("%s: got %d %s", when, got, body)
			}
		}
		h.wait(10 * time.Minute)
		wants("idle", http.StatusOK, "ok")

		d.hangs.Store(true)
		h.wait(170 * time.Second) // the open poll returns first
		wants("before its time is over", http.StatusOK, "ok")
		h.wait(70 * time.Second)
		wants("stuck", http.StatusServiceUnavailable, "stuck")

		d.hangs.Store(false)
		close(d.hang)
		h.wait(time.Minute)
		wants("when it goes on", http.StatusOK, "ok")
	})
}
