package runner

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Activity logs are for people. No decision depends on them, so they may be lost and must not block tasks. A common
// limit for all attempts bounds their memory; the number of dropped lines is counted and logged.

const (
	linePace  = time.Second      // the least time between two calls with lines
	lineBytes = 1 << 20          // of lines in one call
	heldBytes = 4 << 20          // of lines that wait for the app; further lines are dropped
	lineWait  = 10 * time.Second // for the app to take them
)

// lines sends the logs of attempts to the app: once a second while they run, the rest with their outcomes. No task
// waits for it, and it counts the lines that it cannot deliver. It is idle while attempts log nothing.
type lines struct {
	r *Runner

	mu      sync.Mutex // guards what follows, and what of an attempt is in attemptLines
	waiting []*attemptLines
	held    int // bytes of all attempts
	sending bool
	wait    sync.WaitGroup
}

// attemptLines are the lines of one attempt.
type attemptLines struct {
	task    *protocol.ActivityTask
	bytes   int   // of all it logged, as they are counted
	leftOut int64 // since the last line that was taken
	part    int64 // number of the last chunk
	fresh   []protocol.LogLine
	chunks  []protocol.LogChunk // that the app has not confirmed
	queued  bool                // it stands in waiting
	over    bool                // it ended, or the app takes no more of it
}

// add notes a line of an attempt and sees to it that it is sent soon.
func (l *lines) add(a *attemptLines, in sandbox.LogLine) {
	line := protocol.LogLine{At: history.At(in.Time), Level: in.Level, Source: in.Source, Text: in.Text}
	one := protocol.LogChunk{Lines: []protocol.LogLine{line}}.Fit(protocol.MaxLogBytes).Lines
	n, mark := protocol.LogSize(one), protocol.LogSize([]protocol.LogLine{{}})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case a.over:
		return
	case a.bytes+n+2*mark > protocol.MaxLogBytes: // the marks of what is missing are to fit as well
		a.bytes = protocol.MaxLogBytes // nothing after a gap that does not end
		a.leftOut++
		return
	case l.held+n > heldBytes:
		a.leftOut++
		return
	}
	l.mark(a)
	l.takeLine(a, one[0])
	if !a.queued {
		a.queued = true
		l.waiting = append(l.waiting, a)
	}
	if !l.sending && l.r.pollCtx.Err() == nil {
		l.sending = true
		l.wait.Go(l.send)
	}
}

// missed counts lines that were dropped before the worker received them.
func (l *lines) missed(a *attemptLines, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.leftOut += n
}

// takeLine counts and stores a line. The caller must hold mu.
func (l *lines) takeLine(a *attemptLines, line protocol.LogLine) {
	n := protocol.LogSize([]protocol.LogLine{line})
	a.fresh, a.bytes, l.held = append(a.fresh, line), a.bytes+n, l.held+n
}

// mark adds an entry with the number of dropped lines. The caller must hold mu.
func (l *lines) mark(a *attemptLines) {
	if a.leftOut > 0 {
		l.takeLine(a, protocol.LogLine{LeftOut: a.leftOut})
		a.leftOut = 0
	}
}

// endAttempt removes an attempt and returns its unconfirmed lines, which are sent with the outcome.
func (l *lines) endAttempt(a *attemptLines) []protocol.LogChunk {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.over {
		return nil
	}
	l.mark(a)
	l.cut(a)
	chunks := a.chunks
	l.forget(a)
	return chunks
}

// cut combines the new lines into a chunk. The caller must hold mu.
func (l *lines) cut(a *attemptLines) {
	if len(a.fresh) > 0 {
		a.part++
		a.chunks = append(a.chunks, protocol.LogChunk{Part: a.part, Lines: a.fresh})
		a.fresh = nil
	}
}

// forget is the end of an attempt's lines; mu is held.
func (l *lines) forget(a *attemptLines) {
	a.over = true
	for _, c := range a.chunks {
		l.held -= protocol.LogSize(c.Lines)
	}
	l.held -= protocol.LogSize(a.fresh)
	a.chunks, a.fresh = nil, nil
}

// next returns the content of one call and its attempts; an empty result ends the sender.
func (l *lines) next() (req protocol.LogsRequest, of []*attemptLines) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, still := 0, l.waiting[:0]
	for _, a := range l.waiting {
		if a.over || len(a.fresh)+len(a.chunks) == 0 {
			a.queued = false
			continue
		}
		still = append(still, a)
		l.cut(a)
		for _, c := range a.chunks {
			if size += protocol.LogSize(c.Lines); len(of) > 0 && (size > lineBytes || len(of) == maxItems) {
				break
			}
			of = append(of, a)
			req.Items = append(req.Items, protocol.AttemptLogs{
				TaskID: a.task.TaskID, Owner: a.task.LeaseOwner, AttemptID: a.task.AttemptID, LogChunk: c,
			})
		}
	}
	clear(l.waiting[len(still):])
	l.waiting = still
	l.sending = len(of) > 0
	return req, of
}

func (l *lines) send() {
	for {
		t := time.NewTimer(linePace)
		select {
		case <-t.C:
		case <-l.r.pollCtx.Done():
		}
		t.Stop()
		req, of := l.next()
		if len(of) == 0 || l.r.pollCtx.Err() != nil {
			return
		}
		if err := l.deliver(req, of); err != nil && !link.Lost(err) && len(of) > 1 {
			// Logs of one attempt may be the reason for the rejection, so each attempt's logs are sent separately.
			for i := range of {
				_ = l.deliver(protocol.LogsRequest{Items: req.Items[i : i+1]}, of[i:i+1])
			}
		}
	}
}

// deliver makes one call. It drops logs that were rejected alone.
func (l *lines) deliver(req protocol.LogsRequest, of []*attemptLines) error {
	ctx, cancel := context.WithTimeout(l.r.pollCtx, lineWait)
	defer cancel()
	answer, err := l.r.opt.Link.RecordLogs(ctx, req)
	if err != nil {
		l.r.log.Debug().Err(err).Int("chunks", len(of)).Msg("failed to send log lines of activities")
	}
	if err == nil || link.Lost(err) || len(of) == 1 {
		l.answered(req, of, answer, err)
	}
	return err
}

// answered drops the logs that the app stored or rejected. Logs whose delivery is uncertain are sent again; the app
// stores each number once.
func (l *lines) answered(req protocol.LogsRequest, of []*attemptLines, answer protocol.LogsResponse, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, a := range of {
		switch {
		case a.over || link.Lost(err):
		case err != nil || i >= len(answer.Items):
			l.forget(a)
		case answer.Items[i].Recorded:
			a.chunks = slices.DeleteFunc(a.chunks, func(c protocol.LogChunk) bool {
				if c.Part == req.Items[i].Part {
					l.held -= protocol.LogSize(c.Lines)
				}
				return c.Part == req.Items[i].Part
			})
		case answer.Items[i].Reason == protocol.ReasonBackendUnavailable:
		default:
			l.forget(a)
		}
	}
}
