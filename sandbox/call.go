package sandbox

import (
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/sandbox/frame"
)

// call is a call in flight in an executor.
type call struct {
	id    string
	seq   uint64
	hooks Hooks
	done  chan struct{} // closed when the call has an outcome
	reads bool          // the goroutine of the call reads the frames of the executor

	lastHeartbeat []byte // heartbeat details of an earlier attempt, sent before the call; nil: none
	headers       []byte // headers of the activity as a JSON object, sent before the call; nil: none

	suspect bool // the call ran with others in an executor that ended

	cancelled <-chan struct{} // closed when the call is cancelled; nil: never
	deadline  time.Time       // zero: no deadline

	mu           sync.Mutex // held while a hook runs; guards the fields below until done is closed
	finished     bool
	output       []byte
	usage        Usage
	err          error
	logs         []LogLine
	logBytes     int
	dropped      int   // bytes of log that exceeded the limit
	linesDropped int64 // number of log lines that exceeded it
	beats        pace
	shows        pace
}

// expiring reports whether the call was cancelled or has reached its deadline. Its executor may then still return, or
// is killed.
func (c *call) expiring() bool {
	select {
	case <-c.cancelled:
		return true
	default:
		return !c.deadline.IsZero() && time.Until(c.deadline) < expirySlack
	}
}

// pace is a token bucket: it allows a short burst and then ten calls per second.
type pace struct {
	credit float64
	last   time.Time
}

func (p *pace) ok() bool {
	const most, perSecond = 5, 10.5 // executors themselves send at most ten per second
	now := time.Now()
	if p.last.IsZero() {
		p.credit = most
	} else {
		p.credit = min(most, p.credit+now.Sub(p.last).Seconds()*perSecond)
	}
	p.last = now
	if p.credit < 1 {
		return false
	}
	p.credit--
	return true
}

// heartbeat reports that the call is alive; false if it has ended.
func (c *call) heartbeat() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.finished && c.hooks.OnHeartbeat != nil && c.beats.ok() {
		c.hooks.OnHeartbeat()
	}
	return !c.finished
}

func (c *call) progress(value []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.finished && c.hooks.OnProgress != nil && c.shows.ok() {
		c.hooks.OnProgress(value)
	}
	return !c.finished
}

// log stores a line within the limit.
func (c *call) log(level, source string, text []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished {
		return false
	}
	if c.logBytes+len(text) > maxLogBytes {
		c.dropped += len(text) + 1
		c.linesDropped++
		c.logBytes = maxLogBytes // drop all later lines, so that the log has no hidden gap
		return true
	}
	c.logBytes += len(text) + 64 // empty lines count, too
	line := LogLine{Time: time.Now(), Level: level, Source: source, Text: clean(text)}
	c.logs = append(c.logs, line)
	if c.hooks.OnLog != nil {
		c.hooks.OnLog(line)
	}
	return true
}

// finish sets the outcome of the call. Only the first outcome counts.
func (c *call) finish(output []byte, usage *frame.Usage, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished {
		return false
	}
	c.finished, c.output, c.err = true, output, err
	if usage != nil {
		c.usage.CPU = time.Duration(max(0, usage.CPUMS) * float64(time.Millisecond))
		c.usage.RSS = max(0, usage.RSS)
	}
	close(c.done)
	return true
}

// hasEnded reports whether the call has ended.
func (c *call) hasEnded() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// result returns the result of the call. It must be called only after done is closed.
func (c *call) result() Result {
	return Result{Output: c.output, Usage: c.usage, Logs: c.logs, LogsTruncated: c.dropped, LinesLeftOut: c.linesDropped}
}
