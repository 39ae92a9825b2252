package protocol

// The headers and versions of the two HTTP contracts, as the published SDKs send and expect them. Servers take requests
// of worker protocol 1.0 up to WorkerVersion, and of exactly ControlVersion.
const (
	HeaderWorkerVersion  = "X-Durable-Workflow-Protocol-Version"
	HeaderControlVersion = "X-Durable-Workflow-Control-Plane-Version"
	HeaderNamespace      = "X-Namespace"
	HeaderRelease        = "X-Sojourn-Release" // release of a worker; only Sojourn uses it

	WorkerVersion  = "1.20"
	ControlVersion = "2"
)

// Limits of the published contract. The app rejects requests above them, and the worker does not send such requests.
const (
	MaxName     = 255                  // bytes of an id or a name
	MaxPending  = 2000                 // activities, timers or children that a run has open, each kind by itself
	MaxCommands = 1000                 // commands of one completion
	MaxItems    = 1000                 // outcomes, or chunks of lines, of one request
	MaxSeconds  = 10 * 365 * 24 * 3600 // maximum duration that a request may contain: ten years
)

// MaxPendingQuestions is the maximum number of waiting queries of one kind in a queue.
const MaxPendingQuestions = 64
