package payload

import (
	"errors"
	"strings"
)

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

// Place says where below field err arose, as paths of members are written ("input.0.amount"), and what is wrong there.
func Place(field string, err error) (string, error) {
	where, ok := errors.AsType[*pathError](err)
	if !ok {
		return field, err
	}
	return field + strings.NewReplacer("[", ".", "]", "").Replace(where.path), where.err
}
