package workflow

import (
	"cmp"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Promise is an awakeable of this run, and the Future of its result. If the awakeable fails or times out, Get and
// Result return an *AwakeableError.
type Promise[T any] struct {
	*future
	// ID names the awakeable in the API. It is set as soon as Awakeable returns, unless the context was cancelled.
	ID string
}

var _ Future = (*Promise[any])(nil)

// Awakeable opens an awakeable: a result that a program outside of Sojourn delivers by its ID, once, with
// client.CompleteAwakeable or client.FailAwakeable. Pass the ID to that program, for example as an argument of an
// activity that sends a link or registers a webhook.
//
// After timeout, which is rounded up to whole seconds, the result is an error that matches ErrTimedOut; 0 means no
// timeout. Cancelling ctx ends the awakeable with ErrCancelled. An awakeable belongs to its run: when the run closes or
// continues as new, it ends, and the app refuses its completion.
//
//	approval := workflow.Awakeable[bool](ctx, 24*time.Hour)
//	if _, err := workflow.Execute[any](ctx, sendMail, approval.ID); err != nil {
//		return err
//	}
//	approved, err := approval.Result(ctx)
func Awakeable[T any](ctx Context, timeout time.Duration) *Promise[T] {
	f, id := ctx.inner().awakeable(timeout)
	return &Promise[T]{f, id}
}

// Result waits for the result, like Get, and decodes it.
func (p *Promise[T]) Result(ctx Context) (T, error) { return Await[T](ctx, p) }

func (c *flow) awakeable(timeout time.Duration) (f *future, id string) {
	c.m.currentBranch()
	if c.scope.cancelled {
		return c.m.settled(ErrCancelled), ""
	}
	cmd := &protocol.Command{Type: protocol.OpenAwakeable}
	limit, err := wholeSeconds("timeout", timeout)
	if limit > 0 {
		cmd.Timeout = &limit
	}
	if err == nil {
		err = c.m.check(cmd)
	}
	if err != nil {
		return c.m.settled(fmt.Errorf("awakeable: %w", err)), ""
	}
	f = c.openStep(awakeableStep, "", cmd)
	f.name = c.m.openedID(f.seq)
	return f, f.name
}

// AwakeableError reports why an awakeable has no result.
type AwakeableError struct {
	ID       string
	Type     string // type of the failure that the caller reported
	Message  string
	details  payload.Payload
	TimedOut bool

	NonRetryable bool
}

// Error returns the ID of the awakeable, and the type and message of its failure.
func (e *AwakeableError) Error() string { return explain("awakeable", e.ID, e.Type, e.Message) }

// Is implements errors.Is for the Err values of this package.
func (e *AwakeableError) Is(target error) bool { return target == ErrTimedOut && e.TimedOut }

// DecodeDetails decodes the details of the failure. It leaves out unchanged if there are none.
func (e *AwakeableError) DecodeDetails(out any) error { return decodeDetails(e.details, out) }

// awakeableEnded resolves the future of an awakeable by the event that ended it.
func (m *machine) awakeableEnded(e *history.Event) {
	switch d := e.Data.(type) {
	case *history.AwakeableCompleted:
		m.resolve(d.Sequence, awakeableStep, e, func(*future) (payload.Payload, error) {
			return payload.Payload{Blob: d.Result}, nil
		})
	case *history.AwakeableFailed:
		m.resolve(d.Sequence, awakeableStep, e, func(*future) (payload.Payload, error) {
			ex := readException(d.Exception)
			return payload.Payload{}, &AwakeableError{
				ID: d.AwakeableID, Type: cmp.Or(d.ExceptionType, ex.Type), Message: d.Message, details: ex.Details,
				NonRetryable: d.NonRetryable,
			}
		})
	case *history.AwakeableTimedOut:
		m.resolve(d.Sequence, awakeableStep, e, func(*future) (payload.Payload, error) {
			return payload.Payload{}, &AwakeableError{
				ID: d.AwakeableID, Message: fmt.Sprintf("timed out after %d s", d.Timeout), TimedOut: true,
			}
		})
	}
}
