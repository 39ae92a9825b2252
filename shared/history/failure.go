package history

import (
	"encoding/json"
	"strings"
)

// Failure is why something failed, as every failing event shows it.
type Failure struct {
	ID string `json:"failure_id,omitempty"`
	// activity, application (a workflow's own), timeout, cancelled, poison, session_lost, …
	Category      string          `json:"failure_category,omitempty"`
	Message       string          `json:"message,omitempty"`
	ExceptionType string          `json:"exception_type,omitempty"`
	ExceptionCls  string          `json:"exception_class,omitempty"`
	Code          json.RawMessage `json:"code,omitempty"`
	NonRetryable  bool            `json:"non_retryable,omitempty"`
	Exception     json.RawMessage `json:"exception,omitempty"` // {type, class, message, details, details_payload_codec, …}
	// Stack is where the code failed, for people: no workflow reads it, so it is not part of the exception, and no other
	// run is told of it.
	Stack string `json:"stack_trace,omitempty"`
}

// Text is the failure in one text for people: its type where that says something, and its message.
func (f Failure) Text() string {
	switch {
	case f.Message == "":
		return f.ExceptionType
	case f.ExceptionType == "", f.ExceptionType == "Error", f.ExceptionType == TypeActivityTimeout,
		strings.HasPrefix(f.Message, f.ExceptionType):
		return f.Message
	}
	return f.ExceptionType + ": " + f.Message
}
