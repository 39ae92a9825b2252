package workflow

import (
	"errors"
	"fmt"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// check refuses a command that the app would refuse, by the same rules for names, so that the call fails and not the
// workflow task. Whether the rules apply is recorded in the history of the run, so a replay gets the same result.
func (m *Machine) check(c *protocol.Command) error {
	if m.rules > 0 {
		return invalid(protocol.CheckCommandNames(c, m.info.Queue, func(member string) string { return member }))
	}
	return nil
}

// invalid wraps the message of a refusal in ErrInvalidOptions; nil for nil.
func invalid(err error) error {
	if refusal, ok := errors.AsType[*protocol.Error](err); ok {
		return fmt.Errorf("%w: %s", ErrInvalidOptions, refusal.Message)
	}
	return err
}
