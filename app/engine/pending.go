package engine

import (
	"encoding/json"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An attempt is pending if its worker has returned without an outcome, which a caller of the API reports with the
// token of the attempt: the attempt ID. A pending attempt has no lease and no place in its session, so neither the
// loss of its worker nor a move of the session ends it. Only its outcome, a timeout or a cancellation does. A
// caller may use the token before the worker has reported that the attempt is pending.

// PendingAttempt describes a pending attempt of an activity.
type PendingAttempt struct {
	Since       history.Time `json:"since"` // when the worker reported it
	CodeVersion string       `json:"code_version,omitempty"`
}

// PendActivity ends the lease of an attempt and leaves the attempt open for a caller of the API. A repetition has the
// same response.
type PendActivity struct {
	Seq int64
	Holder
	Epoch     int64
	Recovered *protocol.Recovered
	Version   string
}

func (in PendActivity) decide(st *step) error {
	pending := Answer{Outcome: "pending", Recorded: true}
	if a, ok := st.Activities.Get(in.Seq); ok && a.State == Pending && a.Delivery == in.Delivery && a.Owner == in.Owner {
		st.d.Answer = pending
		return nil
	}
	a, err := st.holdsActivity(in.Seq, in.Holder, in.Epoch)
	if err != nil {
		return err
	}
	if st.superseded(a) {
		st.refuseSuperseded(a)
		return nil
	}
	st.endReported(a, in.Recovered)
	a.State, a.Pending = Pending, &PendingAttempt{Since: st.now, CodeVersion: in.Version}
	// The lease ends. Its owner and its start stay, because the event of the outcome contains them.
	a.Lease = Lease{
		Owner: a.Owner, Incarnation: a.Incarnation, Release: a.Release, BuildID: a.BuildID, LeasedAt: a.LeasedAt,
	}
	a.Rebuild, a.Suspect, a.Blamed, a.UnstartedReturns = nil, nil, 0, 0 // as after an outcome: the code has returned
	st.Activities.Put(a.Seq, a)
	st.d.Answer = pending
	return nil
}

// ErrAttemptNotOpen is the refusal of a token whose attempt is not open. The caller of the decision reads history to
// tell a repetition from another outcome.
var ErrAttemptNotOpen = protocol.Refuse(protocol.ReasonStaleAttempt, "the attempt is not open")

// attemptOf returns the activity whose current attempt a token names: a pending attempt, or one that a worker runs.
func (st *step) attemptOf(seq, delivery int64) (Activity, error) {
	a, ok := st.Activities.Get(seq)
	if seq > st.CommandSeq || ok && delivery > a.Delivery {
		return a, protocol.Refuse(protocol.ReasonTaskNotFound, "attempt %s does not exist", AttemptID(st.ID, seq, delivery))
	}
	if !ok || a.State != LeasedState && a.State != Pending || a.Delivery != delivery {
		return a, ErrAttemptNotOpen
	}
	return a, nil
}

// ResolveActivity is the outcome of an attempt that a caller of the API reports with the attempt's token: a result, or
// a failure if Failure is set.
type ResolveActivity struct {
	Seq, Delivery int64
	Result        string
	Failure       *protocol.Failure
	Hash          string
}

func (in ResolveActivity) decide(st *step) error {
	a, err := st.attemptOf(in.Seq, in.Delivery)
	if err != nil {
		return err
	}
	if a.State == LeasedState && st.superseded(a) {
		st.refuseSuperseded(a)
		return nil
	}
	st.byToken = true
	if in.Failure == nil {
		st.recordResult(a, CompleteActivity{Result: in.Result, Hash: in.Hash}, st.now, "")
		st.d.Answer.Outcome, st.d.Answer.Recorded = "completed", true
		return nil
	}
	st.endReported(a, nil)
	st.failAttempt(a, *in.Failure, in.Hash)
	return nil
}

// BeatActivity is a heartbeat of an attempt that a caller of the API sends with the attempt's token. It renews no
// lease, only the heartbeat timeout.
type BeatActivity struct {
	Seq, Delivery int64
	Progress      json.RawMessage
}

func (in BeatActivity) decide(st *step) error {
	a, err := st.attemptOf(in.Seq, in.Delivery)
	if err != nil {
		return err
	}
	a.HeartbeatAt = st.now
	if len(in.Progress) > 0 {
		a.Progress = in.Progress
	}
	st.Activities.Put(a.Seq, a)
	st.d.Answer = Answer{Outcome: "heartbeat_recorded", Recorded: true}
	return nil
}

// pending adjusts the times of a pending attempt. After a jump forward, its heartbeat timeout keeps its remaining time.
func (j ClockJump) pending(a *Activity, now history.Time) (moved bool) {
	if j.backward() {
		p := *a.Pending // rows share it
		moved = j.clampEvent(&p.Since, now)
		a.Pending = &p
		moved = j.clampEvent(&a.LeasedAt, now) || moved
		return j.clampEvent(&a.HeartbeatAt, now) || moved
	}
	if a.HeartbeatTO == 0 {
		return false
	}
	p := *a.Pending
	before := plus(now, -time.Duration(j))
	if p.Since.After(before.Time) {
		return false // it became pending after the jump
	}
	j.adjustTime(&p.Since, now)
	j.adjustTime(&a.HeartbeatAt, now)
	a.Pending = &p
	return true
}
