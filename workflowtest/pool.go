package workflowtest

import (
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// SetPool creates a pool of sessions, or changes its size: workers of the task queue "default" set up size members by a
// session definition, and workflows borrow them with workflow.Borrow. The error is the app's refusal.
func (e *Env) SetPool(name, definition string, size int) error {
	e.t.Helper()
	_, err := e.server.Broker().SetPool(e.ctx, protocol.PoolRequest{
		Name: name, Definition: definition, Queue: queue, Size: size, Identity: "test",
	})
	return err
}
