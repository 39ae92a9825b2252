package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// SDKs get newer than the server. A member that only adds something may be ignored; one that changes what the
// code believes to have happened must not be.

// Unsupported refuses what this engine does not do and cannot leave out: without it the run would go another
// way than its code believes. Any other member that it does not know is ignored, since it comes from a newer
// client.
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
			if asksFor(m.value) {
				return protocol.Invalid(fmt.Sprintf("commands.%d.%s", i, m.name), "is not supported")
			}
		}
	}
	switch {
	case asksFor(in.Streams.Waits):
		return protocol.Invalid("message_stream_waits", "message streams are not supported")
	case asksFor(in.Streams.Cursors):
		return protocol.Invalid("message_stream_cursors", "message streams are not supported")
	}
	return nil
}

// asksFor reports whether a member asks for anything, in whatever form it came: null and an empty list do not.
func asksFor(raw json.RawMessage) bool {
	if len(raw) == 0 {
		return false
	}
	var list []json.RawMessage
	return json.Unmarshal(raw, &list) != nil || len(list) > 0
}

// quarantine stops the dispatch of the task until an operator repairs the run. Any other worker with the same code
// would be refused too, and some workers exit when they are refused.
func (st *step) quarantine(why error) {
	t := st.Task
	t.Lease, t.State, t.Problem = Lease{}, Quarantined, why.Error()
	if refusal, ok := errors.AsType[*protocol.Error](why); ok {
		refusal.With("task_status", string(Quarantined))
	}
	st.d.Answer.Refused = why
}
