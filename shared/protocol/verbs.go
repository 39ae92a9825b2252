package protocol

import "context"

// WorkerVerbs are what an app does for workers, in the one vocabulary of both sides: the broker serves them, our
// worker calls them, and every carrier between the two has them on either end. Only what travels over a socket has
// other words, which the two ends of a socket put into these and back.
//
// A refusal is an *Error. Any other error leaves open whether it was done.
type WorkerVerbs interface {
	Register(context.Context, RegisterRequest) (RegisterAnswer, error)
	Deregister(context.Context, DeregisterRequest) (DeregisterAnswer, error)
	WorkerHeartbeat(context.Context, WorkerHeartbeat) (WorkerHeartbeatAnswer, error)
	Poll(context.Context, PollRequest) (PollAnswer, error)
	Complete(context.Context, CompleteRequest) (CompleteBatchAnswer, error)
	HeartbeatTask(context.Context, HeartbeatRequest) (HeartbeatAnswer, error)
	RecordLogs(context.Context, LogsRequest) (LogsAnswer, error)
	HistoryPage(context.Context, HistoryRequest) (HistoryPage, error)
	CreateSession(context.Context, SessionCreate) (SessionAnswer, error)
	HeartbeatSession(context.Context, SessionVerb) (SessionAnswer, error)
	ReleaseSession(context.Context, SessionVerb) (SessionAnswer, error)
	CloseSession(context.Context, SessionVerb) (SessionAnswer, error)
}

// WorkerConnection is the connection of one worker to an app: the worker's calls, and its settings, which it requests
// first. The connection identifies the worker; a worker ID in a request is ignored.
type WorkerConnection interface {
	WorkerVerbs
	Settings(context.Context, MachineInformation) (WorkerSettings, error)
}

// WorkerNotices are what an app tells a worker unasked. All are hints that may be lost: what matters in them also
// stands in the answer to the next heartbeat. The error says only that the worker did not take it.
type WorkerNotices interface {
	// CancelAttempt: stop this attempt.
	CancelAttempt(context.Context, CancelNotice) error
	// EndSession: a session that the worker held is not held any more.
	EndSession(context.Context, SessionNotice) error
	// YieldSession: a session is to give way to another that waits, if nothing runs in it. The worker releases it with
	// that reason; when it does not, the app takes it away.
	YieldSession(context.Context, SessionNotice) error
	// EvictRuns: runs that the worker keeps in memory have ended.
	EvictRuns(context.Context, EvictNotice) error
	// Drain: finish and leave.
	Drain(context.Context) error
	// Pause: finish what you have, and stay; polls give nothing until Resume.
	Pause(context.Context, PauseNotice) error
	// Resume: poll again.
	Resume(context.Context) error
	// RefreshSettings: fetch the settings again.
	RefreshSettings(context.Context) error
}
