package sandbox

import (
	"fmt"

	"github.com/sojourn-run/sojourn/shared/payload"
)

// inputFor gives a handler its arguments: native ones the stored text, others JSON.
func (l *language) inputFor(stored []byte) ([]byte, error) {
	if !l.json {
		return stored, nil
	}
	plain, err := payload.ToJSON(payload.Payload{Blob: string(stored)})
	if err != nil {
		return nil, &Error{
			Type: UserError, Class: payload.Reason(err), Message: fmt.Sprintf("the arguments cannot be read: %v", err),
		}
	}
	return plain, nil
}

// outputFrom turns what a handler gave into the stored text.
func (l *language) outputFrom(given []byte) ([]byte, error) {
	if !l.json {
		return given, nil
	}
	stored, err := payload.FromJSON(given)
	if err != nil {
		return nil, &Error{
			Type: UserError, Class: payload.Reason(err), Message: fmt.Sprintf("the result cannot be stored: %v", err),
		}
	}
	return []byte(stored.Blob), nil
}
