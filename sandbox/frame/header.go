package frame

import "encoding/json"

// Proto is the protocol version both sides name in init and ready.
const Proto = 1

// These are the types of frames from the worker to the executor.
const (
	Init   = "init"   // proto, limits, level, scratch: response is Ready
	Load   = "load"   // hash, own, format, path, files; body = code
	Open   = "open"   // session, epoch: binds a blank executor permanently
	Invoke = "invoke" // id, activity, entry or export, hash, deadline, attempt, keys, lend, room; body = input
	// last_heartbeat: id; body = JSON {details, at, attempt_number} of an earlier attempt. It precedes the invoke frame
	// with this id, because details may be larger than a header.
	LastHeartbeat = "last_heartbeat"
	// headers: id; body = JSON object with the headers of the activity. It precedes the invoke frame with this id.
	Headers  = "headers"
	Cancel   = "cancel"   // id, reason, grace_ms
	Close    = "close"    // session, reason: runs close hooks; response is Closed
	Ping     = "ping"     // response is Pong
	Shutdown = "shutdown" // the executor exits
)

// These are the types of frames from the executor to the worker.
const (
	Ready     = "ready"     // proto, runtime, features
	Result    = "result"    // id, usage, room; body = output
	Error     = "error"     // id, type, message, stack, retryable, details
	Progress  = "progress"  // id; body
	Heartbeat = "heartbeat" // id
	Log       = "log"       // id?, level; body = text
	Pong      = "pong"
	Closed    = "closed"
)

// Header is the JSON part of a frame. The comment of each type's constant lists the members that the type uses; the
// other members are empty and not sent. Unknown members are ignored.
type Header struct {
	T  string `json:"t"`
	ID string `json:"id,omitempty"`

	Proto     int      `json:"proto,omitempty"`
	Runtime   string   `json:"runtime,omitempty"`
	Features  []string `json:"features,omitempty"`
	Level     string   `json:"level,omitempty"`
	Scratch   string   `json:"scratch,omitempty"`
	MaxHeader int      `json:"max_header,omitempty"`
	MaxBody   int      `json:"max_body,omitempty"`

	Hash   string `json:"hash,omitempty"`
	Format string `json:"format,omitempty"`
	Path   string `json:"path,omitempty"`
	Own    string `json:"own,omitempty"` // hash of the body; Hash is the hash of the whole handler
	// versions of the handler's other files; the executor loads a file again if it has loaded another version
	Files map[string]string `json:"files,omitempty"`

	Session string `json:"session,omitempty"`
	Epoch   int64  `json:"epoch,omitempty"`

	Activity string `json:"activity,omitempty"`
	Entry    string `json:"entry,omitempty"`
	// Name of an exported value that is returned as JSON instead of a call.
	Export     string            `json:"export,omitempty"`
	Attempt    int               `json:"attempt,omitempty"`
	DeadlineMS int64             `json:"deadline_ms,omitempty"` // Unix milliseconds; 0: no deadline
	Keys       map[string]string `json:"keys,omitempty"`
	IsNew      bool              `json:"is_new,omitempty"`

	// The shared memory is a memory file (memfd) of both processes. Large bodies are passed in it, so that neither
	// process has to wait for the other after every few pages that fit into a socket. One call at a time uses it, from
	// invoke to its end.
	Lend   bool `json:"lend,omitempty"`
	Shared int  `json:"room,omitempty"` // length of the body if it is in shared memory instead of the frame

	Reason  string `json:"reason,omitempty"`
	GraceMS int64  `json:"grace_ms,omitempty"`

	Usage *Usage `json:"usage,omitempty"`

	Type      string          `json:"type,omitempty"`
	Class     string          `json:"class,omitempty"`
	Message   string          `json:"message,omitempty"`
	Stack     string          `json:"stack,omitempty"`
	Retryable *bool           `json:"retryable,omitempty"` // absent means yes
	Details   json.RawMessage `json:"details,omitempty"`
	// Path to which access was denied, if that caused the handler's failure.
	Denied string `json:"denied,omitempty"`
}

// Usage is the resource usage of a call as measured by its executor.
type Usage struct {
	CPUMS float64 `json:"cpu_ms,omitempty"` // processor time, milliseconds
	RSS   int64   `json:"rss,omitempty"`    // resident bytes of the executor when the call ended
}
