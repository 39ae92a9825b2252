package engine

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A pool keeps sessions of one definition set up before workflows need them. Its members are workflow-scoped sessions
// without a workflow ID. A workflow borrows a member by a step, which waits like a ready activity in a queue that only
// the app serves, so priority, fairness, timeouts and cancellation of waiting steps are those of activities. One
// decision completes the step and stores the loan in the member's row: the workflow ID to which the session then
// belongs. So the rules for sessions of a workflow ID apply to it: it survives continue-as-new, ends with the last run,
// and is refused to other workflows. A member never has two borrowers, since each loan locks its row.

// PoolQueue returns the name of the queue in which the steps that borrow members of a pool wait, and whose row contains
// the settings of the pool.
func PoolQueue(pool string) string { return poolPrefix + pool }

const poolPrefix = "pool:"

// PoolOf returns the name of the pool whose settings the row of a queue contains; "" for other queues.
func (q *Queue) PoolOf() string {
	if q == nil || q.Pool == nil {
		return ""
	}
	return strings.TrimPrefix(q.Name, poolPrefix)
}

// Pool holds the settings and the members of a pool.
type Pool struct {
	Definition string `json:"definition"`
	Queue      string `json:"queue"` // task queue of the workers that hold the members
	Size       int    `json:"size"`  // maximum number of members
	Warm       int    `json:"warm"`  // number of members that are set up before workflows ask for them
	// MaxUses is the number of loans after which a member is replaced; 0: no limit.
	MaxUses   int          `json:"max_uses,omitempty"`
	CreatedAt history.Time `json:"created_at"`
	// Members are the session IDs of the members that were not found to have ended.
	Members []string `json:"members,omitempty"`
	// Deleted: an operator deleted the pool. The row is kept until its loans have ended.
	Deleted bool `json:"deleted,omitempty"`
}

// Loan is the use of a member of a pool by the workflow ID of its session.
type Loan struct {
	Step  string       `json:"step"`  // the step that borrowed the member
	Since history.Time `json:"since"` // when the member was lent
	Until history.Time `json:"until,omitzero"`
	Last  bool         `json:"last,omitempty"` // the member is replaced after this loan
	// Broken: an attempt in the session ended without a report of its worker, so its code may still run.
	Broken bool `json:"broken,omitempty"`
}

// broken returns the loan, marked as broken.
func (l *Loan) broken() *Loan {
	next := *l // rows share it
	next.Broken = true
	return &next
}

// SetPool creates a pool or changes its settings. The members stay; those that no longer fit are replaced when they
// are not lent.
type SetPool struct{ Pool Pool }

func (in SetPool) decide(q *Queue, now history.Time) error { //nolint:unparam // as the other changes
	p := in.Pool
	p.CreatedAt = now
	if q.Pool != nil {
		p.Members = q.Pool.Members
		if !q.Pool.Deleted {
			p.CreatedAt = q.Pool.CreatedAt
		}
	}
	q.Pool = &p
	return nil
}

// DeletePool deletes a pool. Members that are not lent end; loans continue until they end.
type DeletePool struct{}

func (in DeletePool) decide(q *Queue, _ history.Time) error {
	if q.Pool == nil || q.Pool.Deleted {
		return protocol.Refuse(protocol.ReasonPoolNotFound, "pool not found")
	}
	p := *q.Pool
	p.Deleted = true
	q.Pool = &p
	return nil
}

// RemovePool removes a pool without the end of its members, because its namespace is being deleted.
type RemovePool struct{}

func (RemovePool) decide(q *Queue, _ history.Time) error { //nolint:unparam // as the other changes
	q.Pool = nil
	return nil
}

// SetMembers replaces the list of the members of a pool.
type SetMembers struct{ Members []string }

func (in SetMembers) decide(q *Queue, _ history.Time) error {
	if q.Pool == nil {
		return errNotDue
	}
	p := *q.Pool
	p.Members = in.Members
	q.Pool = &p
	if p.Deleted && len(p.Members) == 0 {
		q.Pool = nil
	}
	return nil
}

// Fits reports whether a member has the settings of the pool.
func (p *Pool) Fits(s *Session) bool {
	return !p.Deleted && s.Definition == p.Definition && s.Queue == p.Queue
}

// CreateMember creates a member of a pool without an owner.
type CreateMember struct {
	Key  SessionKey
	Name string
	Pool *Pool
}

func (in CreateMember) decide(s *Session, now history.Time) (SessionChange, error) {
	if s != nil {
		return SessionChange{}, errNotDue
	}
	fresh := NewSession(in.Key.Namespace, in.Key.ID, nil, now)
	fresh.Origin, fresh.Pool, fresh.Pinned = OriginWorkflow, in.Name, true
	fresh.Queue, fresh.Definition = in.Pool.Queue, in.Pool.Definition
	// The first set-up is for this epoch: 0 means that no state is prepared.
	fresh.Epoch = now.UnixMicro()
	return SessionChange{Session: fresh, Timeline: []protocol.SessionEvent{{
		At: now, What: "started", By: "pool " + in.Name,
	}}}, nil
}

// Lendable reports whether a workflow may borrow the session now: it is a member of a pool, set up and not in use.
func (s *Session) Lendable(now time.Time) bool {
	return s.Pool != "" && s.Loan == nil && s.reusable(now)
}

// reusable reports whether the state of the session exists and no code uses it.
func (s *Session) reusable(now time.Time) bool {
	return s.Held(now) && !s.NeedsSetUp() && s.Moving == "" && s.running() == 0 && s.Ready == 0
}

// Unowned reports whether the session is a member of a pool that no worker has owned yet and none sets up.
func (s *Session) Unowned(now time.Time) bool {
	return !s.Terminal && !s.EverAcquired && s.Preparing(now) == nil
}

