package sandbox

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/sandbox/frame"
)

// sockets returns both ends of an executor's control socket.
func sockets(t *testing.T) (ours *control, theirs *os.File) {
	t.Helper()
	fd, theirs, err := pair("test")
	if err != nil {
		t.Fatal(err)
	}
	if ours, err = newControl(fd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Close(); _ = ours.Close() })
	return ours, theirs
}

func TestAnInterruptionCostsNoFrameThatHasBegun(t *testing.T) {
	ours, theirs := sockets(t)
	var reads readDeadlines
	frames := reads.newFrames(ours, 0)
	pong := frame.Frame{Header: frame.Header{T: frame.Pong}, Body: []byte("all")}
	raw, err := frame.Append(nil, pong, frame.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	type read struct {
		f   frame.Frame
		err error
	}
	done := make(chan read, 1)
	next := func() {
		f, err := frames.Read()
		done <- read{f, err}
	}
	for cut := 1; cut < len(raw); cut++ {
		go next()
		if _, err := theirs.Write(raw[:cut]); err != nil {
			t.Fatal(err)
		}
		for began := false; !began; time.Sleep(time.Millisecond) {
			reads.mu.Lock()
			began = reads.within
			reads.mu.Unlock()
		}
		reads.interrupt()
		if _, err := theirs.Write(raw[cut:]); err != nil {
			t.Fatal(err)
		}
		if got := <-done; got.err != nil || string(got.f.Body) != "all" {
			t.Fatalf("cut after %d bytes: %+v", cut, got)
		}
		if _, err := frames.Read(); !errors.Is(err, errInterrupted) {
			t.Fatalf("after the frame: %v", err)
		}
		reads.resume()
	}
	go next()
	reads.interrupt()
	if got := <-done; !errors.Is(got.err, errInterrupted) {
		t.Errorf("between frames: %+v", got)
	}
}

func TestControlWritesAsFastAsIsRead(t *testing.T) {
	ours, theirs := sockets(t)
	head, body := bytes.Repeat([]byte("h"), 300<<10), bytes.Repeat([]byte("b"), 2<<20)
	got := make(chan []byte, 1)
	go func() {
		var all []byte
		for part := make([]byte, 70_001); len(all) < len(head)+len(body); {
			n, err := theirs.Read(part)
			if all = append(all, part[:n]...); err != nil {
				break
			}
		}
		got <- all
	}()
	if n, err := ours.WriteBoth(head, body); err != nil || n != len(head)+len(body) {
		t.Fatal(n, err)
	}
	if all := <-got; string(all) != string(head)+string(body) {
		t.Errorf("%d bytes arrived, or others", len(all))
	}
}

func TestControlTimesOutIfThePeerDoesNotRead(t *testing.T) {
	ours, _ := sockets(t)
	_ = ours.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := ours.Write(make([]byte, 2<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

func TestClosingControlEndsReadsAndWrites(t *testing.T) {
	ours, _ := sockets(t)
	ended := make(chan error, 2)
	go func() { _, err := ours.Read(make([]byte, 1)); ended <- err }()
	go func() { _, err := ours.Write(make([]byte, 2<<20)); ended <- err }()
	time.Sleep(20 * time.Millisecond) // most likely both wait by then
	if err := ours.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("no error")
		}
	}
	if _, err := ours.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Error("read after the end:", err)
	}
}

func TestControlReportsTheEndOfThePeer(t *testing.T) {
	ours, theirs := sockets(t)
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Error("read:", err)
	}
	if _, err := ours.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Error("write:", err)
	}
}
