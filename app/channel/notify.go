package channel

import (
	"context"
	"maps"
	"time"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/rpc"
	"github.com/sojourn-run/sojourn/shared/socketio"
)

// noticeTime is how long a worker has to confirm a notice.
const noticeTime = 5 * time.Second

// notice is the argument of an rpc-notify event.
type notice struct {
	Method  string `json:"method"`
	Payload any    `json:"payload,omitempty"`
}

// Cancel tells a worker to stop an attempt. Like every notice it does not block and may be lost: the next heartbeat
// says the same.
func (c *Channel) Cancel(namespace, worker string, n protocol.CancelNotice) {
	c.notify(namespace, worker, protocol.NoticeCancel, n)
}

// CloseSession tells a worker that it holds a session no more.
func (c *Channel) CloseSession(namespace, worker string, n protocol.SessionNotice) {
	c.notify(namespace, worker, protocol.NoticeSession, n)
}

// YieldSession tells a worker that a session it holds is to give way, and says whether there was a worker to tell.
func (c *Channel) YieldSession(namespace, worker string, n protocol.SessionNotice) bool {
	return c.notify(namespace, worker, protocol.NoticeYield, n)
}

// Intend tells a worker what an operator wants of it, and says whether there was a worker to tell.
func (c *Channel) Intend(namespace, worker string, i protocol.Intent, n protocol.PauseNotice) bool {
	switch i {
	case protocol.IntentPause:
		return c.notify(namespace, worker, protocol.NoticePause, n)
	case protocol.IntentLeave:
		return c.notify(namespace, worker, protocol.NoticeDrain, struct{}{})
	}
	return c.notify(namespace, worker, protocol.NoticeResume, struct{}{})
}

// DrainWorkers tells every connected worker to finish and leave.
func (c *Channel) DrainWorkers() { c.notify("", "", protocol.NoticeDrain, struct{}{}) }

// SettingsChanged tells every connected worker to fetch its settings again.
func (c *Channel) SettingsChanged() { c.notify("", "", protocol.NoticeSettings, struct{}{}) }

// SettingsChangedIn is SettingsChanged for the workers of one namespace.
func (c *Channel) SettingsChangedIn(namespace string) {
	c.notify(namespace, "", protocol.NoticeSettings, struct{}{})
}

// notify sends a notice to a worker, or with an empty id to all of them. It says whether there was anybody.
func (c *Channel) notify(namespace, worker, method string, body any) (anybody bool) {
	room := worker
	if worker == "" {
		room = protocol.RoomWorkers
	}
	for _, s := range c.workers.Sockets(room) {
		if p, ok := s.Principal().(*Peer); ok && (namespace == "" || p.Namespace == namespace) {
			anybody = true
			c.spawn(func() {
				// It may have come before somebody else's worker was registered under the id it gave.
				if worker == "" || c.verbs.Reaches(p.calls(c.life), p.Namespace, worker) == nil {
					c.emit(s, p, method, body)
				}
			})
		}
	}
	c.mu.Lock()
	local := maps.Clone(c.local)
	c.mu.Unlock()
	for p, handlers := range local {
		if worker != "" && p.WorkerID != worker || namespace != "" && p.Namespace != namespace {
			continue
		}
		anybody = true
		c.spawn(func() {
			if err := (rpc.Local{Handlers: handlers, Timeout: noticeTime}).Notify(c.life, method, body); err != nil {
				c.counts.unacked.Add(1)
			}
		})
	}
	return anybody
}

// emit sends one notice and waits for the worker to confirm it.
func (c *Channel) emit(s *socketio.Socket, p *Peer, method string, body any) {
	ctx, cancel := context.WithTimeout(c.life, noticeTime)
	defer cancel()
	if _, err := s.EmitWithAck(ctx, rpc.EventNotify, notice{method, body}); err != nil {
		c.counts.unacked.Add(1)
		c.log.Debug().Str("worker_id", p.WorkerID).Str("method", method).Err(err).Msg("notice not confirmed")
	}
}

// spawn runs fn unless the channel is closing.
func (c *Channel) spawn(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing {
		c.tasks.Go(fn)
	}
}

// spreadCancels tells workers which of their attempts and sessions are over.
func (c *Channel) spreadCancels() {
	w := c.opt.Hub.Watch(dispatch.TopicCancels | dispatch.TopicMoves)
	defer w.Close()
	for {
		select {
		case <-c.life.Done():
			return
		case <-w.C:
		}
		changed, _ := w.Take() // what is too much the heartbeats say
		for _, r := range changed.Runs {
			for _, a := range r.Cancelled {
				c.Cancel(r.Namespace, a.Worker, protocol.CancelNotice{TaskID: a.TaskID, AttemptID: a.AttemptID})
			}
		}
		for _, m := range changed.Moves {
			if m.Ends() && m.By != m.Worker { // a holder that ended it knows
				reason := m.Why
				if reason == "" {
					reason = m.What
				}
				c.CloseSession(
					m.Session.Namespace, m.Worker, protocol.SessionNotice{SessionID: m.Session.ID, Epoch: m.Epoch, Reason: reason},
				)
			}
		}
	}
}
