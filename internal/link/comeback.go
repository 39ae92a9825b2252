package link

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// checkTime limits the check of the preferred app.
const checkTime = 5 * time.Second

// errReturns ends a connection of a worker that returns to the app that it prefers.
var errReturns = errors.New("worker returns to the app that it prefers")

// elsewhere is a connection that may lead to another app than the one that the worker prefers. place implements it.
type elsewhere interface {
	Away() bool
	ReturnWithin() time.Duration
	CheckPreferred(ctx context.Context) (protocol.WorkerSettings, error)
	Return()
}

// comeback decides when a worker returns from the app of its connection to the app that it prefers. Each worker checks
// at random moments, so that few return at a time after an outage.
type comeback struct {
	l     *Link
	conn  elsewhere   // nil: the connection leads to the preferred app
	timer *time.Timer // timer of the next check; it never fires while conn is nil
}

func (l *Link) newComeback(conn Conn) *comeback {
	r := &comeback{l: l, timer: time.NewTimer(time.Hour)}
	r.timer.Stop()
	if e, ok := conn.(elsewhere); ok && e.Away() {
		r.conn = e
		r.pause()
	}
	return r
}

// pause sets the timer to the next check.
func (r *comeback) pause() { r.timer.Reset(rand.N(r.conn.ReturnWithin())) }

// due checks the preferred app. If it is ready and would dispatch to this worker, the next dial connects to it.
func (r *comeback) due(ctx context.Context) bool {
	check, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	s, err := r.conn.CheckPreferred(check)
	if err != nil || !r.l.gate(s.Release, s.Strict).Allowed || r.l.Leaving() {
		r.pause()
		return false
	}
	r.conn.Return()
	return true
}
