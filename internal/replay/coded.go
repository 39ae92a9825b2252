package replay

import (
	"fmt"

	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// coded is a machine whose caller handles encoded payloads, while the machine sees only decoded ones. Therefore a
// replay compares values, although the encryption of equal values differs.
type coded struct {
	Machine
	codecs codecs.Chain
}

// Apply decodes the events, applies them and encodes the commands.
func (m *coded) Apply(task *protocol.WorkflowTask, events []history.Event) ([]protocol.Command, error) {
	events, err := m.codecs.DecodeEvents(events)
	if err != nil {
		return nil, err
	}
	args, err := m.codecs.DecodeArgs(task.Arguments)
	if err != nil {
		return nil, err
	}
	if args != task.Arguments {
		decoded := *task
		decoded.Arguments = args
		task = &decoded
	}
	commands, err := m.Machine.Apply(task, events)
	if err != nil {
		return nil, err
	}
	return m.codecs.EncodeCommands(commands)
}

// Query decodes the arguments, runs the query and encodes its result.
func (m *coded) Query(
	name string, args payload.Payload, headers map[string]string,
) (payload.Payload, error) {
	args, err := m.codecs.DecodeArgs(args)
	if err != nil {
		return payload.Payload{}, fmt.Errorf("arguments of query %q: %w", name, err)
	}
	result, err := m.Machine.Query(name, args, headers)
	if err != nil {
		return payload.Payload{}, err
	}
	return m.codecs.EncodeValue(result)
}

// Validate decodes the arguments and runs the validator.
func (m *coded) Validate(name string, args payload.Payload, headers map[string]string) error {
	args, err := m.codecs.DecodeArgs(args)
	if err != nil {
		return fmt.Errorf("arguments of update %q: %w", name, err)
	}
	return m.Machine.Validate(name, args, headers)
}

// SetCallbacks sets callbacks that handle encoded payloads.
func (m *coded) SetCallbacks(l LocalSteps, f FetchSignals) {
	if l != nil {
		l = codedSteps{l, m.codecs}
	}
	if f == nil {
		m.Machine.SetCallbacks(l, nil)
		return
	}
	m.Machine.SetCallbacks(l, func(after int64, most int) ([]history.Event, error) {
		events, err := f(after, most)
		if err != nil {
			return nil, err
		}
		return m.codecs.DecodeEvents(events)
	})
}

// codedSteps encodes the commands that local steps record.
type codedSteps struct {
	LocalSteps
	codecs codecs.Chain
}

// Record encodes the commands and makes them durable.
func (s codedSteps) Record(commands []protocol.Command, from int64) error {
	commands, err := s.codecs.EncodeCommands(commands)
	if err != nil {
		return err
	}
	return s.LocalSteps.Record(commands, from)
}
