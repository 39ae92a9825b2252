package payload

import "errors"

// pathError says where in the value an error arose. The path is built from the inside out.
type pathError struct {
	path string
	err  error
}

func (e *pathError) Error() string { return e.err.Error() + " (at " + e.path + ")" }
func (e *pathError) Unwrap() error { return e.err }

// at prefixes the place of err with step, ".name" or "[3]". Very deep places keep their innermost steps.
func at(err error, step string) error {
	if where, ok := errors.AsType[*pathError](err); ok {
		if len(where.path) < 200 {
			where.path = step + where.path
		}
		return err
	}
	return &pathError{path: step, err: err}
}
