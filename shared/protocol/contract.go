package protocol

// The headers and versions of the two HTTP contracts, as the published SDKs send and expect them. Servers take requests
// of worker protocol 1.0 up to WorkerVersion, and of exactly ControlVersion.
const (
	HeaderWorkerVersion  = "X-Durable-Workflow-Protocol-Version"
	HeaderControlVersion = "X-Durable-Workflow-Control-Plane-Version"
	HeaderNamespace      = "X-Namespace"
	HeaderRelease        = "X-Sojourn-Release" // of a worker; ours alone

	WorkerVersion  = "1.20"
	ControlVersion = "2"
)

// MaxPendingQuestions is how many questions of a kind may wait for a worker in one queue.
const MaxPendingQuestions = 64
