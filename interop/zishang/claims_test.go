package zishang

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sojourn-run/sojourn/internal/socketio"
)

// These are the claims of decision 1 about the library, each held against its versions. They describe the library and
// not us: a later version that does better is a reason to change the record.

func TestFrameWithoutABodyEndsVersion2(t *testing.T) {
	p := start(t, "v2")
	if err := p.raw(t).WriteMessage(websocket.TextMessage, []byte("42")); err != nil {
		t.Fatal(err)
	}
	if said := p.dies(t); !strings.Contains(said, "onevent") || !strings.Contains(said, "interface conversion") {
		t.Errorf("the process ended of something else:\n%s", said)
	}
}

func TestFrameWithoutABodyDoesNotEndVersion3(t *testing.T) {
	p := start(t, "v3")
	c := p.raw(t)
	for _, frame := range []string{"42", "42[]", "42{}", "42[1]", "43", "430", "451-", "4"} {
		if c.WriteMessage(websocket.TextMessage, []byte(frame)) != nil {
			c = p.raw(t) // only this connection was ended
		}
	}
	p.lives(t)
}

func TestPanicOfAHandlerEndsVersion2(t *testing.T) {
	p := start(t, "v2")
	if err := p.dial(t, "/", nil).Emit("panic"); err != nil {
		t.Fatal(err)
	}
	if said := p.dies(t); !strings.Contains(said, "user handler failed") {
		t.Errorf("the process ended of something else:\n%s", said)
	}
}

func TestPanicOfAHandlerDoesNotEndVersion3(t *testing.T) {
	p := start(t, "v3")
	c := p.dial(t, "/", nil)
	if err := c.Emit("panic"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.EmitWithAck(t.Context(), "echo", 1); err != nil {
		// the handlers of a socket run in order, so this one came after it
		t.Error(err)
	}
	p.lives(t)
}

func TestVersion2ReordersEvents(t *testing.T) {
	for range 20 { // it does so nearly every time
		if disorder(t, "v2") > 0 {
			return
		}
	}
	t.Error("20 times 2,000 events came in order")
}

func TestVersion3KeepsEventsInOrder(t *testing.T) {
	if late := disorder(t, "v3"); late > 0 {
		t.Errorf("%d of 2,000 events came after a later one", late)
	}
}

// disorder counts the events of one socket whose handlers ran after that of a later one.
func disorder(t *testing.T, version string) (late int) {
	t.Helper()
	c := start(t, version).dial(t, "/", nil)
	const n = 2000
	for i := range n {
		if err := c.Emit("note", i); err != nil {
			t.Fatal(err)
		}
	}
	var seen []int
	ask(t, c, &seen, "notes", n)
	for i := 1; i < len(seen); i++ {
		if seen[i] < seen[i-1] {
			late++
		}
	}
	return late
}

func TestVersion3RunsHandlersOneAfterAnother(t *testing.T) {
	// The handler of "wait" ends once that of "go on" has run; which a server begins first does not matter.
	answered := func(version string, patience time.Duration) bool {
		c := start(t, version).raw(t)
		for _, frame := range []string{`420["wait"]`, `42["go on"]`} {
			if err := c.WriteMessage(websocket.TextMessage, []byte(frame)); err != nil {
				t.Fatal(err)
			}
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		_, data, err := c.ReadMessage()
		return err == nil && string(data) == `430["went on"]`
	}
	if !answered("v2", ceiling) {
		t.Error("version 2 did not run the second handler beside the first")
	}
	if answered("v3", 2*time.Second) {
		t.Error("version 3 ran the second handler beside the first")
	}
}

func TestPeerThatDoesNotReadFillsTheMemory(t *testing.T) {
	const megabytes, tries = 256, 4 // version 2 loses an event now and then
	each(t, func(t *testing.T, version string) {
		grown := 0
		for range tries {
			p := start(t, version)
			c := p.raw(t)
			before := memory(t, p.pid)
			if err := c.WriteMessage(websocket.TextMessage, []byte(`42["flood",`+strconv.Itoa(megabytes)+`]`)); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(ceiling / tries); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if grown = memory(t, p.pid) - before; grown >= megabytes/8 {
					p.lives(t)
					return
				}
			}
		}
		t.Errorf("%d MB were sent to a peer that does not read, and the process grew by %d", megabytes, grown)
	})
}

// memory returns the resident memory of a process in MB.
func memory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Skip("the memory of another process is read from /proc, which is not here")
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kb >> 10
}

// ask emits an event and decodes the first value of the ack.
func ask(t *testing.T, c *socketio.Client, answer any, event string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ceiling)
	defer cancel()
	values, err := c.EmitWithAck(ctx, event, args...)
	if err != nil {
		t.Fatalf("%s: %v", event, err)
	}
	if len(values) == 0 {
		t.Fatalf("%s: an answer without a value", event)
	}
	if err := json.Unmarshal(values[0], answer); err != nil {
		t.Fatalf("%s: %v: %s", event, err, values[0])
	}
}
