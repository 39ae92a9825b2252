package protocol

import "context"

// WorkerVerbs are the calls of a worker to an app. The broker implements them, Sojourn's worker calls them, and every
// transport has them on both ends. Only the socket uses other names on the wire, which its two ends translate.
//
// A refusal is an *Error. After any other error the call may have been executed.
type WorkerVerbs interface {
	Register(context.Context, RegisterRequest) (RegisterResponse, error)
	Deregister(context.Context, DeregisterRequest) (DeregisterResponse, error)
	WorkerHeartbeat(context.Context, WorkerHeartbeat) (WorkerHeartbeatResponse, error)
	Poll(context.Context, PollRequest) (PollResponse, error)
	Complete(context.Context, CompleteRequest) (CompleteBatchResponse, error)
	HeartbeatTask(context.Context, HeartbeatRequest) (HeartbeatResponse, error)
	RecordLogs(context.Context, LogsRequest) (LogsResponse, error)
	HistoryPage(context.Context, HistoryRequest) (HistoryPage, error)
	CreateSession(context.Context, SessionCreate) (SessionResponse, error)
	HeartbeatSession(context.Context, SessionVerb) (SessionResponse, error)
	ReleaseSession(context.Context, SessionVerb) (SessionResponse, error)
	CloseSession(context.Context, SessionVerb) (SessionResponse, error)
}

// WorkerConnection is the connection of one worker to an app: the worker's calls, and its settings, which it requests
// first. The connection identifies the worker; a worker ID in a request is ignored.
type WorkerConnection interface {
	WorkerVerbs
	Settings(context.Context, MachineInformation) (WorkerSettings, error)
}

// WorkerNotices are notices of an app to a worker. A notice may be lost; the response to the next heartbeat contains
// the same facts. An error means only that the worker did not receive the notice.
type WorkerNotices interface {
	// CancelAttempt: the worker must stop this attempt.
	CancelAttempt(context.Context, CancelNotice) error
	// EndSession: the worker no longer holds the session.
	EndSession(context.Context, SessionNotice) error
	// YieldSession: another session waits for the place of this one. The worker releases it with that reason if nothing
	// runs in it; if the worker does not, the app releases it.
	YieldSession(context.Context, SessionNotice) error
	// PrepareSessions: sessions that the worker prepares, or should prepare, have changed. The worker sends a heartbeat.
	PrepareSessions(context.Context) error
	// EvictRuns: runs in the worker's sticky cache have ended.
	EvictRuns(context.Context, EvictNotice) error
	// Drain: the worker finishes its tasks and ends.
	Drain(context.Context) error
	// Pause: the worker finishes its tasks and continues to run; polls return no tasks until Resume.
	Pause(context.Context, PauseNotice) error
	// Resume: the worker polls again.
	Resume(context.Context) error
	// RefreshSettings: the worker fetches its settings again.
	RefreshSettings(context.Context) error
}
