package workflow

import (
	"errors"
	"fmt"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// check refuses a command that the app would refuse, by the rules that both share, so that the call fails and not the
// workflow task. Both rest on what history records of the run, so a replay gets the same result.
func (m *Machine) check(c *protocol.Command) error {
	if m.rules > 0 {
		return invalid(protocol.CheckCommandNames(c, m.info.Queue, func(member string) string { return member }))
	}
	return nil
}

// invalid is ErrInvalidOptions with the message of a refusal; nil for no error.
func invalid(err error) error {
	if refusal, ok := errors.AsType[*protocol.Error](err); ok {
		return fmt.Errorf("%w: %s", ErrInvalidOptions, refusal.Message)
	}
	return err
}
