package sandbox

import (
	"fmt"

	"github.com/sojourn-run/sojourn/shared/payload"
)

// checkOutput refuses a handler's result that is not a valid encoded value. It does not decode it. The check is
// necessary because code in an executor can write to the control socket directly.
func checkOutput(given []byte) error {
	if err := payload.ValidText(given); err != nil {
		return &Error{
			Type: UserError, Class: payload.Reason(err), Message: fmt.Sprintf("the result cannot be stored: %v", err),
		}
	}
	return nil
}
