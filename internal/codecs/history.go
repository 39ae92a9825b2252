package codecs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// DecodeEvents decodes the payloads of events. It returns the same slice if no payload begins like an encoded one.
// Otherwise it copies the slice and these events, because an app in the same process may use them too.
func (c Chain) DecodeEvents(events []history.Event) ([]history.Event, error) {
	all, copied := events, false
	for i := range events {
		data, err := c.decodeData(events[i].Data)
		if missing, ok := errors.AsType[*MissingError](err); ok {
			return nil, missing // operators search for this message
		}
		if err != nil {
			return nil, fmt.Errorf("event %d (%s): %w", events[i].Seq, events[i].Type(), err)
		}
		if data == events[i].Data {
			continue
		}
		if !copied {
			all, copied = append([]history.Event(nil), events...), true
		}
		all[i].Data = data
	}
	return all, nil
}

// decodeData returns the data of an event with decoded payloads: a copy, or d itself if no payload can be encoded.
func (c Chain) decodeData(d history.Data) (history.Data, error) {
	args, value, failure := payloadsOf(d)
	if !maybeSealed(args, true) && !maybeSealed(value, false) && (failure == nil || !hasSealedDetails(failure.Exception)) {
		return d, nil
	}
	from := reflect.ValueOf(d).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	d = to.Interface().(history.Data)
	args, value, failure = payloadsOf(d)
	if args != nil {
		p, err := c.DecodeArgs(payload.Payload{Blob: *args})
		if err != nil {
			return nil, err
		}
		*args = p.Blob
	}
	if value != nil {
		p, err := c.DecodeValue(payload.Payload{Blob: *value})
		if err != nil {
			return nil, err
		}
		*value = p.Blob
	}
	if failure != nil {
		raw, err := changeDetails(failure.Exception, c.DecodeValue)
		if err != nil {
			return nil, err
		}
		failure.Exception = raw
	}
	return d, nil
}

func maybeSealed(blob *string, args bool) bool {
	return blob != nil && payload.MaybeSealed(*blob, args)
}

// payloadsOf returns the members of an event that a codec encodes: its arguments, its value and the failure whose
// details it has.
func payloadsOf(d history.Data) (args, value *string, failure *history.Failure) {
	switch d := d.(type) {
	case *history.WorkflowStarted:
		return &d.Arguments, nil, nil
	case *history.WorkflowCompleted:
		return nil, &d.Output, nil
	case *history.WorkflowFailed:
		return nil, nil, &d.Failure
	case *history.ActivityScheduled:
		return &d.Arguments, nil, nil
	case *history.ActivityCompleted:
		return nil, &d.Result, nil
	case *history.ActivityRetryScheduled:
		return nil, nil, &d.Failure
	case *history.ActivityFailed:
		return nil, nil, &d.Failure
	case *history.ActivityTimedOut:
		return nil, nil, &d.Failure
	case *history.ChildWorkflowScheduled:
		return &d.Arguments, nil, nil
	case *history.ChildRunCompleted:
		return nil, &d.Result, nil
	case *history.ChildRunFailed:
		return nil, nil, &d.Failure
	case *history.AttachedChildEnded:
		return nil, &d.Result, &d.Failure
	case *history.AwakeableCompleted:
		return nil, &d.Result, nil
	case *history.AwakeableFailed:
		return nil, nil, &d.Failure
	case *history.SignalReceived:
		return &d.Value, nil, nil
	case *history.SignalApplied:
		return &d.Value, nil, nil
	case *history.SideEffectRecorded:
		return nil, &d.Result, nil
	case *history.UpdateAccepted:
		return &d.Arguments, nil, nil
	case *history.UpdateApplied:
		return &d.Arguments, nil, nil
	case *history.UpdateCompleted:
		return nil, &d.Result, &d.Failure
	}
	return nil, nil, nil
}

// EncodeCommands returns the commands with encoded payloads. It does not change the given commands.
func (c Chain) EncodeCommands(commands []protocol.Command) ([]protocol.Command, error) {
	if len(c) == 0 || len(commands) == 0 {
		return commands, nil
	}
	all := append([]protocol.Command(nil), commands...)
	for i := range all {
		if err := c.encodeCommand(&all[i]); err != nil {
			return nil, fmt.Errorf("command %s: %w", all[i].Type, err)
		}
	}
	return all, nil
}

func (c Chain) encodeCommand(to *protocol.Command) (err error) {
	if to.Arguments, err = c.EncodeArgs(to.Arguments); err != nil {
		return err
	}
	if to.Result, err = c.EncodeValue(to.Result); err != nil {
		return err
	}
	if to.SessionDefinition != nil {
		definition := *to.SessionDefinition
		if definition.Arguments, err = c.EncodeArgs(definition.Arguments); err != nil {
			return err
		}
		to.SessionDefinition = &definition
	}
	to.Exception, err = changeDetails(to.Exception, c.EncodeValue)
	return err
}

// EncodeFailure returns a failure with encoded details; nil for nil. Its other members stay readable.
func (c Chain) EncodeFailure(f *protocol.Failure) (*protocol.Failure, error) {
	if f == nil || len(f.Details) == 0 || len(c) == 0 {
		return f, nil
	}
	raw, err := changePayload(f.Details, c.EncodeValue)
	if err != nil {
		return nil, err
	}
	changed := *f
	changed.Details = raw
	return &changed, nil
}

// DecodeException returns the exception of a failure with decoded details.
func (c Chain) DecodeException(raw json.RawMessage) (json.RawMessage, error) {
	if !hasSealedDetails(raw) {
		return raw, nil
	}
	return changeDetails(raw, c.DecodeValue)
}

// hasSealedDetails reports whether the details of an exception begin like encoded ones.
func hasSealedDetails(raw json.RawMessage) bool {
	if !bytes.Contains(raw, []byte(payload.SealedPrefix)) {
		return false
	}
	var exception struct {
		Details payload.Payload `json:"details"`
	}
	return json.Unmarshal(raw, &exception) == nil && payload.MaybeSealed(exception.Details.Blob, false)
}

// changeDetails applies fn to the details of an exception, if it has any.
func changeDetails(
	raw json.RawMessage, fn func(payload.Payload) (payload.Payload, error),
) (json.RawMessage, error) {
	if !bytes.Contains(raw, []byte(`"details"`)) {
		return raw, nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members["details"] == nil {
		return raw, nil //nolint:nilerr // not an object: an exception of another runtime
	}
	details, err := changePayload(members["details"], fn)
	if err != nil {
		return nil, err
	}
	members["details"] = details
	return json.Marshal(members)
}

// changePayload applies fn to an envelope. It leaves other JSON values unchanged.
func changePayload(
	raw json.RawMessage, fn func(payload.Payload) (payload.Payload, error),
) (json.RawMessage, error) {
	var p payload.Payload
	if json.Unmarshal(raw, &p) != nil || p.IsZero() {
		return raw, nil //nolint:nilerr // not an envelope
	}
	changed, err := fn(p)
	if err != nil {
		return nil, err
	}
	return json.Marshal(changed)
}
