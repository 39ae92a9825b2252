package protocol

import (
	"regexp"

	"github.com/sojourn-run/sojourn/shared/history"
)

// BorrowActivity is the type of the activity that borrows a member of a pool. The app completes it, and no worker
// receives it. Its result is {"session_id": "…"}.
const BorrowActivity = "sojourn.borrow"

// MaxPoolSize is the maximum number of members of a pool.
const MaxPoolSize = 1000

// MaxPoolWaiters is the maximum number of waiting workflows that the view of a pool lists.
const MaxPoolWaiters = 100

var poolName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckPoolName rejects an invalid name of a pool; field is its path.
func CheckPoolName(name, field string) error {
	if !poolName.MatchString(name) {
		return Invalid(field, "must be 1 to 64 of letters, digits and . _ -, and begin with a letter or digit")
	}
	return nil
}

// checkBorrow rejects a schedule_activity command whose members do not agree with whether it borrows a session of a
// pool; at returns the path of a member.
func checkBorrow(c *Command, at func(string) string) error {
	switch {
	case c.Borrow == nil && c.ActivityType == BorrowActivity:
		return Invalid(at("borrow"), "is required for the activity type %s", BorrowActivity)
	case c.Borrow == nil:
		return nil
	case c.ActivityType != BorrowActivity:
		return Invalid(at("activity_type"), "must be %s with borrow", BorrowActivity)
	case c.Session() != "" || c.SessionDefinition != nil:
		return Invalid(at("session_id"), "must be absent with borrow")
	case c.Queue != "":
		return Invalid(at("queue"), "must be absent with borrow")
	case len(c.Requirements) > 0:
		return Invalid(at("requirements"), "must be absent with borrow")
	case c.Borrow.Loan < 0 || c.Borrow.Loan > MaxSeconds:
		return Invalid(at("borrow.loan_seconds"), "must be between 0 and %d", MaxSeconds)
	}
	return CheckPoolName(c.Borrow.Pool, at("borrow.pool"))
}

// PoolRequest creates a pool of sessions or replaces its settings.
type PoolRequest struct {
	Namespace string `json:"-"`
	Name      string `json:"-"`
	Identity  string `json:"-"`
	// session definition of the members, which workers registered with the hand-over `prepare`
	Definition string `json:"definition" required:"true" minLength:"1" maxLength:"200"`
	// task queue of the workers that hold the members
	Queue string `json:"task_queue" required:"true" minLength:"1" maxLength:"255"`
	// maximum number of members
	Size int `json:"size" required:"true" minimum:"1" maximum:"1000"`
	// number of free members that are set up before workflows borrow them, at most size; absent: size
	Warm *int `json:"warm,omitempty" minimum:"0" maximum:"1000"`
	// number of loans after which a member is replaced; 0 or absent: no limit
	MaxUses int `json:"max_uses,omitempty" minimum:"0" maximum:"1000000000"`
}

// PoolView is a pool with its settings, the counts of its members, and the workflows that wait for one.
type PoolView struct {
	Name       string       `json:"name"`
	Namespace  string       `json:"namespace"`
	Definition string       `json:"definition"`
	Queue      string       `json:"task_queue"`
	Size       int          `json:"size"`
	Warm       int          `json:"warm"`
	MaxUses    int          `json:"max_uses,omitempty"`
	CreatedAt  history.Time `json:"created_at"`
	Free       int          `json:"free_count"`    // members that a workflow can borrow now
	Lent       int          `json:"lent_count"`    // members that workflows have borrowed
	SettingUp  int          `json:"set_up_count"`  // members that workers set up
	Unowned    int          `json:"unowned_count"` // members for which no worker has a place, or that are replaced
	Waiting    int          `json:"waiting_count"` // workflows that wait for a member, counted up to 1000
	Members    []PoolMember `json:"members"`
	Waiters    []PoolWaiter `json:"waiters"` // the first 100, in the order in which they are served
}

// PoolMember is a session of a pool.
type PoolMember struct {
	SessionID string `json:"session_id"`
	State     string `json:"state" enum:"free,lent,setting_up,unowned"`
	WorkerID  string `json:"worker_id,omitempty"`
	Uses      int    `json:"uses"` // loans so far
	// workflow that borrowed it
	WorkflowID string       `json:"workflow_id,omitempty"`
	LentAt     history.Time `json:"lent_at,omitzero"`
	// time at which the loan ends, unless it ends before; absent: no limit
	LoanExpiresAt history.Time `json:"loan_expires_at,omitzero"`
}

// PoolWaiter is a workflow that waits for a member of a pool.
type PoolWaiter struct {
	Position    int          `json:"position"` // 1: the next one
	WorkflowID  string       `json:"workflow_id"`
	RunID       string       `json:"run_id"`
	Sequence    int64        `json:"sequence"`
	Priority    int          `json:"priority"`
	FairnessKey string       `json:"fairness_key,omitempty"`
	Since       history.Time `json:"since"`
}

// PoolList contains the pools of a namespace, sorted by name.
type PoolList struct {
	Namespace string     `json:"namespace"`
	Pools     []PoolView `json:"pools"` // without members and waiters
}

// PoolDeleted is the response to the deletion of a pool.
type PoolDeleted struct {
	Name    string `json:"name"`
	Outcome string `json:"outcome" enum:"deleted"`
}
