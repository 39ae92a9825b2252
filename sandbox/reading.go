package sandbox

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/sandbox/frame"
)

// turn says who reads what an executor says. One at a time does: to hand each answer on from one that reads all of them
// to the one that waits for it costs the worker as much as the rest of a short call, since it wakes a thread that finds
// nothing to do. So who calls reads himself, as long as nobody else does.
type turn int

const (
	turnRun    turn = iota // [executor.run] reads: while there is no call, and while there are several
	turnNobody             // for a while after a call: the next one is likely to come soon
	turnCall               // the one that a call was begun with
)

// attend reads until the call c has ended, when that was begun with the turn to read. It may return before: when ctx
// ends, at the deadline, and when somebody asks for that. Then others read.
func (ex *executor) attend(ctx context.Context, deadline time.Time, c *call) {
	defer ex.passOn()
	ex.reads.resume()
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, ex.interrupt)()
	}
	if !deadline.IsZero() {
		defer time.AfterFunc(time.Until(deadline), ex.interrupt).Stop()
	}
	for !c.over() {
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

// passOn gives back the turn to read: to nobody, when there is nothing to expect.
func (ex *executor) passOn() {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.turn = turnNobody
	if len(ex.calls) > 0 || ex.unread != nil || ex.leaving {
		ex.runReads()
	}
}

// runReads gives the turn to run, if nobody has it. The mutex is held.
func (ex *executor) runReads() {
	if ex.turn == turnNobody {
		ex.turn, ex.servedAt = turnRun, ex.served
		ex.yours <- struct{}{} // there is room: it waits for its turn
	}
}

// expectEnd has run read until there is nothing more, from now on or when a call in flight has ended.
func (ex *executor) expectEnd() {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.leaving = true
	ex.runReads()
}

// readAll reads what is left to run to read until there is no more, or what there is is broken.
func (ex *executor) readAll() error {
	for {
		ex.mu.Lock()
		err := ex.unread
		ex.mu.Unlock()
		if err == nil {
			if err = ex.readFrame(); errors.Is(err, errInterrupted) {
				ex.reads.resume() // it was meant for a call that is over
				continue
			}
		}
		if err != nil {
			return err
		}
		ex.mu.Lock()
		rest := ex.served > ex.servedAt && len(ex.calls) == 0 && !ex.leaving
		if rest {
			ex.turn = turnNobody
		}
		ex.mu.Unlock()
		if rest {
			<-ex.yours
		}
	}
}

// errInterrupted is what reading returns between two frames after [readDeadlines.interrupt].
var errInterrupted = os.ErrDeadlineExceeded

// readDeadlines are the deadlines of reading from an executor: that of a frame which has begun, and between frames one
// that has passed, to have whoever reads do something else. An interruption never costs a frame that has begun.
type readDeadlines struct {
	set func(time.Time) error

	mu          sync.Mutex // guards what follows
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

// resume forgets an interruption, so that there can be another one.
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
