package payload

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// pathError is an error with its position in the value. The path is built from the inside out.
type pathError struct {
	path     string
	argument int // position in an argument list, from 1; 0: not an argument
	err      error
}

func (e *pathError) Error() string {
	if e.argument == 0 {
		return e.err.Error() + " (at " + e.path + ")"
	}
	inside := e.path[strings.Index(e.path, "]")+1:]
	if m, ok := e.err.(*mismatchError); ok && inside == "" { //nolint:errorlint // only the argument itself
		return fmt.Sprintf("argument %d must be %s, got %s", e.argument, acceptedBy(m.want), m.got)
	}
	if inside != "" {
		inside = " (at " + inside + ")"
	}
	return fmt.Sprintf("argument %d: %v%s", e.argument, e.err, inside)
}

func (e *pathError) Unwrap() error { return e.err }

// at adds step, ".name" or "[3]", to the front of err's path. Very long paths keep their innermost steps.
func at(err error, step string) error {
	if where, ok := errors.AsType[*pathError](err); ok {
		if len(where.path) < 200 {
			where.path = step + where.path
		}
		return err
	}
	return &pathError{path: step, err: err}
}

// atArgument is at for the nth argument of a list, counted from 0.
func atArgument(n int, err error) error {
	err = at(err, "["+strconv.Itoa(n)+"]")
	if where, ok := errors.AsType[*pathError](err); ok {
		where.argument = n + 1
	}
	return err
}

// Place returns the path of err below field, in the form of member paths ("input.0.amount"), and the error itself.
func Place(field string, err error) (string, error) {
	where, ok := errors.AsType[*pathError](err)
	if !ok {
		return field, err
	}
	return field + strings.NewReplacer("[", ".", "]", "").Replace(where.path), where.err
}
