package channel

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/internal/workerconn"
	"github.com/sojourn-run/sojourn/internal/docnumbers"
	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The documentation states the numbers of the connection's handshake.
func TestGuideStatesTheNumbersOfTheChannel(t *testing.T) {
	c := New(workerconn.New(nil, workerconn.Options{}), Options{})
	defer c.Close(t.Context())
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequest("GET", protocol.ChannelPath+"/?EIO=4&transport=polling", nil))
	var open struct {
		Interval int `json:"pingInterval"`
		Timeout  int `json:"pingTimeout"`
		Frame    int `json:"maxPayload"`
	}
	if body := w.Body.Bytes(); len(body) == 0 || json.Unmarshal(body[1:], &open) != nil {
		t.Fatalf("got %d %q", w.Code, w.Body)
	}
	const page = "guide/socket-workers.md"
	docnumbers.In(t, page, "The app pings every {} and hangs up when nothing comes for {}.",
		time.Duration(open.Interval)*time.Millisecond, time.Duration(open.Timeout)*time.Millisecond)
	docnumbers.In(t, page, "A frame has at most {} (more closes the connection with 1009), one value at most {}", open.Frame,
		payload.MaxBytes)
	docnumbers.In(t, page, "the last of which may be left out ({}), and an ack.", rpc.DefaultTimeout)
	docnumbers.In(t, page, "| `workerId` | 1 to {} bytes,", protocol.MaxName)
}
