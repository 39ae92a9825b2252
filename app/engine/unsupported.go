package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// SDKs may be newer than the app. An unknown field that only adds something may be ignored; the app must refuse a field
// that changes what the code assumes to have happened.

// Unsupported refuses fields that this engine does not support and must not ignore: the run would diverge from what its
// code assumes. All other unknown fields are ignored.
func (in *CompleteTask) Unsupported() error {
	for i, c := range in.Commands {
		if c.Type != "" && !slices.Contains(Supported, c.Type) {
			return protocol.Invalid(fmt.Sprintf("commands.%d.type", i), "unknown command %q", c.Type)
		}
		for _, m := range []struct {
			name  string
			value json.RawMessage
		}{
			{"workflow_stream", c.WorkflowStream},
			{"cancellation_scope_id", c.ScopeID},
			{"cancellation_cleanup", c.ScopeCleanup},
		} {
			if hasValue(m.value) {
				return protocol.Invalid(fmt.Sprintf("commands.%d.%s", i, m.name), "is not supported")
			}
		}
	}
	switch {
	case hasValue(in.Streams.Waits):
		return protocol.Invalid("message_stream_waits", "message streams are not supported")
	case hasValue(in.Streams.Cursors):
		return protocol.Invalid("message_stream_cursors", "message streams are not supported")
	}
	return nil
}

// hasValue reports whether a field has a value; null and an empty list count as no value.
func hasValue(raw json.RawMessage) bool {
	if len(raw) == 0 {
		return false
	}
	var list []json.RawMessage
	return json.Unmarshal(raw, &list) != nil || len(list) > 0
}

// quarantine stops the dispatch of the task until an operator repairs the run. Every other worker with the same code
// would be refused, too, and some workers exit when they are refused.
func (st *step) quarantine(why error) {
	t := st.Task
	t.Lease, t.State, t.Problem = Lease{}, Quarantined, why.Error()
	if refusal, ok := errors.AsType[*protocol.Error](why); ok {
		refusal.With("task_status", string(Quarantined))
	}
	st.d.Answer.Refused = why
}
