package engine

import (
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The executor of a session runs several activities at once. When it ends, the worker reports for each of them whether
// it ended the executor. The rules are those of a worker process: the activity that ended it fails with its reason;
// if it is not known which one that was, all are suspects. All but the one that failed are repeated.

// finding is the loss of an executor as the loss of a process of which the attempt's worker knows the verdict.
func (a *Activity) finding(l *protocol.ExecutorLoss) Finding {
	f := Finding{Process: a.ProcessID() + "/" + l.Executor, Tasks: l.Calls}
	if l.Verdict == string(LossSuspect) {
		f.Part = LossSuspect
	}
	return f
}

// executorLost makes an activity ready again whose executor ended, and that did not end it. No attempt of its policy is
// used up, and the delivery counts towards no limit.
func (st *step) executorLost(a Activity, l *protocol.ExecutorLoss, why string) {
	f := a.finding(l)
	st.stateLost(a, l, why)
	st.lose(a, why, f)
}

// stateLost gives up the session of an attempt as failed, since its state was in the executor: the next claim raises
// the epoch. It does nothing if the session is no longer held under the epoch of the attempt.
func (st *step) stateLost(a Activity, l *protocol.ExecutorLoss, why string) {
	s, ok := st.session(a.SessionID)
	cause := protocol.LostReason(l.StateLost)
	if a.SessionID == "" || cause == "" || !ok || s.Terminal || s.Epoch != a.Epoch || !s.HeldBy(a.Owner, st.now.Time) {
		return
	}
	e := s.fail(a.Owner, cause, why, st.now)
	st.keep(s, e)
}

// endedExecutor keeps an activity that ended an executor with other calls apart from them at its next attempt: like a
// task that is blamed for the loss of its process, it goes to an idle process. was is the activity before it failed.
func (st *step) endedExecutor(was Activity, l *protocol.ExecutorLoss) {
	a, again := st.Activities.Get(was.Seq)
	if !again || l.Verdict != string(LossBlamed) || l.Calls < 2 {
		return
	}
	f := was.finding(l)
	f.Part = LossBlamed
	a.Suspect = was.Suspect.after(f, ranFor(was.Lease, history.Time{}, "", st.now), st.now)
	st.Activities.Put(a.Seq, a)
}
