package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// SessionInfo describes a worker session.
type SessionInfo struct {
	ID             string    `json:"session_id"`
	Namespace      string    `json:"namespace"`
	Origin         string    `json:"door"`        // implicit, worker or workflow
	WorkflowID     string    `json:"workflow_id"` // workflow that started it; empty: none
	Queue          string    `json:"queue"`       // empty: none; the session follows the queue of its activities
	Requirements   []string  `json:"requirements"`
	Status         string    `json:"status"` // active, closed, expired, failed or orphaned
	Epoch          int64     `json:"epoch"`  // rises with every acquisition
	WorkerID       string    `json:"lease_owner"`
	LeaseExpiresAt time.Time `json:"lease_expires_at"`
	TTLExpiresAt   time.Time `json:"ttl_expires_at"` // zero: no TTL
	ClosedAt       time.Time `json:"closed_at"`
	FailureReason  string    `json:"failure_reason"` // ttl_expired, lease_expired or worker_heartbeat_stale
	EndedReason    string    `json:"ended_reason"`   // why the last epoch ended
	Release        string    `json:"release"`
	ReleasePolicy  string    `json:"release_policy"`
	Affinity       string    `json:"affinity"` // hard or soft
	Definition     string    `json:"session_definition"`
	Pinned         bool      `json:"pinned"`                // never released to make room for another session
	Active         int       `json:"active_activity_count"` // activities that run in it
	Ready          int       `json:"ready_activity_count"`  // activities that wait for it
	LastActivityAt time.Time `json:"last_activity_at"`
	CreatedAt      time.Time `json:"created_at"`
	UpdatedAt      time.Time `json:"updated_at"`
	Wait           *Wait     `json:"wait"` // reason why its tasks wait; nil: they do not
}

// Sessions lists the worker sessions of the namespace, last updated first.
func (c *Client) Sessions(ctx context.Context) iter.Seq2[SessionInfo, error] {
	return pages[SessionInfo](ctx, c, "/api/worker-sessions", "sessions", 200, url.Values{})
}

// Session returns a handle of a worker session. It sends no request and does not check that the session exists.
func (c *Client) Session(id string) *Session { return &Session{client: c, ID: id} }

// Session is a handle of a worker session. If no session has the ID, the reason of the errors is ReasonSessionNotFound.
type Session struct {
	client *Client
	ID     string
}

func (s *Session) path(suffix string) string {
	return "/api/worker-sessions/" + url.PathEscape(s.ID) + suffix
}

// Describe returns the state of the session.
func (s *Session) Describe(ctx context.Context) (SessionInfo, error) {
	var out struct {
		Session SessionInfo `json:"session"`
	}
	err := s.client.Call(ctx, http.MethodGet, s.path(""), nil, &out)
	return out.Session, err
}

// Close ends the session: the app cancels its activities and refuses their late results. reason has at most 1000 bytes.
func (s *Session) Close(ctx context.Context, reason string) error {
	return s.operate(ctx, "/close", protocol.SessionOperation{Reason: reason})
}

// Migrate moves the session to another worker once the activities that run in it have ended; with force at once. An
// empty worker ID lets any suitable worker acquire it. The state of the session is lost.
func (s *Session) Migrate(ctx context.Context, workerID string, force bool, reason string) error {
	return s.operate(ctx, "/migrate", protocol.SessionOperation{To: workerID, Force: force, Reason: reason})
}

// Forget deletes the session, so that its ID can be used again. With force, it does so even if activities run in the
// session or its last lease is valid.
func (s *Session) Forget(ctx context.Context, force bool, reason string) error {
	return s.operate(ctx, "/forget", protocol.SessionOperation{Force: force, Reason: reason})
}

func (s *Session) operate(ctx context.Context, verb string, in protocol.SessionOperation) error {
	return s.client.Call(ctx, http.MethodPost, s.path(verb), in, nil)
}

// SessionEvent is an entry of the timeline of a session.
type SessionEvent struct {
	At       time.Time `json:"at"`
	Type     string    `json:"what"`      // started, claimed, renewed, released, expired, closed, …
	WorkerID string    `json:"worker_id"` // the owner before or after the event
	Epoch    int64     `json:"epoch"`
	By       string    `json:"by"`  // worker, operator or run that caused the event; empty: the app, at a deadline
	Why      string    `json:"why"` // for people
	TaskID   string    `json:"task_id"`
}

// Timeline iterates over the events of the session, page by page from the newest page; each page has its oldest event
// first.
func (s *Session) Timeline(ctx context.Context) iter.Seq2[SessionEvent, error] {
	return pages[SessionEvent](ctx, s.client, s.path("/timeline"), "timeline", 200, url.Values{})
}

// SessionAttempt is one delivery of an activity in a session.
type SessionAttempt struct {
	WorkflowID   string    `json:"workflow_id"`
	RunID        string    `json:"run_id"`
	TaskID       string    `json:"task_id"`
	ActivityType string    `json:"activity_type"`
	Attempt      int       `json:"attempt_number"` // 0 for a delivery that was lost
	WorkerID     string    `json:"worker_id"`
	Epoch        int64     `json:"epoch"`
	Outcome      string    `json:"outcome"` // running, completed, failed, cancelled, expired or returned
	Why          string    `json:"why"`
	StartedAt    time.Time `json:"started_at"`
	EndedAt      time.Time `json:"ended_at"` // zero while it runs
}

// Attempts iterates over the attempts of activities in the session, newest first: of one epoch, or of all with epoch 0.
func (s *Session) Attempts(ctx context.Context, epoch int64) iter.Seq2[SessionAttempt, error] {
	q := url.Values{}
	if epoch != 0 {
		q.Set("epoch", strconv.FormatInt(epoch, 10))
	}
	return pages[SessionAttempt](ctx, s.client, s.path("/attempts"), "attempts", 200, q)
}
