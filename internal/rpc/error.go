package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// These are the codes that this package generates. All other codes come from handlers.
const (
	CodeUnknownMethod     = "unknown_method"    // no handler has this name
	CodeMalformedPayload  = "malformed_payload" // the payload does not have the type that the method expects
	CodeMalformedResponse = "malformed_answer"  // the response does not have the type that the caller expects
	CodeInternal          = "internal"          // the handler panicked or returned an error without a code
	CodeDeadlineExceeded  = "deadline_exceeded" // the deadline of the call passed
	CodeCancelled         = "cancelled"         // the caller cancelled the call or its connection ended
)

// statusClientClosed is the status that proxies log for a client that disconnected; net/http has no constant for it.
const statusClientClosed = 499

// Error is a refusal that programs can read.
type Error struct {
	Code    string         // the reason in snake_case, from a fixed list; programs compare it
	Message string         // text for display
	Status  int            // equivalent HTTP status; 0 if the sender set none
	Details map[string]any // further members besides the code; never "code" or "status"

	cause error // not sent to the peer
}

// Errorf returns an Error with a formatted message. An error for %w is part of the message, and is the cause in this
// process.
func Errorf(code string, status int, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Status: status, cause: errors.Unwrap(err)}
}

// Error returns code and message.
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code
	}
	return e.Code + ": " + e.Message
}

// Unwrap returns the cause of the refusal, which is known only in the process of the handler.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is an Error of the same code, so errors.Is(err, &rpc.Error{Code: "lease_lost"}) works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == "" && t.Status == 0 && t.Details == nil
}

// outcome is like AsError, for the error of a handler. If the error is only the cause with which the caller's context
// was cancelled, the code is [CodeCancelled] for every such cause.
func outcome(ctx context.Context, err error) *Error {
	var known *Error
	if errors.Is(ctx.Err(), context.Canceled) && !errors.As(err, &known) && errors.Is(err, context.Cause(ctx)) {
		return &Error{Code: CodeCancelled, Message: "the caller went away", Status: statusClientClosed, cause: err}
	}
	return AsError(err)
}

// AsError gives every error a code: an Error in the chain is returned unchanged, an ended context becomes
// [CodeDeadlineExceeded] or [CodeCancelled], and any other error becomes [CodeInternal], whose message does not contain
// the cause. errors.Unwrap returns the cause for the log. It returns nil for nil.
func AsError(err error) *Error {
	var known *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{
			Code: CodeDeadlineExceeded, Message: "the deadline of the call passed", Status: http.StatusGatewayTimeout,
			cause: err,
		}
	case errors.Is(err, context.Canceled):
		return &Error{Code: CodeCancelled, Message: "the caller went away", Status: statusClientClosed, cause: err}
	}
	return &Error{Code: CodeInternal, Message: "internal error", Status: http.StatusInternalServerError, cause: err}
}
