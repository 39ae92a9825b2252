package sandbox

import (
	"fmt"

	"github.com/sojourn-run/sojourn/shared/payload"
)

// checkOutput refuses a handler's result that is not stored text. The worker neither reads nor makes it, and only looks
// at it, since code in an executor can write to the control socket itself.
func checkOutput(given []byte) error {
	if err := payload.ValidText(given); err != nil {
		return &Error{
			Type: UserError, Class: payload.Reason(err), Message: fmt.Sprintf("the result cannot be stored: %v", err),
		}
	}
	return nil
}
