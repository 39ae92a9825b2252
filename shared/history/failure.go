package history

import (
	"encoding/json"
	"strings"
)

// Failure is the failure in an event.
type Failure struct {
	ID string `json:"failure_id,omitempty"`
	// activity, application (a failure of the workflow), timeout, cancelled, poison, session_lost, …
	Category      string          `json:"failure_category,omitempty"`
	Message       string          `json:"message,omitempty"`
	ExceptionType string          `json:"exception_type,omitempty"`
	ExceptionCls  string          `json:"exception_class,omitempty"`
	Code          json.RawMessage `json:"code,omitempty"`
	NonRetryable  bool            `json:"non_retryable,omitempty"`
	Exception     json.RawMessage `json:"exception,omitempty"` // {type, class, message, details, details_payload_codec, …}
	// Stack is the stack trace for display. Workflow code cannot read it, so it is not part of the exception and is not
	// reported to other runs.
	Stack string `json:"stack_trace,omitempty"`
}

// plainTypes are types of failures whose messages have no more information than the type.
var plainTypes = map[string]bool{
	"": true, "Error": true, TypeActivityTimeout: true, "InvalidArguments": true, "payload_too_large": true,
	"payload_type_mismatch": true, "argument_count_mismatch": true, "integer_overflow": true, "invalid_utf8": true,
	"non_finite_float": true, "payload_too_deep": true, "unsupported_value_type": true,
}

// Text returns the failure as one text: its type, unless the message has the same text, and its message.
func (f Failure) Text() string {
	switch {
	case f.Message == "":
		return f.ExceptionType
	case plainTypes[f.ExceptionType], strings.HasPrefix(f.Message, f.ExceptionType):
		return f.Message
	}
	return f.ExceptionType + ": " + f.Message
}