// Broken reports whether a member that is not lent has lost its state.
func (s *Session) Broken(now time.Time) bool {
	return s.EverAcquired && (!s.Held(now) || s.NeedsSetUp() || s.running() > 0)
}

// WarmsAt reports whether a worker may set the member up: it has registered the definition with a hand-over, polls the
// queue and has not failed to set the member up.
func (s *Session) WarmsAt(w *Worker) bool {
	return !slices.Contains(s.UnpreparedBy, w.ID) && w.Serves(s.Queue) &&
		slices.Contains(w.Capabilities, protocol.PrepareCapability(s.Definition)) &&
		len(Missing(s.NeededCapabilities(), w.Capabilities)) == 0
}

// WarmMember reserves a place for a member without an owner at a worker, which sets it up and then owns it. The caller
// has counted the sessions of the worker under the lock of its row.
type WarmMember struct{ Lessee Lessee }

func (in WarmMember) decide(s *Session, now history.Time) (SessionChange, error) {
	w := in.Lessee.Worker
	if s == nil || s.Pool == "" || !s.Unowned(now.Time) || !in.Lessee.Counted || in.Lessee.Sessions >= w.MaxSessions ||
		!s.WarmsAt(w) {
		return SessionChange{}, errNotDue
	}
	resources := s.resourcesAt(w)
	if _, short := w.shortage(resources, nil, in.Lessee.Used); short {
		return SessionChange{}, errNotDue
	}
	c := SessionChange{Session: *s}
	c.Session.Prepare = s.preparationBy(w, resources, now)
	c.Session.UpdatedAt = now
	c.Timeline = append(c.Timeline, protocol.SessionEvent{
		At: now, What: protocol.SessionPreparing, Worker: w.ID, Epoch: s.Epoch, By: "pool " + s.Pool, Release: w.Release,
	})
	return c, nil
}

// CloseMember ends a member that is not lent.
type CloseMember struct{ Why string }

func (in CloseMember) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil || s.Terminal || s.Pool == "" || s.Loan != nil {
		return SessionChange{}, errNotDue
	}
	c := SessionChange{Session: *s}
	c.Session.endAs(protocol.SessionClosed, in.Why, now)
	c.Timeline = append(c.Timeline, s.ended(now, "closed", "pool "+s.Pool, in.Why))
	return c, nil
}

// ErrMemberTaken reports that a member cannot be lent any more.
var ErrMemberTaken = errors.New("the member of the pool is not free")

// LendMember completes a step that waits for a member of a pool, and lends it to the workflow ID of the run.
type LendMember struct {
	Seq    int64
	Member string
	Pool   *Pool
}

func (in LendMember) decide(st *step) error {
	a, ok := st.Activities.Get(in.Seq)
	if !ok || a.Borrow == nil || a.State != Ready || !st.Status.Open() {
		return errNotDue
	}
	s, _ := st.session(in.Member)
	if s.Pool != a.Borrow.Pool || !s.Lendable(st.now.Time) || !in.Pool.Fits(&s) {
		return ErrMemberTaken
	}
	result, err := payload.Encode(map[string]string{"session_id": s.ID})
	if err != nil {
		return err
	}
	s.Loans++
	s.WorkflowID, s.UpdatedAt = st.WorkflowID, st.now
	s.Loan = &Loan{Step: StepID(st.ID, in.Seq), Since: st.now, Last: in.Pool.MaxUses > 0 && s.Loans >= in.Pool.MaxUses}
	if a.Borrow.Loan > 0 {
		s.Loan.Until = plus(st.now, seconds(a.Borrow.Loan))
	}
	st.storeSession(s, protocol.SessionEvent{
		At: st.now, What: "borrowed", Worker: s.Owner, Epoch: s.Epoch, By: "run " + st.ID, Why: "workflow " + st.WorkflowID,
	})
	st.recordResult(a, CompleteActivity{Result: result.Blob}, st.now, "")
	st.d.Answer.Outcome, st.d.Answer.Recorded = "completed", true
	return nil
}

// borrowedSession returns the ID of the session that an activity has borrowed from a pool; "" for other activities.
func borrowedSession(d *history.ActivityCompleted) string {
	var lent struct {
		SessionID string `json:"session_id"`
	}
	if d.ActivityType != protocol.BorrowActivity || payload.Decode(payload.Payload{Blob: d.Result}, &lent) != nil {
		return ""
	}
	return lent.SessionID
}

// giveBack ends the loan of a member whose borrower returned it. The member is free if every attempt in it has ended
// with a report of its worker and its state exists; otherwise it ends, so that no later borrower shares state with code
// that still runs.
func (st *step) giveBack(s Session) {
	switch {
	case s.Loan.Broken || !s.reusable(st.now.Time):
		st.close(s, ReasonLoanBroken)
	case s.Loan.Last:
		st.close(s, ReasonMaxUses)
	default:
		s.WorkflowID, s.Loan, s.UpdatedAt = "", nil, st.now
		st.storeSession(s, protocol.SessionEvent{
			At: st.now, What: "returned", Worker: s.Owner, Epoch: s.Epoch, By: "run " + st.ID,
			Why: "workflow " + st.WorkflowID,
		})
	}
}

// Reasons for the end of members of pools.
const (
	ReasonMaxUses     = "max_uses"     // it was lent as often as the pool allows
	ReasonLoanBroken  = "in_use"       // it was returned while code may have run in it, or without state
	ReasonLoanExpired = "loan_expired" // its loan lasted longer than the borrower's timeout
	ReasonPoolChanged = "pool_changed" // the pool was deleted or has other settings
	ReasonMemberLost  = "member_lost"  // its worker was lost, or no worker could set it up
)
