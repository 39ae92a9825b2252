package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// PoolSettings are the settings of a pool of sessions, which workflows borrow with workflow.Borrow.
type PoolSettings struct {
	// Definition is the session definition of the members, which workers registered with HandOverPrepare.
	Definition string `json:"definition"`
	Queue      string `json:"task_queue"`         // task queue of the workers that hold the members
	Size       int    `json:"size"`               // maximum number of members, 1 to 1000
	Warm       *int   `json:"warm,omitempty"`     // number of free members that are set up ahead; nil: Size
	MaxUses    int    `json:"max_uses,omitempty"` // number of loans after which a member is replaced; 0: no limit
}

// PoolInfo describes a pool of sessions.
type PoolInfo struct {
	Name       string       `json:"name"`
	Namespace  string       `json:"namespace"`
	Definition string       `json:"definition"`
	Queue      string       `json:"task_queue"`
	Size       int          `json:"size"`
	Warm       int          `json:"warm"`
	MaxUses    int          `json:"max_uses"`
	CreatedAt  time.Time    `json:"created_at"`
	Free       int          `json:"free_count"`    // members that a workflow can borrow now
	Lent       int          `json:"lent_count"`    // members that workflows have borrowed
	SettingUp  int          `json:"set_up_count"`  // members that workers set up
	Unowned    int          `json:"unowned_count"` // members for which no worker has a place, or that are replaced
	Waiting    int          `json:"waiting_count"` // workflows that wait for a member
	Members    []PoolMember `json:"members"`       // only in the result of Describe
	Waiters    []PoolWaiter `json:"waiters"`       // only in the result of Describe: the first 100
}

// PoolMember is a session of a pool.
type PoolMember struct {
	SessionID     string    `json:"session_id"`
	State         string    `json:"state"` // free, lent, setting_up or unowned
	WorkerID      string    `json:"worker_id"`
	Uses          int       `json:"uses"`        // loans so far
	WorkflowID    string    `json:"workflow_id"` // workflow that borrowed it
	LentAt        time.Time `json:"lent_at"`
	LoanExpiresAt time.Time `json:"loan_expires_at"` // zero: the loan has no timeout
}

// PoolWaiter is a workflow that waits for a member of a pool.
type PoolWaiter struct {
	Position    int       `json:"position"` // 1: the next one
	WorkflowID  string    `json:"workflow_id"`
	RunID       string    `json:"run_id"`
	Priority    int       `json:"priority"`
	FairnessKey string    `json:"fairness_key"`
	Since       time.Time `json:"since"`
}

// Pools lists the pools of the namespace, sorted by name.
func (c *Client) Pools(ctx context.Context) ([]PoolInfo, error) {
	var out struct {
		Pools []PoolInfo `json:"pools"`
	}
	err := c.Call(ctx, http.MethodGet, "/api/sojourn/pools", nil, &out)
	return out.Pools, err
}

// Pool returns a handle of a pool. It sends no request and does not check that the pool exists.
func (c *Client) Pool(name string) *Pool { return &Pool{client: c, Name: name} }

// Pool is a handle of a pool. If no pool has the name, the reason of the errors is ReasonPoolNotFound.
type Pool struct {
	client *Client
	Name   string
}

func (p *Pool) path() string { return "/api/sojourn/pools/" + url.PathEscape(p.Name) }

// Describe returns the pool with its members and waiters.
func (p *Pool) Describe(ctx context.Context) (v PoolInfo, err error) {
	return v, p.client.Call(ctx, http.MethodGet, p.path(), nil, &v)
}

// Set creates the pool or replaces its settings. Members that do not fit the new settings are replaced when no workflow
// has borrowed them.
func (p *Pool) Set(ctx context.Context, s PoolSettings) (v PoolInfo, err error) {
	in := protocol.PoolRequest{
		Definition: s.Definition, Queue: s.Queue, Size: s.Size, Warm: s.Warm, MaxUses: s.MaxUses,
	}
	return v, p.client.Call(ctx, http.MethodPut, p.path(), in, &v)
}

// Delete deletes the pool. Its free members end; loans continue until they end.
func (p *Pool) Delete(ctx context.Context) error {
	return p.client.Call(ctx, http.MethodDelete, p.path(), nil, nil)
}
