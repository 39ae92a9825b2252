package store

import (
	"errors"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Refusal converts the store's errors to refusals of the protocol with a reason. It returns other errors unchanged.
func Refusal(err error) error {
	switch {
	case errors.Is(err, ErrUnavailable):
		return protocol.Refuse(protocol.ReasonStoreUnavailable, "the database does not accept writes at the moment; try again")
	case errors.Is(err, ErrClosed):
		return protocol.Refuse(protocol.ReasonStoreUnavailable, "this app is shutting down; try again")
	case errors.Is(err, ErrNotFound):
		return protocol.Refuse(protocol.ReasonNotFound, "not found")
	}
	return err
}
