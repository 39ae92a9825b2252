package engine

import (
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The executor of a session runs several activities concurrently. When it ends, the worker reports a verdict for each
// of them. The rules are those for a lost worker process: the activity that ended the executor fails; if the worker
// cannot tell which one it was, all are suspects. The other activities are retried.

// finding returns the Finding of the activity for the loss of its executor, with the worker's verdict.
func (a *Activity) finding(l *protocol.ExecutorLoss) Finding {
	f := Finding{Process: a.ProcessID() + "/" + l.Executor, Tasks: l.Calls}
	if l.Verdict == string(LossSuspect) {
		f.Part = LossSuspect
	}
	return f
}

// executorLost requeues an activity that did not end its executor. The delivery uses up no attempt of the retry policy
// and counts towards no limit.
func (st *step) executorLost(a Activity, l *protocol.ExecutorLoss, why string) {
	f := a.finding(l)
	st.stateLost(a, l, why)
	st.lose(a, why, f)
}

// stateLost fails the session of an attempt, since the session's state was in the executor: the next acquisition has a
// higher epoch. It has no effect if the session is no longer held under the epoch of the attempt.
func (st *step) stateLost(a Activity, l *protocol.ExecutorLoss, why string) {
	s, ok := st.session(a.SessionID)
	cause := protocol.LostReason(l.StateLost)
	if a.SessionID == "" || cause == "" || !ok || s.Terminal || s.Epoch != a.Epoch || !s.HeldBy(a.Owner, st.now.Time) {
		return
	}
	e := s.fail(a.Owner, cause, why, st.now)
	st.storeSession(s, e)
}

// endedExecutor isolates the next attempt of an activity that ended an executor with other calls: like a task that is
// blamed for the loss of its process, it is dispatched to an idle process. was is the activity before it failed.
func (st *step) endedExecutor(was Activity, l *protocol.ExecutorLoss) {
	a, found := st.Activities.Get(was.Seq)
	if !found || l.Verdict != string(LossBlamed) || l.Calls < 2 {
		return
	}
	f := was.finding(l)
	f.Part = LossBlamed
	a.Suspect = was.Suspect.afterLoss(f, runTimeBeforeLoss(was.Lease, history.Time{}, "", st.now), st.now)
	st.Activities.Put(a.Seq, a)
}
