package sandbox

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/sandbox/frame"
)

// frameReader identifies the goroutine that reads the frames of an executor. Only one goroutine reads at a time. A
// dedicated reader that forwards each result to the waiting call would cost the worker as much as the rest of a short
// call, because each forward wakes a thread. Therefore the goroutine of a call reads itself if no other goroutine does.
type frameReader int

const (
	readByRun  frameReader = iota // [executor.run] reads: without a call, and with several calls
	readByNone                    // no goroutine reads, for a short time after a call, since another call is likely
	readByCall                    // the goroutine of a call reads
)

// attend reads frames until the call c has ended, if c was started as the reader. It returns earlier when ctx ends, at
// the deadline, or after an interrupt; then another goroutine reads.
func (ex *executor) attend(ctx context.Context, deadline time.Time, c *call) {
	defer ex.releaseReader()
	ex.reads.resume()
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, ex.interrupt)()
	}
	if !deadline.IsZero() {
		defer time.AfterFunc(time.Until(deadline), ex.interrupt).Stop()
	}
	for !c.hasEnded() {
		if err := ex.readFrame(); errors.Is(err, errInterrupted) {
			return
		} else if err != nil {
			ex.mu.Lock()
			ex.unread = err
			ex.mu.Unlock()
			return
		}
	}
}

// readFrame reads one frame, and handles it.
func (ex *executor) readFrame() error {
	f, err := ex.frames.Read()
	if err != nil {
		return err
	}
	return ex.handleFrame(&f)
}

// releaseReader makes run the reader if frames are expected, otherwise no goroutine.
func (ex *executor) releaseReader() {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.reader = readByNone
	if len(ex.calls) > 0 || ex.unread != nil || ex.leaving {
		ex.assignRun()
	}
}

// assignRun makes run the reader if no goroutine is. The caller must hold the mutex.
func (ex *executor) assignRun() {
	if ex.reader == readByNone {
		ex.reader, ex.servedAt = readByRun, ex.served
		ex.runMayRead <- struct{}{} // does not block: run waits for it
	}
}

// expectEnd lets run read until the end of the stream, from now on or after the call in flight.
func (ex *executor) expectEnd() {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.leaving = true
	ex.assignRun()
}

// readAll reads the frames that no call reads until the end of the stream or a malformed frame.
func (ex *executor) readAll() error {
	for {
		ex.mu.Lock()
		err := ex.unread
		ex.mu.Unlock()
		if err == nil {
			if err = ex.readFrame(); errors.Is(err, errInterrupted) {
				ex.reads.resume() // the interrupt was for a call that has ended
				continue
			}
		}
		if err != nil {
			return err
		}
		ex.mu.Lock()
		rest := ex.served > ex.servedAt && len(ex.calls) == 0 && !ex.leaving
		if rest {
			ex.reader = readByNone
		}
		ex.mu.Unlock()
		if rest {
			<-ex.runMayRead
		}
	}
}

// errInterrupted is the error of a read between two frames after [readDeadlines.interrupt].
var errInterrupted = os.ErrDeadlineExceeded

// readDeadlines sets the read deadlines of an executor's socket: within a frame the time by which the frame must be
// complete; between frames a past time, which interrupts the reader. An interrupt never loses a partially read frame.
type readDeadlines struct {
	set func(time.Time) error

	mu          sync.Mutex // guards the fields below
	within      bool       // a frame has begun
	interrupted bool
}

// until is called with the moment by which a frame that has begun must be complete, and with the zero time once it is.
func (r *readDeadlines) until(t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.within = !t.IsZero()
	if !r.within && r.interrupted {
		t = time.Unix(1, 0)
	}
	return r.set(t)
}

func (r *readDeadlines) interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.interrupted = true
	if !r.within {
		_ = r.set(time.Unix(1, 0))
	}
}

// resume resets an interrupt, so that reads continue.
func (r *readDeadlines) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.interrupted {
		r.interrupted = false
		if !r.within {
			_ = r.set(time.Time{})
		}
	}
}

// newFrames reads the frames of a stream.
func (r *readDeadlines) newFrames(conn interface {
	Read(b []byte) (int, error)
	SetReadDeadline(t time.Time) error
}, patience time.Duration,
) *frame.Reader {
	r.set = conn.SetReadDeadline
	frames := frame.NewReader(conn, frame.DefaultLimits, r.until)
	if patience > 0 {
		frames.SetPatience(patience)
	}
	return frames
}
