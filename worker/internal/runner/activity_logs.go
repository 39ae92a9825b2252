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

// Activity logs are read only by people. The logs may lose lines, and sending them must not block tasks. A common limit
// for all attempts bounds their memory; the worker counts the dropped lines and logs their number.

const (
	logInterval         = time.Second      // minimum time between two requests
	maxLogCallBytes     = 1 << 20          // maximum size of one request
	maxBufferedLogBytes = 4 << 20          // maximum size of buffered lines; further lines are dropped
	logCallTimeout      = 10 * time.Second // timeout of one request
)

// logSender sends the log lines of attempts to the app: once a second while the attempts run, the rest with their
// outcomes. Tasks do not wait for it. It counts the lines that it cannot deliver, and is idle while attempts log
// nothing.
type logSender struct {
	r *Runner

	mu       sync.Mutex // guards the fields below, and those of every attemptLog
	waiting  []*attemptLog
	buffered int // size of the buffered lines of all attempts
	sending  bool
	wait     sync.WaitGroup
}

// attemptLog holds the unsent log lines of one attempt.
type attemptLog struct {
	task     *protocol.ActivityTask
	bytes    int   // size of all lines of the attempt
	dropped  int64 // lines dropped since the last stored line
	part     int64 // number of the last chunk
	newLines []protocol.LogLine
	chunks   []protocol.LogChunk // chunks that the app has not confirmed
	queued   bool                // the attempt is in waiting
	closed   bool                // the attempt has ended, or the app rejects its logs
}

// add buffers a line of an attempt and starts the sender.
func (l *logSender) add(a *attemptLog, in sandbox.LogLine) {
	line := protocol.LogLine{At: history.At(in.Time), Level: in.Level, Source: in.Source, Text: in.Text}
	one := protocol.LogChunk{Lines: []protocol.LogLine{line}}.Fit(protocol.MaxLogBytes).Lines
	n, mark := protocol.LogSize(one), protocol.LogSize([]protocol.LogLine{{}})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case a.closed:
		return
	case a.bytes+n+2*mark > protocol.MaxLogBytes: // reserve space for entries that count dropped lines
		a.bytes = protocol.MaxLogBytes // from now on all lines are dropped
		a.dropped++
		return
	case l.buffered+n > maxBufferedLogBytes:
		a.dropped++
		return
	}
	l.markDropped(a)
	l.appendLine(a, one[0])
	if !a.queued {
		a.queued = true
		l.waiting = append(l.waiting, a)
	}
	if !l.sending && l.r.pollCtx.Err() == nil {
		l.sending = true
		l.wait.Go(l.send)
	}
}

// addDropped counts lines that were dropped before the worker could read them.
func (l *logSender) addDropped(a *attemptLog, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.dropped += n
}

// appendLine counts and stores a line. The caller must hold mu.
func (l *logSender) appendLine(a *attemptLog, line protocol.LogLine) {
	n := protocol.LogSize([]protocol.LogLine{line})
	a.newLines, a.bytes, l.buffered = append(a.newLines, line), a.bytes+n, l.buffered+n
}

// markDropped adds an entry with the number of dropped lines. The caller must hold mu.
func (l *logSender) markDropped(a *attemptLog) {
	if a.dropped > 0 {
		l.appendLine(a, protocol.LogLine{LeftOut: a.dropped})
		a.dropped = 0
	}
}

// endAttempt removes an attempt and returns its unconfirmed lines, which are sent with the outcome.
func (l *logSender) endAttempt(a *attemptLog) []protocol.LogChunk {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.closed {
		return nil
	}
	l.markDropped(a)
	l.cutChunk(a)
	chunks := a.chunks
	l.closeLog(a)
	return chunks
}

// cutChunk moves the buffered lines into a new chunk. The caller must hold mu.
func (l *logSender) cutChunk(a *attemptLog) {
	if len(a.newLines) > 0 {
		a.part++
		a.chunks = append(a.chunks, protocol.LogChunk{Part: a.part, Lines: a.newLines})
		a.newLines = nil
	}
}

// closeLog discards the buffered lines of an attempt and drops its later lines. The caller must hold mu.
func (l *logSender) closeLog(a *attemptLog) {
	a.closed = true
	for _, c := range a.chunks {
		l.buffered -= protocol.LogSize(c.Lines)
	}
	l.buffered -= protocol.LogSize(a.newLines)
	a.chunks, a.newLines = nil, nil
}

// nextCall returns the content of one request and the attempts whose logs it contains. An empty result ends the sender.
func (l *logSender) nextCall() (req protocol.LogsRequest, of []*attemptLog) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, remaining := 0, l.waiting[:0]
	for _, a := range l.waiting {
		if a.closed || len(a.newLines)+len(a.chunks) == 0 {
			a.queued = false
			continue
		}
		remaining = append(remaining, a)
		l.cutChunk(a)
		for _, c := range a.chunks {
			if size += protocol.LogSize(c.Lines); len(of) > 0 && (size > maxLogCallBytes || len(of) == maxItems) {
				break
			}
			of = append(of, a)
			req.Items = append(req.Items, protocol.AttemptLogs{
				TaskID: a.task.TaskID, Owner: a.task.LeaseOwner, AttemptID: a.task.AttemptID, LogChunk: c,
			})
		}
	}
	clear(l.waiting[len(remaining):])
	l.waiting = remaining
	l.sending = len(of) > 0
	return req, of
}

func (l *logSender) send() {
	for {
		t := time.NewTimer(logInterval)
		select {
		case <-t.C:
		case <-l.r.pollCtx.Done():
		}
		t.Stop()
		req, of := l.nextCall()
		if len(of) == 0 || l.r.pollCtx.Err() != nil {
			return
		}
		if err := l.deliver(req, of); err != nil && !link.Lost(err) && len(of) > 1 {
			// The logs of one attempt may have caused the rejection, so send the logs of each attempt separately.
			for i := range of {
				_ = l.deliver(protocol.LogsRequest{Items: req.Items[i : i+1]}, of[i:i+1])
			}
		}
	}
}

// deliver sends one request. If the app rejects a request with the logs of one attempt, these logs are dropped.
func (l *logSender) deliver(req protocol.LogsRequest, of []*attemptLog) error {
	ctx, cancel := context.WithTimeout(l.r.pollCtx, logCallTimeout)
	defer cancel()
	answer, err := l.r.opt.Link.RecordLogs(ctx, req)
	if err != nil {
		l.r.log.Debug().Err(err).Int("chunks", len(of)).Msg("failed to send activity logs")
	}
	if err == nil || link.Lost(err) || len(of) == 1 {
		l.applyResponse(req, of, answer, err)
	}
	return err
}

// applyResponse drops the logs that the app stored or rejected. Logs for which the response is missing are sent again;
// the app stores each chunk number once.
func (l *logSender) applyResponse(req protocol.LogsRequest, of []*attemptLog, answer protocol.LogsResponse, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, a := range of {
		switch {
		case a.closed || link.Lost(err):
		case err != nil || i >= len(answer.Items):
			l.closeLog(a)
		case answer.Items[i].Recorded:
			a.chunks = slices.DeleteFunc(a.chunks, func(c protocol.LogChunk) bool {
				if c.Part == req.Items[i].Part {
					l.buffered -= protocol.LogSize(c.Lines)
				}
				return c.Part == req.Items[i].Part
			})
		case answer.Items[i].Reason == protocol.ReasonBackendUnavailable:
		default:
			l.closeLog(a)
		}
	}
}
